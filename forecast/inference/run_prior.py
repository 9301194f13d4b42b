"""Prior of one run by itself, for the particle engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.inference.observations import Observations
from forecast.inference.priors import Normal, Priors

SIGMOID, BURR, POWER_LAW, SECOND_RISE, COLLAPSE = range(5)
FAMILIES = ("sigmoid", "burr", "power_law", "second_rise", "collapse")

# Rows of the prior and of a particle; what a family adds comes after the six that all have.
FLOOR, GAIN, EXPONENT, MIDPOINT, NOISE, PERSISTENCE = range(6)
TAIL = 6
SIZE, SECOND_EXPONENT, SECOND_MIDPOINT = 6, 7, 8


def names(family: str) -> list[str]:
    """Return the parameters of a family and of its noise, in the order of a particle."""
    added = {"burr": ["tail"], "second_rise": ["rise"], "collapse": ["drop"]}.get(family, [])
    added += ["second_exponent", "second_midpoint"] * (family in ("second_rise", "collapse"))
    return ["floor", "ceiling", "exponent", "midpoint", "noise", "persistence", *added]


@dataclass(frozen=True)
class RunPrior:
    """What is believed of a run before its evaluations, on the scales of `Priors`.

    Attributes
    ----------
    floor : Normal
        Logit of the floor's share of the way from chance to the ceiling; used where the floor is latent.
    gain, log_exponent, log_midpoint : Normal
        The curve; the midpoint relative to the observations' reference compute.
    log_noise : Normal
        Log sd of the noise beyond the binomial.
    persistence : Normal
        Logit of the noise's correlation one evaluation apart.
    power_law_log_exponent, log_tail, move_size, log_second_exponent : Normal
    log_second_midpoint : tuple of float
        Of the other families, as in `Priors`.
    """

    floor: Normal
    gain: Normal
    log_exponent: Normal
    log_midpoint: Normal
    log_noise: Normal
    persistence: Normal
    power_law_log_exponent: Normal
    log_tail: Normal
    move_size: Normal
    log_second_exponent: Normal
    log_second_midpoint: tuple[float, float]

    def rows(self, family: str) -> NDArray[np.float64]:
        """Mean and sd of each parameter of a family, shape (d, 2).

        Raises
        ------
        InputError
            If the family is unknown.
        """
        if family not in FAMILIES:
            raise InputError("unknown curve family", found=repr(family), expected=" | ".join(FAMILIES))
        exponent = self.power_law_log_exponent if family == "power_law" else self.log_exponent
        rows = [self.floor, self.gain, exponent, self.log_midpoint, self.log_noise, self.persistence]
        if family == "burr":
            rows.append(self.log_tail)
        pairs = [(row.mean, row.sd) for row in rows]
        if family in ("second_rise", "collapse"):
            pairs += [(row.mean, row.sd) for row in (self.move_size, self.log_second_exponent)]
            pairs.append(self.log_second_midpoint)
        return np.array(pairs, dtype=float)


def run_prior(priors: Priors, observations: Observations, j: int) -> RunPrior:
    """Prior of run `j` when its recipe has no other run: the recipe's prior widened by the spread of seeds."""
    return RunPrior(
        floor=_widened(priors.latent_floor, priors.latent_floor.sd * priors.latent_floor_within),
        gain=run_gain(priors),
        log_exponent=_widened(priors.log_exponent, _rms(priors.log_exponent_within)),
        log_midpoint=_widened(priors.log_midpoint, _rms(priors.log_midpoint_within)),
        log_noise=Normal(float(np.log(observations.noise_median[j])), float(observations.noise_log_sd[j])),
        persistence=priors.noise_persistence,
        power_law_log_exponent=priors.power_law_log_exponent,
        log_tail=priors.log_tail,
        move_size=priors.move_size,
        log_second_exponent=priors.log_second_exponent,
        log_second_midpoint=priors.log_second_midpoint,
    )


def informed(priors: Priors, own: RunPrior, learned: Mapping[str, Normal]) -> RunPrior:
    """`own` with what other recipes say of a recipe (by name of the parameter), widened by the spread of seeds."""
    seen: dict[str, Any] = {
        name: _widened(value, _rms(getattr(priors, f"{name}_within"))) for name, value in learned.items()
    }
    return replace(own, **seen)


def run_gain(priors: Priors) -> Normal:
    """Prior of one run's gain: its recipe's, and the difference of a seed."""
    return _widened(priors.gain, _rms(priors.gain_within))


def _widened(normal: Normal, sd: float) -> Normal:
    return Normal(normal.mean, float(np.hypot(normal.sd, sd)))


def _rms(spread: Normal) -> float:
    """Root mean square of a log-normal spread given as (median, log sd)."""
    return spread.mean * float(np.exp(spread.sd**2))
