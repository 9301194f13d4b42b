"""The fast posterior of one run: sequential Monte Carlo with an exact likelihood.

One run by itself, any of five curve families, in some hundredths of a second; the draws come with the log marginal
likelihood that weighs families against each other. Several repeats are independent: they tell how far a number
would move if the fit were made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecast.inference.observations import Observations
from forecast.inference.run_prior import FAMILIES, MIDPOINT, RunPrior, names

SAMPLER = "sequential Monte Carlo"


@dataclass(frozen=True)
class ParticleEffort:
    """How long and how carefully to sample.

    Attributes
    ----------
    repeats : int
        Independent fits.
    particles : int
        Draws of each.
    moves : int
        Moves of every particle after every step.
    keep : float
        Share of particles that stays effective from one step to the next.
    """

    repeats: int
    particles: int
    moves: int
    keep: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the sampler's name."""
        return {"sampler": SAMPLER} | asdict(self)


INTERVALS = ParticleEffort(repeats=1, particles=800, moves=4, keep=0.5)
"""Good enough for the intervals of a backtest."""

ACCURATE = ParticleEffort(repeats=4, particles=1500, moves=8, keep=0.7)
"""For a fit that is kept, and for weighing families."""

CAREFUL = ParticleEffort(repeats=4, particles=4000, moves=16, keep=0.8)
"""Second try where repeats of `ACCURATE` disagree."""


@dataclass(frozen=True)
class Particles:
    """Posterior draws of one run.

    Attributes
    ----------
    family : str
    draws : dict of ndarray, shape (repeats, particles)
        ``floor``, ``ceiling``, ``exponent``, ``midpoint`` (compute), ``noise``, ``persistence``, ``gain`` (logit) and what the
        family adds: ``tail``; ``rise`` or ``drop``, ``second_exponent``, ``second_midpoint`` (compute).
    log_evidences : ndarray, shape (repeats,)
        Log marginal likelihood found by each repeat.
    steps : int
        From the prior to the posterior, of the last repeat.
    walk_acceptance, leap_acceptance : float
        Of random-walk and independence moves at the end, worst repeat.
    """

    family: str
    draws: dict[str, NDArray[np.float64]]
    log_evidences: NDArray[np.float64]
    steps: int
    walk_acceptance: float
    leap_acceptance: float

    @property
    def log_evidence(self) -> float:
        """Log of the mean marginal likelihood over repeats (each is unbiased)."""
        top = self.log_evidences.max()
        return float(top + np.log(np.mean(np.exp(self.log_evidences - top))))

    @property
    def log_evidence_sd(self) -> float:
        """Sd of one repeat's log marginal likelihood; NaN for a single repeat."""
        return float(np.std(self.log_evidences, ddof=1)) if len(self.log_evidences) > 1 else float("nan")


def sample_run(
    observations: Observations,
    j: int,
    prior: RunPrior,
    *,
    family: str = "sigmoid",
    seed: int | Sequence[int],
    effort: ParticleEffort = INTERVALS,
) -> Particles:
    """Draw from the posterior of run `j` by itself.

    Parameters
    ----------
    observations : Observations
    j : int
        Run.
    prior : RunPrior
        Midpoints relative to the run's largest fitted compute.
    family : {"sigmoid", "burr", "power_law", "second_rise", "collapse"}
    seed : int or sequence of int
        Same seed, same draws.
    effort : ParticleEffort

    Returns
    -------
    Particles

    Raises
    ------
    InputError
        If the family is unknown.
    """
    from forecast.inference.kernel import anneal  # numba, which reading a saved fit need not wait for

    own = observations.only(j)
    rows = prior.rows(family)
    known = bool(own.floor_known[0])
    late = own.fraction[len(own.fraction) // 2 :].mean()
    # Only places the coordinates that particles move in; the posterior does not depend on it.
    level = np.clip(late, min(own.floor[0], 0.97) + 0.02 if known else 0.02, 0.99)
    start = np.array([float(known), own.floor[0], own.floor_se[0], own.chance, level])
    found = [
        anneal(
            np.random.default_rng(sequence),
            FAMILIES.index(family),
            rows,
            start,
            own.log_compute,
            own.fraction,
            own.inverse_trials,
            own.distance,
            effort.particles,
            effort.moves,
            effort.keep,
        )
        for sequence in np.random.SeedSequence(seed).spawn(effort.repeats)
    ]
    parameters = np.stack([one[0] for one in found])
    reference = float(own.log_reference[0])
    draws = {name: parameters[:, :, i] for i, name in enumerate([*names(family), "gain"])}
    draws["midpoint"] = np.exp(parameters[:, :, MIDPOINT] + reference)
    if "second_midpoint" in draws:
        draws["second_midpoint"] = np.exp(draws["second_midpoint"] + reference)
    if "drop" in draws:
        draws["drop"] = -draws["drop"]
    return Particles(
        family=family,
        draws=draws,
        log_evidences=np.array([one[1] for one in found]),
        steps=found[-1][2],
        walk_acceptance=min(one[3] for one in found),
        leap_acceptance=min(one[4] for one in found),
    )
