"""What the page says, as plain data: every number comes from the tables of the fit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forecast.inference.priors import get_priors
from forecast.outlook.reliability import WARNING_SEPARATOR
from forecast.report.words import (
    KIND_NAMES,
    LEVEL_NAMES,
    MISSING,
    SPLIT_NAMES,
    compute_text,
    evaluation_size,
    interval_text,
    quantity_text,
    scale_text,
    unit_name,
    value_text,
)

if TYPE_CHECKING:
    from forecast.fits import Fit

_SOURCES_SHOWN, _REFUSED_SHOWN = 12, 4
_Z90 = 1.645  # standard deviations from the middle to either end of a 90 % interval
_GAP, _FAILED = "pooling with sibling recipes", "diagnostics failed"  # how those warnings begin


@dataclass(frozen=True)
class Row:
    """One line of a table: a name where a new one begins (spanning `span` lines), then cells."""

    name: str
    span: int
    cells: list[str]
    flagged: bool = False


def fitted_facts(fit: Fit) -> list[tuple[str, str]]:
    """What was fitted and on which axes, as (term, description)."""
    runs, settings = fit.runs, fit.settings
    later = len(runs.overall()) - len(fit.fitted.overall())
    recipes = len(fit.observations.recipes)
    facts = [
        ("Runs", f"{len(fit.observations.runs)} of {len(runs.names)} fitted, {_count(recipes, 'recipe')}"),
        (
            "Evaluations",
            _fitted_sentence(fit)
            + (f" (asked for: {_asked_range(fit)})" if settings.start or settings.upto else "")
            + (f"; {later:,} more not fitted" if later else ""),
        ),
        ("Vertical axis", _vertical(fit)),
        ("Compute", f"cumulative {unit_name(runs.compute)}, {runs.compute.derivation}"),
    ]
    if runs.compute.price_per_unit is not None:
        facts.append(("Price", f"{runs.compute.price_per_unit:g} per unit of compute"))
    facts += [
        ("Before training", _floor_text(fit)),
        ("Pooling", _pooling_text(fit)),
        ("Prior of the ceiling", settings.prior),
    ]
    if sampling := sampling_text(fit):
        facts.insert(4, ("Sampling", sampling))
    if fit.runs.domain:
        declared = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in fit.runs.domain.items())
        facts.append(("Declared", declared))
    return facts


def _vertical(fit: Fit) -> str:
    metric = fit.runs.metric
    what = f"{KIND_NAMES[metric.kind]} on {SPLIT_NAMES[metric.split]}, column “{metric.name}”"
    return what + scale_text(metric) + _size_text(fit)


def sampling_text(fit: Fit) -> str:
    """Sampling compute written out, where prompts and rollouts per step are declared; else empty."""
    try:
        prompts, rollouts = (
            float(fit.runs.domain[key]) for key in ("prompts_per_batch", "rollouts_per_prompt")
        )
    except (KeyError, ValueError):
        return ""
    text = f"{prompts:,.0f} prompts × {rollouts:,.0f} rollouts = {prompts * rollouts:,.0f} rollouts per step"
    steps = fit.fitted.overall()["step"].dropna()
    if steps.empty:
        return text
    last = float(steps.max())
    return f"{text}; {prompts * rollouts * last:,.0f} in {last:,.0f} steps, the last that was fitted"


def priors(fit: Fit) -> list[tuple[str, str]]:
    """The priors that matter most, in words, as (term, description)."""
    chosen = get_priors(fit.settings.prior)
    exponent, midpoint = chosen.log_exponent, chosen.log_midpoint

    def ends(centre: float, sd: float) -> str:
        low, middle, high = (np.exp(centre + z * sd) for z in (-_Z90, 0.0, _Z90))
        return f"{middle:.2g} (90 % interval {low:.2g} to {high:.2g})"

    share = [1 / (1 + np.exp(-(chosen.gain.mean + z * chosen.gain.sd))) for z in (-_Z90, 0.0, _Z90)]
    return [
        (
            "Ceiling",
            f"{share[1]:.2f} of the way from floor to 1 (90 % interval {share[0]:.2f} to {share[2]:.2f})",
        ),
        ("Exponent", ends(exponent.mean, exponent.sd)),
        ("Midpoint", f"{ends(midpoint.mean, midpoint.sd)} times the largest fitted compute"),
    ]


def _size_text(fit: Fit) -> str:
    if size := evaluation_size(fit.runs.metric):
        return f", {size} per evaluation"
    trials = fit.runs.overall()["trials"].dropna()
    if trials.empty:
        return ", size of an evaluation not declared"
    low, high = int(trials.min()), int(trials.max())
    return (
        f", {low:,} trials per evaluation" if low == high else f", {low:,} to {high:,} trials per evaluation"
    )


def forecast_rows(fit: Fit, forecast: pd.DataFrame) -> list[Row]:
    """Lines of the forecast table, in the order of its columns on the page."""
    metric = fit.runs.metric
    rows = []
    for name, group in forecast.groupby("name", sort=False):
        for i, (_, row) in enumerate(group.iterrows()):
            cells = [
                compute_text(row["compute"]),
                value_text(row["q50"], metric),
                interval_text(row["q05"], row["q95"], metric),
                value_text(row["mean"], metric),
                f"{row['times_fitted']:.2f}",
                value_text(row["least_squares"], metric),
            ]
            if fit.pooled:
                flag = " ▲" if _GAP in row["warning"] else ""
                cells.append(value_text(row["independent"], metric) + flag)
            doubtful = "NOT RELIABLE" in row["warning"]
            rows.append(Row(str(name) if i == 0 else "", len(group), cells, doubtful))
    return rows


def forecast_notes(fit: Fit, forecast: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Warnings as (name, sentences), without what the table itself shows."""
    notes = []
    for name, group in forecast.groupby("name", sort=False):
        said = dict.fromkeys(text for cell in group["warning"] for text in cell.split(WARNING_SEPARATOR))
        sentences = [text for text in said if text and _GAP not in text and _FAILED not in text]
        if sentences:
            notes.append((str(name), sentences))
    return notes


