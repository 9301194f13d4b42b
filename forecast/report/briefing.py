"""Everything that the page says beside the forecast itself, worked out from a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.outlook.backtest import Backtest, backtest
from forecast.outlook.budget import Decision, budget
from forecast.outlook.comparison import compare
from forecast.outlook.domain import outside_map
from forecast.outlook.hazard import Hazard
from forecast.outlook.options import make_options
from forecast.outlook.prices import Prices
from forecast.outlook.reward import (
    OverOptimisation,
    Verifier,
    corrected_draws,
    honesty,
    over_optimisation,
    reward_gap,
)
from forecast.outlook.transitions import transitions

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.inference.sampling import Report

CORRECTED = ("pass_rate", "accuracy", "error_rate")
"""Kinds of metric that a verifier's error rates correct."""

HALF = 0.5
"""Of each run, to which the last forecast is made again."""


@dataclass(frozen=True)
class Briefing:
    """What a budget meeting needs beside the forecast; every part is a table or sentences.

    Attributes
    ----------
    decision : Decision
        Without transitions.
    pairs : pandas.DataFrame
        Of `compare`, recipes where they have curves, else runs; empty where there is one curve.
    outside : list of str
        Of `outside_map`.
    averaged : Decision or None
        The same budgets with transitions averaged; None where that was not asked for.
    flags : pandas.DataFrame or None
        Of `transitions`.
    scores : Backtest or None
        The forecast made again at half of every run.
    unscored : str
        Why there are none.
    honesty : mapping of str to list of str
        Run -> what proxy and held-out value say of each other.
    gaps : mapping of str to pandas.DataFrame
        Run -> `reward_gap`, where a proxy was logged.
    optimisation : mapping of str to OverOptimisation
        Run -> over-optimisation law, where the KL was logged.
    corrected : pandas.DataFrame or None
        ``budget, option, q05, q50, q95``: true value behind what a verifier with measured error rates sees, on the
        metric's scale.
    verifier : Verifier or None
    """

    decision: Decision
    pairs: pd.DataFrame
    outside: list[str]
    averaged: Decision | None = None
    flags: pd.DataFrame | None = None
    scores: Backtest | None = None
    unscored: str = ""
    honesty: Mapping[str, list[str]] = field(default_factory=dict)
    gaps: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    optimisation: Mapping[str, OverOptimisation] = field(default_factory=dict)
    corrected: pd.DataFrame | None = None
    verifier: Verifier | None = None

    @property
    def price(self) -> float | None:
        """Money per unit of compute, where it is one for all options."""
        bought = self.decision.options.query("extra > 0")
        prices = (bought["cost"] / bought["extra"]).dropna()
        return float(prices.iloc[0]) if len(prices) and np.allclose(prices, prices.iloc[0]) else None

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by the name of its file."""
        found = {
            "options": self.decision.options,
            "choices": self.decision.choices,
            "targets": self.decision.targets,
            "experiments": self.decision.experiments,
            "pairs": self.pairs,
            "flags": self.flags,
            "options_averaged": None if self.averaged is None else self.averaged.options,
            "choices_averaged": None if self.averaged is None else self.averaged.choices,
            "targets_averaged": None if self.averaged is None else self.averaged.targets,
            "backtest": None if self.scores is None else self.scores.summary("cut"),
            "corrected": self.corrected,
            "reward_gap": pd.concat([gap.assign(run=run) for run, gap in self.gaps.items()])
            if self.gaps
            else None,
            "over_optimisation": pd.DataFrame(
                [{"run": run} | _columns(law) for run, law in self.optimisation.items()]
            ),
        }
        return {name: table for name, table in found.items() if table is not None and len(table)}


def _columns(law: OverOptimisation) -> dict[str, object]:
    """One row of a table: intervals as two columns."""
    row: dict[str, object] = {}
    for name, value in asdict(law).items():
        if isinstance(value, tuple):
            name = name.removesuffix("_interval")
            row |= {f"{name}_q05": value[0], f"{name}_q95": value[1]}
        else:
            row[name] = value
    return row


def brief(
    fit: Fit,
    at: Sequence[float] | None = None,
    *,
    spend: Sequence[float] | None = None,
    money: Sequence[float] | None = None,
    target: float | None = None,
    price: Prices | float | None = None,
    worth: float | None = None,
    domain: Mapping[str, str] | None = None,
    hazard: Hazard | None = None,
    verifier: Verifier | None = None,
    quick: bool = False,
    force: bool = False,
    report: Report | None = None,
) -> Briefing:
    """Work out what the page says.

    Parameters
    ----------
    fit : Fit
    at, spend, money, target, price, worth
        As in `budget`.
    domain : mapping of str to str, optional
        What is planned to change, see `outside_map`.
    hazard : Hazard, optional
        For flags and averaged transitions.
    verifier : Verifier, optional
        Measured error rates of the verifier behind the evaluations.
    quick : bool
        Leave out what takes long: transitions (some seconds per run) and the backtest. Takes no hazard.
    force : bool
        Work although diagnostics failed.
    report : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    Briefing
    """
    kind = fit.runs.metric.kind
    if verifier is not None and kind not in CORRECTED:
        raise InputError(
            "a verifier's error rates correct rates of right answers",
            found=f"kind {kind}",
            expected=" | ".join(CORRECTED),
        )
    if quick and hazard is not None:
        raise InputError("a hazard has no effect with --quick", fix="leave out one of them")
    asked = {"spend": spend, "money": money, "target": target, "price": price, "worth": worth}
    decision = budget(fit, at, **asked, force=force)  # type: ignore[arg-type]
    parts: dict[str, object] = {}
    if not quick:
        expected = Hazard.given(hazard)
        parts["flags"] = transitions(fit, hazard=expected, report=report)
        parts["averaged"] = budget(
            fit,
            at,
            **asked,  # type: ignore[arg-type]
            transitions="averaged",
            hazard=expected,
            experiments=False,
            force=force,
        )
        parts["scores"], parts["unscored"] = _scores(fit, report)
    # Also runs that carry no forecast: what collapsed may have been hacked.
    seen = fit.runs.window(fit.settings.start, fit.settings.upto)
    gaps = {run: reward_gap(seen, run) for run in seen.names}
    seed = fit.settings.seed
    laws = {run: over_optimisation(seen, run, np.random.default_rng(seed)) for run in seen.names}
    return Briefing(
        decision=decision,
        pairs=_pairs(fit, force),
        outside=outside_map(fit, domain, decision.furthest()[-1]),
        honesty={run: honesty(seen, run, seed) for run in seen.names},
        gaps={run: gap for run, gap in gaps.items() if gap is not None},
        optimisation={run: law for run, law in laws.items() if law is not None},
        corrected=None if verifier is None else _corrected(fit, decision, verifier),
        verifier=verifier,
        **parts,  # type: ignore[arg-type]
    )


def _pairs(fit: Fit, force: bool) -> pd.DataFrame:
    level = "recipe" if "recipe_gain" in fit.draws else "run"
    names = fit.observations.recipes if level == "recipe" else fit.observations.runs
    return compare(fit, level=level, force=force) if len(names) > 1 else pd.DataFrame()


def _scores(fit: Fit, report: Report | None) -> tuple[Backtest | None, str]:
    settings = fit.settings
    try:
        scores = backtest(
            fit.runs.window(settings.start, settings.upto),
            fractions=[HALF],
            prior=settings.prior,
            floor=settings.floor,
            seed=settings.seed,
            report=report,
        )
    except InputError as error:
        return None, str(error)
    if scores.forecasts.empty:
        return None, "; ".join(dict.fromkeys(scores.skipped["reason"]))
    return scores, ""


def _corrected(fit: Fit, decision: Decision, verifier: Verifier) -> pd.DataFrame:
    rng = np.random.default_rng([fit.settings.seed, 11])
    rows = []
    for option in make_options(fit, Prices()):
        for _, row in decision.options[decision.options["option"] == option.label].iterrows():
            true = corrected_draws(option.value(row["extra"]), verifier, rng)
            quantiles = sorted(fit.runs.metric.from_fraction(np.quantile(true, (0.05, 0.5, 0.95))))
            rows.append(
                {
                    "budget": row["budget"],
                    "option": option.label,
                    **{name: float(q) for name, q in zip(("q05", "q50", "q95"), quantiles, strict=True)},
                }
            )
    return pd.DataFrame(rows)
