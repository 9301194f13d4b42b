"""Priors, in one place.

All priors are unit-free: ceilings are gains above the floor on a logit scale, midpoints are relative to the
largest fitted compute.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from forecast.errors import InputError


@dataclass(frozen=True)
class Normal:
    """Mean and standard deviation."""

    mean: float
    sd: float


@dataclass(frozen=True)
class Priors:
    """Priors of the curve families.

    A curve is described by its gain (``ceiling = floor + (1 - floor) * sigmoid(gain)``), log exponent and
    relative log midpoint. ``*_between`` are log-normal (median, log sd) spreads of recipes in one experiment,
    ``*_within`` spreads of runs (seeds) in one recipe; both avoid zero, which keeps the sampler out of funnels.
    """

    name: str
    gain: Normal
    log_exponent: Normal = Normal(0.615, 0.35)  # exponent 1.85, 90 % interval 1.04-3.29
    log_midpoint: Normal = Normal(-0.7, 1.3)
    gain_between: Normal = Normal(0.4, 0.6)
    log_exponent_between: Normal = Normal(0.2, 0.5)
    log_midpoint_between: Normal = Normal(0.6, 0.6)
    gain_within: Normal = Normal(0.08, 0.5)
    log_exponent_within: Normal = Normal(0.08, 0.5)
    log_midpoint_within: Normal = Normal(0.10, 0.5)
    latent_floor: Normal = Normal(-0.5, 1.0)  # logit of floor / ceiling where no step-0 evaluation exists
    latent_floor_within: float = 0.1  # runs of one group, in units of latent_floor.sd
    noise_common: float = 2 / 3  # share of the log noise's prior variance that all runs have in common
    noise_persistence: Normal = Normal(0.0, 1.2)  # logit of the residual correlation one evaluation apart
    power_law_log_exponent: Normal = Normal(0.0, 0.6)
    log_tail: Normal = Normal(0.0, 0.5)  # Burr's nu; 1 is the sigmoid
    move_size: Normal = Normal(
        0.0, 1.5
    )  # logit of a second rise's share of the headroom, of a fall's share of the ceiling
    log_second_exponent: Normal = Normal(1.386, 0.8)  # steepness 4
    log_second_midpoint: tuple[float, float] = (
        -1.386,
        1.386,
    )  # log-uniform, a quarter to four times the data

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


NARROW_GAIN_SD = 0.7

PRIORS = {
    "wide": Priors("wide", gain=Normal(0.0, 1.3)),
    "llm-rl": Priors("llm-rl", gain=Normal(0.0, NARROW_GAIN_SD)),
}
"""``wide`` is the default; ``llm-rl`` expects ceilings of about .5-.75 and misleads elsewhere while data are few."""

POOLED_PARAMETERS = ("ceiling", "exponent", "midpoint")


def get_priors(name: str) -> Priors:
    """Return a named preset.

    Raises
    ------
    InputError
        If there is no such preset.
    """
    if name not in PRIORS:
        raise InputError("unknown prior", found=repr(name), expected=" | ".join(PRIORS))
    return PRIORS[name]


def pooled_parameters(pool: str, recipes: int) -> tuple[str, ...]:
    """Parameters that recipes teach each other.

    Parameters
    ----------
    pool : {"auto", "none", "all"} or comma-separated names of `POOLED_PARAMETERS`
        ``auto`` pools everything with five recipes or more, ceiling and exponent with two to four.
    recipes : int

    Raises
    ------
    InputError
        If `pool` names something else.
    """
    if pool == "auto":
        return () if recipes < 2 else POOLED_PARAMETERS if recipes >= 5 else POOLED_PARAMETERS[:2]
    if pool == "none":
        return ()
    if pool == "all":
        return POOLED_PARAMETERS
    names = tuple(part.strip() for part in pool.split(","))
    if not set(names) <= set(POOLED_PARAMETERS):
        raise InputError(
            "unknown --pool", found=repr(pool), expected="auto | none | all | " + ",".join(POOLED_PARAMETERS)
        )
    return tuple(name for name in POOLED_PARAMETERS if name in names)


def noise_prior(trials: float) -> tuple[float, float]:
    """Median and log sd of the noise beyond the binomial, by Bernoulli trials per evaluation."""
    return (0.007, 0.6) if 10_000 <= trials < float("inf") else (0.012, 1.0)


DRIFT_MEAN = 1 / 3
"""Mean of the drift, in sds. Prompts differ in difficulty, so the top of a real curve is a sum of sigmoids, which
levels off more slowly than the one sigmoid that fits its rise."""


def drift_sd(trials: float) -> float:
    """Sd of slow drift per e-fold of compute beyond the data: real curves creep after the sigmoid levels off."""
    return 0.01 if 10_000 <= trials < float("inf") else 0.03
