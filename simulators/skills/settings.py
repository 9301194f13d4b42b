"""What a skills world is made of and how it is trained: every knob, its unit and its limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral

from forecast.errors import InputError
from simulators.ranges import Range, check_choice, check_number, check_range

ADVANTAGES = ("reinforce", "unnormalised", "rloo", "grpo", "batch")
AGGREGATIONS = ("sum", "sequence", "token", "prompt")
CORRECTIONS = ("none", "importance", "ppo", "dapo", "cispo")
FILTERS = ("keep", "drop", "refill")
CREDITS = ("outcome", "process")
OPTIMISERS = ("sgd", "adam")
AGGREGATES = ("mean", "worst")
MOST_RATE = 1e9


@dataclass(frozen=True)
class Prompts:
    """The law that training and held-out prompts are drawn from.

    A prompt is a chain of steps. Step l of prompt i needs skill ``S_il`` and is passed with probability
    ``(1 - slip) sigmoid(theta[S_il] - d_il)``; a rollout solves the prompt if it passes all of its steps.

    Attributes
    ----------
    skills : int
        Skills K, skill k drawn with probability proportional to ``k ** -skill_decay``.
    skill_decay : float
        0: all skills equally frequent.
    skill_sd : float
        Sd of the skills' logits before training; their mean is 0.
    train, held_out : int
        Prompts of each kind.
    chain_mean : float
        Mean number of steps, ``1 + Poisson(chain_mean - 1)``.
    chain_longest : int
        Longer chains are cut to this.
    difficulty, difficulty_sd : float
        Mean and sd, over prompts, of what is subtracted from the skills' logits.
    step_sd : float
        Sd of the same over the steps of a prompt.
    slip : float
        Probability that a step fails for a reason that no training mends.
    unsolvable : float
        Share of prompts that no policy solves (no right reference, a missing tool).
    gap_share, gap : float
        Share of prompts whose difficulty is higher by `gap`: a spectrum with a hole.
    gate_share : float
        Share of prompts with one more step, that needs one of the gating skills.
    gates : int
        Gating skills, each for an equal part of these prompts.
    gate_rate : tuple of float
        Range (log-uniform) of the probability of passing a gate before training.
    pass_rates : tuple of float, optional
        Pass rates before training to resample prompts from, each in (0, 1]: prompts get the difficulty that gives
        them one of these (at most .99 of what slips leave). They take the place of `difficulty`,
        `difficulty_sd` and `gap`.
    """

    skills: int = 40
    skill_decay: float = 1.0
    skill_sd: float = 0.5
    train: int = 256
    held_out: int = 256
    chain_mean: float = 3.0
    chain_longest: int = 8
    difficulty: float = 0.5
    difficulty_sd: float = 1.0
    step_sd: float = 0.5
    slip: float = 0.03
    unsolvable: float = 0.0
    gap_share: float = 0.0
    gap: float = 8.0
    gate_share: float = 0.0
    gates: int = 1
    gate_rate: Range = (1e-3, 1e-3)
    pass_rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for what in ("skills", "train", "held_out", "chain_longest", "gates"):
            _whole(what, getattr(self, what), 1, 10**6)
        check_number("chain_mean", self.chain_mean, 1.0, 100.0)
        check_number("skill_decay", self.skill_decay, 0.0, 10.0)
        for what in ("skill_sd", "difficulty_sd", "step_sd"):
            check_number(what, getattr(self, what), 0.0, 20.0)
        check_number("difficulty", self.difficulty, -20.0, 20.0)
        check_number("gap", self.gap, 0.0, 40.0)
        check_number("slip", self.slip, 0.0, 0.99)
        for what in ("unsolvable", "gap_share", "gate_share"):
            check_number(what, getattr(self, what), 0.0, 1.0)
        check_range("gate_rate", self.gate_rate, 0.0, 0.99, positive=True)
        if self.gate_rate[1] >= 1 - self.slip:
            raise InputError("gate_rate must lie below 1 - slip", found=f"{self.gate_rate[1]:g}")
        if self.pass_rates is not None:
            if not self.pass_rates:
                raise InputError("pass_rates is empty", expected="pass rates above 0, or none")
            for rate in self.pass_rates:
                check_number("pass_rates", rate, 1e-12, 1.0)

    @property
    def steps(self) -> int:
        """Most steps that a prompt can have."""
        return self.chain_longest + (self.gate_share > 0)


@dataclass(frozen=True)
class Policy:
    """How the policy's parameters z make the logit of a step.

    ``theta = theta0 + W z - curvature / 2 |z|^2``; step l of training prompt i has logit
    ``theta[S_il] - d_il + features phi_i.z + m_i``, of a held-out prompt the same without ``m_i``.

    Attributes
    ----------
    rank : int, optional
        Size of z. Skills share it: W is drawn from N(0, 1 / rank), so that learning one moves all (interference).
        Default: every skill has its own parameter, ``W = I``.
    features : float
        Weight of each prompt's own direction phi_i ~ N(0, 1 / size of z): what is learned on it alone, does not
        transfer, and disturbs all other prompts.
    curvature : float
        Price of moving far from the start, by which noise, large steps and stale rollouts do harm.
    memory : float
        SGD learning rate of the offsets m_i: what is memorised of a prompt when it comes again.
    """

    rank: int | None = None
    features: float = 0.0
    curvature: float = 0.0
    memory: float = 0.0

    def __post_init__(self) -> None:
        if self.rank is not None:
            _whole("rank", self.rank, 1, 10**5)
        for what in ("features", "curvature", "memory"):
            check_number(what, getattr(self, what), 0.0, 1e6)


@dataclass(frozen=True)
class Context:
    """Tokens that a rollout takes and may take.

    Attributes
    ----------
    limit : float
        Most tokens of one rollout; one that reaches it is truncated and earns no reward.
    tokens_per_step : float
        Median tokens of a step.
    length_sd : float
        Sd, over rollouts, of the logarithm of their verbosity (log-normal, median 1).
    prompt_tokens : float
        Tokens of a prompt.
    """

    limit: float = math.inf
    tokens_per_step: float = 300.0
    length_sd: float = 0.3
    prompt_tokens: float = 200.0

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise InputError("context limit must be above 0", found=f"{self.limit:g}", expected="tokens")
        check_number("tokens_per_step", self.tokens_per_step, 1e-6, 1e9)
        check_number("length_sd", self.length_sd, 0.0, 5.0)
        check_number("prompt_tokens", self.prompt_tokens, 0.0, 1e9)


@dataclass(frozen=True)
class RewardModel:
    """A learned reward model as verifier: scores with errors, which a policy can find.

    Member m scores an answer ``mu + noise``, noise N(0, 1) per member and answer; ``mu`` is ``separation / 2``
    for a right answer, minus that for a wrong one, and ``b_jm - separation / 2`` for exploit j, whose error
    ``b_jm ~ N(0, error_sd^2)`` is correlated by `shared` between members. An answer is accepted if the ensemble's
    score is above 0.

    Attributes
    ----------
    members : int
    aggregate : {"mean", "worst"}
        Of the members' scores (Coste et al. 2023, arXiv 2310.02743).
    separation : float
        Of right from wrong, in sds of the noise.
    error_sd : float
        In the same unit.
    shared : float
        0-1.
    """

    members: int = 1
    aggregate: str = "mean"
    separation: float = 3.0
    error_sd: float = 2.5
    shared: float = 0.3

    def __post_init__(self) -> None:
        _whole("members", self.members, 1, 1_000)
        check_choice("aggregate", self.aggregate, AGGREGATES)
        check_number("separation", self.separation, 0.0, 50.0)
        check_number("error_sd", self.error_sd, 0.0, 50.0)
        check_number("shared", self.shared, 0.0, 1.0)


@dataclass(frozen=True)
class Verifier:
    """What is rewarded, right or wrong.

    Attributes
    ----------
    true_positive, false_positive : float
        Probability that a right, a wrong answer is accepted; their difference is Youden's J.
    wrong_reference : float
        Share of training prompts with a wrong reference: right answers are never accepted.
    wrong_reference_accepts : float
        Probability that a wrong answer is accepted there.
    exploits : int
        Actions that a rollout can take in place of solving the prompt; never right.
    exploit_logit : float
        Logit of each against an honest attempt, before training.
    exploit_sd : float
        Sd of that over prompts.
    exploit_accepted : float
        Probability that an exploit is accepted.
    reward_model : RewardModel, optional
        In place of `true_positive`, `false_positive` and `exploit_accepted`.
    """

    true_positive: float = 1.0
    false_positive: float = 0.0
    wrong_reference: float = 0.0
    wrong_reference_accepts: float = 0.0
    exploits: int = 0
    exploit_logit: float = -6.5
    exploit_sd: float = 0.0
    exploit_accepted: float = 1.0
    reward_model: RewardModel | None = None

    def __post_init__(self) -> None:
        for what in (
            "true_positive",
            "false_positive",
            "wrong_reference",
            "wrong_reference_accepts",
            "exploit_accepted",
        ):
            check_number(what, getattr(self, what), 0.0, 1.0)
        _whole("exploits", self.exploits, 0, 1_000)
        check_number("exploit_logit", self.exploit_logit, -50.0, 50.0)
        check_number("exploit_sd", self.exploit_sd, 0.0, 20.0)


@dataclass(frozen=True)
class Recipe:
    """How the policy is trained.

    Attributes
    ----------
    steps : int
        Updates.
    prompts, rollouts : int
        Prompts P per batch and rollouts G per prompt.
    advantage : str
        Of reward r in its group: ``reinforce`` r; ``unnormalised`` r - group mean (Dr. GRPO); ``rloo`` r - mean of
        the others; ``grpo`` (r - group mean) / group sd; ``batch`` (r - group mean) / sd of that over the batch.
    credit : {"outcome", "process"}
        One reward for the whole rollout, or one per step (passed or not), compared among the rollouts that
        reached the step.
    aggregation : str
        What is averaged: ``sum`` over the steps of each rollout; ``sequence`` mean over its steps; ``prompt`` mean
        over all steps of a group; ``token`` over all steps of the batch.
    staleness : int
        Updates by which the policy that made the rollouts lags behind.
    correction : str
        Of the stale gradient by the ratio of new to old probability, step by step: ``none``, ``importance``
        (ratio), ``ppo`` and ``dapo`` (no gradient once the ratio has left 1 - .2 to 1 + .2 or 1 + .28 in the
        direction of the advantage), ``cispo`` (ratio capped at `ratio_cap`, constant in the gradient).
    ratio_cap : float
    filter : {"keep", "drop", "refill"}
        Groups of which all or no rollouts are accepted: count as zeros; are left out of the mean; are replaced by
        new prompts until the batch is full (at most `refills` batches), which costs rollouts (DAPO).
    refills : int
    retire_above : float, optional
        Prompts accepted at this rate or more at their last visit are not drawn again (ScaleRL's
        no-positive-resampling, .9). If all are, all come back.
    kl : float
        Weight of the KL divergence to the start, per step.
    optimiser : {"sgd", "adam"}
        Adam with decay .9, .95.
    learning_rate : float
    exploit_rate : float, optional
        SGD learning rate of the exploits' logits. Default: `learning_rate`, and its optimiser.
    """

    steps: int = 2_000
    prompts: int = 64
    rollouts: int = 8
    advantage: str = "grpo"
    credit: str = "outcome"
    aggregation: str = "sum"
    staleness: int = 0
    correction: str = "none"
    ratio_cap: float = 5.0
    filter: str = "keep"
    refills: int = 10
    retire_above: float | None = None
    kl: float = 0.0
    optimiser: str = "sgd"
    learning_rate: float = 0.5
    exploit_rate: float | None = None

    def __post_init__(self) -> None:
        _whole("steps", self.steps, 1, 10**7)
        _whole("prompts", self.prompts, 1, 10**6)
        _whole("rollouts", self.rollouts, 1, 10**6)
        _whole("staleness", self.staleness, 0, 10**4)
        _whole("refills", self.refills, 1, 1_000)
        check_choice("advantage", self.advantage, ADVANTAGES)
        check_choice("credit", self.credit, CREDITS)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_choice("correction", self.correction, CORRECTIONS)
        check_choice("filter", self.filter, FILTERS)
        check_choice("optimiser", self.optimiser, OPTIMISERS)
        check_number("ratio_cap", self.ratio_cap, 1.0, 1e6)
        check_number("kl", self.kl, 0.0, 1e6)
        check_number("learning_rate", self.learning_rate, 0.0, MOST_RATE)
        if self.exploit_rate is not None:
            check_number("exploit_rate", self.exploit_rate, 0.0, MOST_RATE)
        if self.retire_above is not None:
            check_number("retire_above", self.retire_above, 0.0, 1.0)
        if self.rollouts == 1 and self.advantage != "reinforce":
            raise InputError(
                "one rollout per prompt has no group to be compared with",
                found=f"rollouts 1, advantage {self.advantage}",
                fix="two rollouts or more, or advantage reinforce",
            )


@dataclass(frozen=True)
class Costs:
    """What generation and training cost.

    Attributes
    ----------
    parameters : float
        Of the language model that the policy stands for: 2 FLOPs per parameter and token generated or read, 6 per
        token trained on (Kaplan et al. 2020, arXiv 2001.08361).
    flops_per_second : float
        Peak of one GPU; the default is an H100's in bfloat16.
    generation_utilisation, training_utilisation : float
        Shares of the peak that are reached.
    """

    parameters: float = 8e9
    flops_per_second: float = 989e12
    generation_utilisation: float = 0.10
    training_utilisation: float = 0.40

    def __post_init__(self) -> None:
        check_number("parameters", self.parameters, 1.0, 1e15)
        check_number("flops_per_second", self.flops_per_second, 1.0, 1e20)
        for what in ("generation_utilisation", "training_utilisation"):
            check_number(what, getattr(self, what), 1e-6, 1.0)


@dataclass(frozen=True)
class Settings:
    """Everything about a world and its training."""

    prompts: Prompts = field(default_factory=Prompts)
    policy: Policy = field(default_factory=Policy)
    context: Context = field(default_factory=Context)
    verifier: Verifier = field(default_factory=Verifier)
    recipe: Recipe = field(default_factory=Recipe)
    costs: Costs = field(default_factory=Costs)


def _whole(what: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= value <= high:
        raise InputError(
            f"{what} is out of range", found=value, expected=f"a whole number, {low} to {high:,}"
        )
