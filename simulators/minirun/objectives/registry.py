"""The loss of a recipe: the objective's own, and the divergence from the warm start where it is weighed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Loss, Scored
from simulators.minirun.objectives.cispo import cispo
from simulators.minirun.objectives.clipped import clipped
from simulators.minirun.objectives.expert_iteration import expert_iteration
from simulators.minirun.objectives.gspo import gspo
from simulators.minirun.objectives.kl import divergence
from simulators.minirun.objectives.online_dpo import online_dpo
from simulators.minirun.objectives.reinforce import importance, reinforce
from simulators.minirun.objectives.tokens import log_ratio, reference
from simulators.minirun.objectives.topr import topr
from simulators.minirun.settings import Recipe

# Each returns its loss, tensor [], and which tokens' gradient it cut or ratio it capped, bool tensor [P, G, L].
Family = Callable[[Scored, Recipe, int], tuple[Tensor, Tensor]]

FAMILIES: dict[str, Family] = {
    "reinforce": reinforce,
    "importance": importance,
    "clipped": clipped,
    "cispo": cispo,
    "gspo": gspo,
    "topr": topr,
    "expert_iteration": expert_iteration,
    "online_dpo": online_dpo,
}


def needs_reference(recipe: Recipe) -> bool:
    """Whether batches need log-probabilities under the warm start."""
    return recipe.kl > 0 or recipe.objective == "online_dpo"


def loss(batch: Scored, recipe: Recipe, longest: int) -> Loss:
    """Loss of a batch, to be minimised.

    Parameters
    ----------
    batch : Scored
    recipe : Recipe
        Its objective, aggregation, clips, cap, `beta` and `kl`.
    longest : int
        Tokens that a rollout may have.

    Returns
    -------
    Loss
        Figures are over the tokens of kept groups: ``ratio_mean`` and ``ratio_max`` of trained to sampling policy (1 and
        1 on-policy), ``clipped``: share of them whose gradient was cut or ratio capped; ``kl``: the aggregated
        divergence, where it is weighed. Where nothing is kept the loss and the figures are zero.
    """
    value, cut = FAMILIES[recipe.objective](batch, recipe, longest)
    figures = _ratios(batch, cut)
    if recipe.kl > 0:
        terms = divergence(batch.logp, reference(batch), batch.mask)
        kl = aggregate(terms, batch.mask, batch.kept, recipe.aggregation, longest)
        value = value + recipe.kl * kl
        figures["kl"] = float(kl.detach())
    return Loss(value, figures)


def _ratios(batch: Scored, cut: Tensor) -> dict[str, float]:
    counted = batch.mask & batch.kept[:, None, None]
    ratio = torch.where(counted, log_ratio(batch).detach().exp(), 0.0)
    number = counted.sum().clamp(min=1)
    figures = (ratio.sum() / number, ratio.max(), (cut & counted).sum() / number)
    # Stacked, so that a GPU is waited for once.
    mean, largest, share = torch.stack(figures).tolist()
    return {"ratio_mean": mean, "ratio_max": largest, "clipped": share}
