"""Named recipes: methods as their papers describe them, and where these differ at this size.

What holds for all of them: one update per batch (papers that take several minibatch updates per batch are run with the
lag that this means, ``staleness_style="alternate"``); batch size, group size, learning rate, temperature and optimiser
are those of `Recipe`, so that recipes differ in their method alone; answers without a thinking part know no length
control. Weights of KL terms and clips are the papers'.

``base``
    The default: CISPO with group-sd advantages, prompt mean, PipelineRL-8.
``reinforce``
    Williams 1992, baseline: mean of the batch; on-policy.
``ppo``
    Schulman et al. 2017 (arXiv 1707.06347), lag 0-3. The value is a linear head on the policy's trunk, not a model of
    its own; gamma = lambda = 1; it is not clipped.
``grpo``
    Shao et al. 2024 (2402.03300): group sd, mean over rollouts of their token means, KL weight .04; lag 0-3. The paper
    makes one update per batch in its main run and refreshes its reference model; here the reference stays.
``dr_grpo``
    Liu et al. 2025 (2503.20783): neither sd nor length in the denominator, no KL; lag 0-3.
``rloo``
    Ahmadian et al. 2024 (2402.14740): leave-one-out baseline, whole answers as actions, on-policy. The paper puts its KL
    term into the reward, here there is none (rewards are verified, not modelled).
``reinforce_pp``
    REINFORCE++, Hu 2025 (2501.03262): advantages normalised over the batch, PPO clip, lag 0-3. The paper's KL penalty
    inside the reward (weight .01 or less) is a KL term of the loss here.
``dapo``
    Yu et al. 2025 (2503.14476): clip .2 / .28, token mean, dynamic sampling, soft overlong punishment, no KL; lag 0-3.
    The paper goes through a batch in 16 minibatches.
``gspo``
    Zheng et al. 2025 (2507.18071): ratio of whole answers, clip 3e-4 / 4e-4, lag 0-3 (four minibatches, as the paper).
    Answers of a few tokens have far noisier length-normalised ratios than answers of thousands: most are clipped.
``topr``
    Le Roux et al. 2025 (2503.14286): positives unweighted, negatives with ratios cut at 1; no sd, lag 8.
``magistral``
    Mistral 2025 (2506.10910): group mean, sd over the batch, clip .2 / .28, token mean, groups without variance dropped,
    no KL, streaming generation (pipeline) with lag 2. The paper updates weights within sequences; not here.
``minimax``
    MiniMax-M1 2025 (2506.13585): CISPO with an upper cap alone, group sd, token mean, dynamic sampling, length penalty,
    no KL, head in float32; lag 0-15 (16 off-policy updates per batch). The paper does not print its cap: 5 here.
``scalerl``
    Khatri et al. 2025 (2510.13786): CISPO, prompt mean, sd over the batch, groups without variance dropped, prompts
    set aside from a pass rate of .9 on, interruptions, head in float32, PipelineRL-8. Weights are not changed within
    sequences.
``expert_iteration``
    Right answers are imitated: Zelikman et al. 2022 (STaR, 2203.14465), ReST-EM (2312.06585); lag 0-7. Training goes on
    from the current policy; STaR begins each iteration from the base model.
``online_dpo``
    Guo et al. 2024 (2402.04792) with verified rewards: one right and one wrong answer of each group, beta .1, on-policy.
"""

from __future__ import annotations

from dataclasses import replace

from simulators.minirun.settings import Recipe
from simulators.ranges import check_choice

_MINIBATCHES = Recipe(staleness=3, staleness_style="alternate")

RECIPES: dict[str, Recipe] = {
    "base": Recipe(),
    "reinforce": Recipe(
        objective="reinforce", baseline="batch", scale="none", aggregation="sequence", staleness=0
    ),
    "ppo": replace(_MINIBATCHES, objective="clipped", baseline="value", scale="batch", aggregation="token"),
    "grpo": replace(_MINIBATCHES, objective="clipped", aggregation="sequence", kl=0.04),
    "dr_grpo": replace(_MINIBATCHES, objective="clipped", scale="none", aggregation="constant"),
    "rloo": Recipe(
        objective="reinforce", baseline="leave_one_out", scale="none", aggregation="constant", staleness=0
    ),
    "reinforce_pp": replace(
        _MINIBATCHES, objective="clipped", baseline="batch", scale="batch", aggregation="token", kl=0.01
    ),
    "dapo": replace(
        _MINIBATCHES,
        objective="clipped",
        clip_high=0.28,
        aggregation="token",
        zero_variance="resample",
        overlong="penalty",
    ),
    "gspo": replace(_MINIBATCHES, objective="gspo", clip_low=3e-4, clip_high=4e-4, aggregation="sequence"),
    "topr": Recipe(objective="topr", scale="none", aggregation="sequence", staleness=8),
    "magistral": Recipe(
        objective="clipped",
        clip_high=0.28,
        scale="batch",
        aggregation="token",
        zero_variance="drop",
        staleness=2,
    ),
    "minimax": Recipe(
        objective="cispo",
        aggregation="token",
        zero_variance="resample",
        overlong="penalty",
        staleness=15,
        staleness_style="alternate",
    ),
    "scalerl": Recipe(
        objective="cispo",
        scale="batch",
        zero_variance="drop",
        easy=0.9,
        overlong="interrupt",
        staleness=8,
    ),
    "expert_iteration": Recipe(
        objective="expert_iteration",
        baseline="none",
        scale="none",
        aggregation="token",
        staleness=7,
        staleness_style="alternate",
    ),
    "online_dpo": Recipe(objective="online_dpo", baseline="none", scale="none", staleness=0),
}


def recipe(name: str) -> Recipe:
    """Return the recipe of that name.

    Raises
    ------
    InputError
        If there is none; the message names all there are.
    """
    check_choice("recipe", name, tuple(RECIPES))
    return RECIPES[name]