def ceiling_rows(fit: Fit, parameters: pd.DataFrame) -> list[Row]:
    """Lines of the ceiling table, in the order of its columns on the page."""
    metric = fit.runs.metric
    rows = []
    for name, group in parameters.groupby("name", sort=False):
        ceiling = group[group["parameter"] == "ceiling"].iloc[0]
        midpoint = group[group["parameter"] == "midpoint"].iloc[0]
        verdict = str(ceiling["verdict"]).replace("+-", "±")
        low, middle, high = (compute_text(midpoint[q]) for q in ("q05", "q50", "q95"))
        cells = [
            value_text(ceiling["q50"], metric),
            interval_text(ceiling["q05"], ceiling["q95"], metric),
            verdict,
            f"{middle} ({low} to {high})",
            f"{ceiling['fitted_over_midpoint']:.1f}",
            value_text(ceiling["prior_shift"], metric, signed=True),
            value_text(ceiling["least_squares"], metric),
        ]
        rows.append(Row(str(name), 1, cells, verdict.startswith("not identified")))
    return rows


def exclusions(fit: Fit) -> list[str]:
    """What no interval on the page allows for."""
    sentences = [
        "A transition beyond the fitted compute: a jump to a new skill, a collapse, a reward hack. Each run "
        "is assumed to keep following one sigmoid, with a slow drift. Before such a move begins, nothing in "
        "these curves announces it. (rlforecast transitions looks for one that has begun, predict --transitions "
        "averaged allows for one.)",
        "A change of recipe, model, data, prompts or evaluation after the fitted range.",
        "Other prompts: the intervals are for this evaluation set, not for the population it was drawn from.",
        "Errors in the logs or in the compute that they report.",
    ]
    if fit.pooled:
        sentences.insert(
            2, "Recipes of another experiment: pooling assumes that all recipes share base model and data."
        )
    return sentences


def refused_short(fit: Fit) -> str:
    """Refused runs with the first words of the reason, the first few of them."""
    named = [f"{run} ({reason.partition(':')[0]})" for run, reason in fit.refused.items()]
    more = f" and {len(named) - _REFUSED_SHOWN} more" if len(named) > _REFUSED_SHOWN else ""
    return ", ".join(named[:_REFUSED_SHOWN]) + more


def diagnostics(fit: Fit) -> list[tuple[str, str]]:
    """Sampler checks as (outcome, sentence)."""
    outcome = {True: "passed", False: "FAILED", None: "NOT CHECKED"}
    lines = [(outcome[check.passed], check.text) for check in fit.checks]
    return lines + [
        (outcome[check.passed], f"recipes apart: {check.text}") for check in fit.independent_checks
    ]


