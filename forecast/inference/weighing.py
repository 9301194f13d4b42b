"""How much the evaluations of one run speak for each curve family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from forecast.inference.observations import Observations
from forecast.inference.particle import INTERVALS, Particles, sample_run
from forecast.inference.run_prior import FAMILIES, RunPrior

SMOOTH = {"sigmoid": 0.55 / 0.9, "burr": 0.30 / 0.9, "power_law": 0.05 / 0.9}
"""Prior weights of the families without a second move. Burr carries a fast rise with a slow tail, which a sigmoid
alone would have to explain by a second rise."""

MOVES = {"rise": "second_rise", "collapse": "collapse"}
"""Kind of a second move -> curve family."""

LEAST_REPEATS, MOST_REPEATS = 3, 9
"""Independent fits behind a Bayes factor: more while its Monte-Carlo error matters."""

NEGLIGIBLE = 6.0
"""A smooth family this many nats behind is not sampled again."""


@dataclass(frozen=True)
class Weighed:
    """Posteriors of one run under several families.

    Attributes
    ----------
    particles : mapping of str to Particles
        By family; `SMOOTH` and those of `MOVES`.
    fitted_upto : float
        Largest compute of the evaluations.
    """

    particles: Mapping[str, Particles]
    fitted_upto: float

    @property
    def log_smooth(self) -> float:
        """Log marginal likelihood of the families without a second move, weighted by `SMOOTH`."""
        return float(
            logsumexp(
                [self.particles[name].log_evidence for name in SMOOTH],
                b=[SMOOTH[name] for name in SMOOTH],
            )
        )

    def log_bayes_factor(self, kind: str) -> float:
        """Of a second move of this kind against none, nats."""
        return self.particles[MOVES[kind]].log_evidence - self.log_smooth

    def log_bayes_factor_se(self, kind: str) -> float:
        """Monte-Carlo standard error of `log_bayes_factor`, nats."""
        share = {
            name: SMOOTH[name] * np.exp(self.particles[name].log_evidence - self.log_smooth)
            for name in SMOOTH
        }
        parts = [
            share[name] * _standard_error(self.particles[name])
            for name in SMOOTH
            if len(self.particles[name].log_evidences) > 1
        ]
        return float(np.sqrt(np.square([*parts, _standard_error(self.particles[MOVES[kind]])]).sum()))

    def undecided(self, kind: str, thresholds: Sequence[float]) -> bool:
        """Whether a log Bayes factor lies within two Monte-Carlo errors of a threshold."""
        error = 2 * self.log_bayes_factor_se(kind)
        return any(abs(self.log_bayes_factor(kind) - threshold) < error for threshold in thresholds)

    def behind(self, name: str) -> float:
        """How far the weighted evidence of a smooth family is behind that of the best, nats."""
        evidence = {one: np.log(SMOOTH[one]) + self.particles[one].log_evidence for one in SMOOTH}
        return float(max(evidence.values()) - evidence[name])

    def begun(self, kind: str) -> float:
        """Probability, given a move of this kind, that a tenth of it is made by the last evaluation."""
        draws, weights = flattened(self.particles[MOVES[kind]])
        tenth = np.log(draws["second_midpoint"]) - np.log(9.0) / draws["second_exponent"]
        return float(weights @ (tenth <= np.log(self.fitted_upto)))


def weigh(
    observations: Observations,
    j: int,
    prior: RunPrior,
    *,
    seed: Sequence[int],
    close: Sequence[float] = (),
    first: Mapping[str, Particles] | None = None,
) -> Weighed:
    """Sample run `j` under every family.

    Parameters
    ----------
    observations : Observations
    j : int
        Run.
    prior : RunPrior
        The same for all families, so that their evidence compares. It must not have seen the run.
    seed : sequence of int
    close : sequence of float
        Thresholds of a log Bayes factor: repeats are added, up to `MOST_REPEATS`, while one lies within two
        standard errors.
    first : mapping of str to Particles, optional
        First repeats that were made before, by `sample_once` with the same arguments.
    """
    found = {
        name: (first or {}).get(name) or sample_once(observations, j, prior, name, seed) for name in FAMILIES
    }
    for repeat in range(1, MOST_REPEATS):
        weighed = Weighed(found, float(observations.fitted_upto[j]))
        undecided = [kind for kind in MOVES if weighed.undecided(kind, close)]
        if repeat >= LEAST_REPEATS and not undecided:
            break
        again = [MOVES[kind] for kind in (MOVES if repeat < LEAST_REPEATS else undecided)]
        again += [name for name in SMOOTH if weighed.behind(name) < NEGLIGIBLE]
        for name in again:
            more = sample_once(observations, j, prior, name, seed, repeat)
            found[name] = _joined(found[name], more)
    return Weighed(found, float(observations.fitted_upto[j]))


def sample_once(
    observations: Observations, j: int, prior: RunPrior, family: str, seed: Sequence[int], repeat: int = 0
) -> Particles:
    """One repeat of `weigh` for one family."""
    return sample_run(observations, j, prior, family=family, seed=[*seed, repeat], effort=INTERVALS)


def flattened(particles: Particles) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """Draws of all repeats in one row and their weights: a repeat counts by the evidence that it found."""
    evidence = np.exp(particles.log_evidences - particles.log_evidences.max())
    size = next(iter(particles.draws.values())).shape[1]
    weights = np.repeat(evidence / evidence.sum() / size, size)
    return {name: draws.ravel() for name, draws in particles.draws.items()}, weights


def _standard_error(particles: Particles) -> float:
    """Of the log of the mean evidence over repeats (delta method); NaN for a single repeat."""
    repeats = len(particles.log_evidences)
    if repeats < 2:
        return float("nan")
    evidence = np.exp(particles.log_evidences - particles.log_evidences.max())
    return float(evidence.std(ddof=1) / evidence.mean() / np.sqrt(repeats))


def _joined(one: Particles, other: Particles) -> Particles:
    return Particles(
        family=one.family,
        draws={name: np.concatenate([draws, other.draws[name]]) for name, draws in one.draws.items()},
        log_evidences=np.concatenate([one.log_evidences, other.log_evidences]),
        steps=other.steps,
        walk_acceptance=min(one.walk_acceptance, other.walk_acceptance),
        leap_acceptance=min(one.leap_acceptance, other.leap_acceptance),
    )
