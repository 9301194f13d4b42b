"""The fitted curve in four numbers, and which of them the data have determined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit

from forecast.inference.priors import Normal, Priors, get_priors
from forecast.outlook.draws import CurveDraws
from forecast.outlook.fitted_curves import curve_draws, curve_names, incumbents
from forecast.outlook.identifiability import ceiling_shift, verdict
from forecast.outlook.reliability import WARNING_SEPARATOR, run_warnings

if TYPE_CHECKING:
    from forecast.fits import Fit

PARAMETERS = ("floor", "ceiling", "exponent", "midpoint")
_PRIOR_DRAWS = 4000


def parameters(fit: Fit, *, level: str = "run", force: bool = False) -> pd.DataFrame:
    """Summarise floor, ceiling, exponent and midpoint of every run or recipe.

    Returns
    -------
    pandas.DataFrame
        One row per name and parameter: ``level, name, parameter, unit, mean, sd, q05, q50, q95`` (the ceiling with
        the drift of one e-fold of compute beyond the data, see `CurveDraws.level_off`; floor and
        ceiling on the metric's scale, midpoint in compute), ``prior_sd``, ``sd_ratio`` (posterior sd / prior sd;
        exponent and midpoint compared as logs), ``fitted_over_midpoint`` (largest fitted compute / midpoint,
        median), and for ceilings ``prior_shift`` (how far the mean moves under the other prior on the ceiling;
        NaN when that cannot be told from these draws), ``verdict`` and ``least_squares``; ``warning``.

    Raises
    ------
    Withheld
        If the sampler's diagnostics failed and `force` is false.
    """
    if not force:
        fit.require_passed()
    metric = fit.runs.metric
    scale = metric.scale[1] - metric.scale[0]
    rows = []
    for name in curve_names(fit, level):
        curve = curve_draws(fit, level, name)
        apart = curve_draws(fit, level, name, independent=True)
        assert curve is not None
        prior = _prior_curve(fit, curve)
        incumbent = incumbents(fit, level, name)
        warning = WARNING_SEPARATOR.join(run_warnings(fit, level, name))
        for parameter in PARAMETERS:
            draws = getattr(curve, parameter)
            shown = curve.level_off if parameter == "ceiling" else draws
            on_scale = metric.from_fraction(shown) if parameter in ("floor", "ceiling") else shown
            row: dict[str, Any] = {
                "level": level,
                "name": name,
                "parameter": parameter,
                "unit": {"exponent": "", "midpoint": fit.runs.compute.unit}.get(parameter, metric.kind),
                "mean": on_scale.mean(),
                "sd": on_scale.std(),
                **{f"q{q:02d}": np.quantile(on_scale, q / 100) for q in (5, 50, 95)},
                "prior_sd": np.nan,
                "sd_ratio": np.nan,
                "fitted_over_midpoint": curve.fitted_upto / np.median(curve.midpoint),
                "prior_shift": np.nan,
                "verdict": "",
                "least_squares": np.nan,
                "warning": warning,
            }
            if incumbent is not None:
                value = getattr(incumbent, parameter)
                row["least_squares"] = (
                    metric.from_fraction(value) if parameter in ("floor", "ceiling") else value
                )
            if parameter != "floor":
                row["prior_sd"], row["sd_ratio"] = _contraction(parameter, draws, prior)
            if parameter == "ceiling":
                own_ratio = None if apart is None else _contraction("ceiling", apart.ceiling, prior)[1]
                shift = ceiling_shift(fit, level, name)
                row["prior_sd"] *= abs(scale)
                row["prior_shift"] = shift * scale
                row["verdict"] = verdict(shown, row["sd_ratio"], shift, own_ratio, scale)
            rows.append(row)
    return pd.DataFrame(rows)


def _contraction(parameter: str, draws: np.ndarray, prior: dict[str, np.ndarray]) -> tuple[float, float]:
    """Return (prior sd, posterior sd / prior sd), of logs except for the ceiling."""
    if parameter != "ceiling":
        draws = np.log(draws)
    prior_sd = float(prior[parameter].std())
    return prior_sd, float(draws.std()) / prior_sd


def _prior_curve(fit: Fit, curve: CurveDraws) -> dict[str, np.ndarray]:
    """Draws of a curve before it saw data: ceiling as a fraction (above the floors found), the rest as logs."""
    priors: Priors = get_priors(fit.settings.prior)
    rng = np.random.default_rng(fit.settings.seed)

    def spread(sd: Normal) -> np.ndarray:
        return sd.mean * np.exp(sd.sd * rng.standard_normal(_PRIOR_DRAWS)) * rng.standard_normal(_PRIOR_DRAWS)

    drawn = {}
    for name, pooled_as in (("gain", "ceiling"), ("log_exponent", "exponent"), ("log_midpoint", "midpoint")):
        centre: Normal = getattr(priors, name)
        value = (
            centre.mean
            + centre.sd * rng.standard_normal(_PRIOR_DRAWS)
            + spread(getattr(priors, f"{name}_within"))
        )
        if pooled_as in fit.pooled:
            value += spread(getattr(priors, f"{name}_between"))
        drawn[pooled_as] = value
    floor = rng.choice(curve.floor, _PRIOR_DRAWS)
    return drawn | {"ceiling": floor + (1 - floor) * expit(drawn["ceiling"])}
