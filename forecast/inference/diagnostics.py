"""Did the sampler do its work? Each question is a `Check`; not checked counts as not passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

RHAT, RHAT_NUISANCE = 1.01, 1.02
ESS, ESS_NUISANCE = 400, 300
EBFMI = 0.3

_MAIN = ("floor", "ceiling", "exponent", "midpoint")


@dataclass(frozen=True)
class Check:
    """One question about a fit.

    Attributes
    ----------
    name : str
    passed : bool or None
        None: could not be checked, which is not a pass.
    value, limit : float or None
    text : str
        The sentence shown to a person.
    """

    name: str
    passed: bool | None
    value: float | None
    limit: float | None
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def all_passed(checks: Sequence[Check]) -> bool:
    """Whether every check was made and passed."""
    return bool(checks) and all(check.passed is True for check in checks)


def failures(checks: Sequence[Check]) -> str:
    """One line naming what did not pass."""
    return "; ".join(check.text for check in checks if check.passed is not True)


def check_sampling(tree: xr.DataTree) -> list[Check]:
    """Check R-hat, effective sample size, divergences and energy of a posterior.

    Curves are held to R-hat <= 1.01 and ESS >= 400 (bulk and tail; limits of Vehtari et al. 2021,
    doi:10.1214/20-BA1221), spreads and noise, which only matter through the curves, to 1.02 and 300.
    """
    import arviz as az  # two seconds, which reading a saved fit need not wait for

    # Ranks would hide an infinite draw; as NaN it shows.
    posterior = tree["posterior"].dataset.where(np.isfinite)
    nuisance = [str(name) for name in posterior.data_vars if name not in _MAIN]
    checks = []
    for label, names, rhat_limit, ess_limit in (
        ("curves", list(_MAIN), RHAT, ESS),
        ("spreads and noise", nuisance, RHAT_NUISANCE, ESS_NUISANCE),
    ):
        group = xr.DataTree.from_dict({"posterior": posterior[names]})
        rhat, where = _extreme(az.rhat(group), max)
        checks.append(_check(f"R-hat, {label}", rhat, rhat_limit, where, below=True))
        tails = [_extreme(az.ess(group, method=method), min) for method in ("bulk", "tail")]
        ess, where = min(tails, key=lambda pair: np.nan_to_num(pair[0], nan=-1.0))
        checks.append(_check(f"ESS, {label}", ess, ess_limit, where, below=False))
    stats = tree["sample_stats"].dataset
    divergences = int(stats["diverging"].sum())
    checks.append(
        Check(
            "divergences",
            divergences == 0,
            divergences,
            0,
            f"{divergences} divergent transitions (none allowed)",
        )
    )
    energy = stats["energy"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        ebfmi = float(np.min(np.mean(np.diff(energy, axis=1) ** 2, axis=1) / np.var(energy, axis=1)))
    checks.append(_check("E-BFMI", ebfmi, EBFMI, "energy", below=False))
    return checks


def _extreme(dataset: Any, choose: Any) -> tuple[float, str]:
    """Worst value over all variables and where it is; NaN (a constant or NaN draw) is the worst of all."""
    if isinstance(dataset, xr.DataTree):
        dataset = dataset.dataset if dataset.has_data else dataset["posterior"].dataset
    worst = None
    for name, array in dataset.data_vars.items():
        for index in np.ndindex(array.shape):
            value = float(array.values[index])
            labels = [
                str(array[dim].values[i]) if dim in array.coords else str(i)
                for dim, i in zip(array.dims, index, strict=True)
            ]
            where = f"{name}[{', '.join(labels)}]" if labels else str(name)
            if np.isnan(value):
                return value, where
            if worst is None or choose(value, worst[0]) != worst[0]:
                worst = (value, where)
    return worst if worst is not None else (float("nan"), "nothing")


def _check(name: str, value: float, limit: float, where: str, *, below: bool) -> Check:
    if not np.isfinite(value):
        return Check(name, None, None, limit, f"{name} could not be computed for {where}")
    passed = value <= limit if below else value >= limit
    return Check(
        name,
        bool(passed),
        value,
        limit,
        f"{name} {value:.4g} at {where} ({'<=' if below else '>='} {limit:g})",
    )