def sources(fit: Fit) -> tuple[list[list[str]], int]:
    """Return receipts in short, as table cells, and how many are left out."""
    receipts = fit.runs.receipts
    rows = []
    for receipt in receipts[:_SOURCES_SHOWN]:
        dropped = [f"{count:,} left out: {reason}" for reason, count in receipt.dropped.items()]
        remarks = "; ".join([*dropped, *receipt.notes])
        rows.append(
            [
                receipt.source,
                receipt.format,
                f"{receipt.rows_read:,}",
                f"{receipt.rows_kept:,}",
                remarks or MISSING,
            ]
        )
    return rows, max(0, len(receipts) - _SOURCES_SHOWN)


def provenance(fit: Fit) -> list[tuple[str, str]]:
    """When, with what and from which data, as (term, description)."""
    known = fit.provenance
    sampler = known.get("sampler", {})
    return [
        ("Fitted", str(known.get("created", "not recorded"))),
        ("Seed", str(fit.settings.seed)),
        ("Data (SHA-256)", str(known.get("data_sha256", "not recorded"))),
        ("Sampler", ", ".join(f"{key} {value}" for key, value in sampler.items()) or "not recorded"),
        ("Versions", ", ".join(f"{key} {value}" for key, value in known.get("versions", {}).items())),
    ]


def reproduce(fit: Fit, at: Sequence[float], level: str, quantity: str) -> str:
    """Commands that give this fit and forecast again from the same logs."""
    settings = fit.settings
    options = [
        *(["--from", f"{settings.start:g}"] if settings.start is not None else []),
        *(["--upto", f"{settings.upto:g}"] if settings.upto is not None else []),
        *("--prior", settings.prior, "--pool", settings.pool, "--floor", str(settings.floor)),
        *("--engine", settings.engine, "--seed", str(settings.seed)),
        *(["--force"] if settings.forced else []),
    ]
    computes = ",".join(f"{compute:g}" for compute in at)
    return (
        f"rlforecast fit RUNS -o FIT {shlex.join(options)}\n"
        f"rlforecast predict FIT --at {computes} --level {level} --quantity {quantity}"
    )


def summary(fit: Fit, forecast: pd.DataFrame) -> dict[str, Any]:
    """Words that the page uses in headings and in its first paragraph."""
    level, quantity = forecast["level"].iloc[0], forecast["quantity"].iloc[0]
    return {
        "level": LEVEL_NAMES[level],
        "quantity_sentence": f"Of {quantity_text(fit.runs.metric, quantity)}.",
        "vertical": _vertical(fit),
        "horizontal": f"cumulative {unit_name(fit.runs.compute)}, {fit.runs.compute.derivation}",
        "unit": unit_name(fit.runs.compute),
        "kind": KIND_NAMES[fit.runs.metric.kind],
        "furthest": f"{forecast['times_fitted'].max():.1f}",
        "pooled": bool(fit.pooled),
        "caveat": fit.runs.metric.caveat,
        "fitted": _fitted_sentence(fit),
        "in_all": len(fit.runs.names),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _fitted_sentence(fit: Fit) -> str:
    table = fit.fitted.overall()
    low, high = (compute_text(float(table["compute"].agg(end))) for end in ("min", "max"))
    runs, unit = _count(len(fit.observations.runs), "run"), unit_name(fit.runs.compute)
    return f"{len(table):,} evaluations of {runs}, from {low} to {high} {unit}"


def _asked_range(fit: Fit) -> str:
    start, upto = fit.settings.start, fit.settings.upto
    parts = [f"from {compute_text(start)}" if start else "", f"up to {compute_text(upto)}" if upto else ""]
    return " ".join(part for part in parts if part)


def _floor_text(fit: Fit) -> str:
    known = int(np.sum(fit.observations.floor_known))
    total = len(fit.observations.runs)
    if isinstance(fit.settings.floor, int | float):
        return f"pass rate stated as {value_text(fit.settings.floor, fit.runs.metric)} (not measured)"
    if known == 0:
        return "not measured; inferred from each curve"
    rest = "" if known == total else f", inferred for the other {total - known}"
    return f"step-0 evaluation of {known} of {_count(total, 'run')}{rest}"


def _pooling_text(fit: Fit) -> str:
    if not fit.pooled:
        return "none, recipes are fitted apart"
    *most, last = fit.pooled
    what = f"{', '.join(most)} and {last}" if most else last
    return f"recipes inform each other’s {what} (assumes one experiment: same base model and data)"
