"""Sample, check, try once more with care; the caller decides what a failure means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import xarray as xr

from forecast.inference.diagnostics import Check, all_passed, check_sampling
from forecast.inference.hierarchical import EFFORT, ESCALATED, Effort, compile_model, sample
from forecast.inference.observations import Observations
from forecast.inference.particle import ParticleEffort
from forecast.inference.priors import Priors

Report = Callable[[str, int, int], None]
"""Called with (stage, draws done, draws in all); draws are 0 of 0 while a model is compiled."""


@dataclass(frozen=True)
class Sampled:
    """Draws, what the diagnostics say of them, and how hard the sampler had to work."""

    tree: xr.DataTree
    checks: list[Check]
    effort: Effort | ParticleEffort


def sample_checked(
    observations: Observations,
    priors: Priors,
    pooled: tuple[str, ...],
    *,
    seed: int,
    stage: str,
    report: Report,
    efforts: tuple[Effort, ...] = (EFFORT, ESCALATED),
) -> Sampled:
    """Sample with the first effort whose diagnostics all pass, else return the last one as it is."""
    report(f"compiling the model (runs: {len(observations.runs)})", 0, 0)
    compile_model(len(observations.runs), len(observations.recipes))
    for number, effort in enumerate(efforts):

        def progress(
            done: int, total: int, _: int, label: str = stage + ", again with more care" * (number > 0)
        ) -> None:
            report(label, done, total)

        tree = sample(
            observations,
            priors,
            pooled,
            seed=seed + number,
            effort=effort,
            progress=progress,
        )
        result = Sampled(tree, check_sampling(tree), effort)
        if all_passed(result.checks):
            break
    return result
