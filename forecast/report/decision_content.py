"""What the page says of decisions, comparisons and risks, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forecast.inference.priors import drift_sd
from forecast.outlook.backtest_summary import INTERVALS
from forecast.outlook.budget import Decision
from forecast.outlook.contenders import METHODS, OURS
from forecast.outlook.fitted_curves import trials_per_evaluation
from forecast.outlook.readings import MINIMUM
from forecast.report.briefing import Briefing
from forecast.report.content import Row
from forecast.report.sentences import (
    budget_text,
    choice_under_transitions,
    comparison_sentence,
    decision_sentences,
)
from forecast.report.words import (
    MISSING,
    compute_text,
    interval_text,
    money_text,
    probability_text,
    value_text,
)

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.runs.table import Metric

OPTIONS_SHOWN, BANDS_SHOWN, PAIRS_SHOWN, ALARMS_NAMED = 6, 4, 8, 4


def briefing_content(briefing: Briefing | None, fit: Fit) -> dict[str, Any]:
    """All that the templates need of a briefing; empty parts where there is none."""
    if briefing is None:
        lists = ("alarms", "budgets", "targets", "pairs", "transition_sentences", "bands", "flags", "honesty")
        texts = ("rest", "scored", "target", "reaches", "worth", "horizon", "hazard", "verifier", "quiet")
        return {
            **{name: [] for name in (*lists, "corrected", "outside", "scores")},
            **dict.fromkeys(texts, ""),
            "more_targets": 0,
            "quick": False,
            "creep": "",
            "priced": False,
            "money": False,
            "briefing": None,
        }
    decision, metric = briefing.decision, briefing.decision.metric
    pairs, rest = comparisons(briefing)
    flags, quiet = flag_rows(briefing)
    scores, scored = score_rows(briefing)
    return {
        "briefing": briefing,
        "alarms": alarms(briefing),
        "budgets": budget_parts(decision),
        "priced": prices_differ(decision),
        "target": "" if decision.target is None else value_text(decision.target, metric),
        "reaches": "≥" if metric.scale[1] > metric.scale[0] else "≤",
        "targets": target_rows(decision),
        "more_targets": max(0, len(decision.targets) - OPTIONS_SHOWN),
        "quick": briefing.averaged is None,
        "creep": _creep(fit),
        "money": bool(decision.targets["cost_q50"].notna().any()),
        "horizon": compute_text(decision.horizon),
        "worth": "" if decision.worth is None else money_text(decision.worth),
        "pairs": pairs,
        "rest": rest,
        "transition_sentences": transition_sentences(briefing),
        "bands": band_rows(briefing),
        "hazard": "" if briefing.averaged is None else briefing.averaged.hazard,
        "flags": flags,
        "quiet": quiet,
        "honesty": honesty_lines(briefing),
        "corrected": corrected_rows(briefing),
        "verifier": "" if briefing.verifier is None else str(briefing.verifier),
        "outside": briefing.outside,
        "scores": scores,
        "scored": scored,
    }


@dataclass(frozen=True)
class BudgetPart:
    """What the page says of one budget: a headline, sentences, and the options, best first."""

    name: str
    headline: str
    details: list[str]
    rows: list[Row]
    more: int
    chosen: str


def budget_parts(decision: Decision) -> list[BudgetPart]:
    """One part per budget; beyond `OPTIONS_SHOWN` options are counted, to stop is always shown."""
    metric, target = decision.metric, decision.target is not None
    priced = prices_differ(decision)
    parts = []
    for (headline, details), (_, choice) in zip(
        decision_sentences(decision), decision.choices.iterrows(), strict=True
    ):
        own = decision.options[decision.options["budget"] == choice["budget"]]
        own = own.sort_values("regret", kind="stable")
        shown = own[(np.arange(len(own)) < OPTIONS_SHOWN) | (own["action"] == "stop")]
        rows = []
        for _, row in shown.iterrows():
            cells = [
                f"{value_text(row['q50'], metric)} ({interval_text(row['q05'], row['q95'], metric)})",
                _signed(row, metric),
                *([probability_text(row["p_target"])] if target else []),
                probability_text(row["p_best"]),
                value_text(row["regret"], metric),
                value_text(row["gain_per_unit"] * row["extra"] * 0.1, metric, signed=True, decimals=1)
                if row["extra"]
                else MISSING,
                compute_text(row["compute"]),
                compute_text(row["extra"]),
                *([money_text(row["cost"])] if priced else []),
            ]
            rows.append(Row(row["option"], 1, cells, flagged=row["option"] == choice["option"]))
        parts.append(
            BudgetPart(
                budget_text(decision, choice["budget"]),
                headline,
                details,
                rows,
                len(own) - len(shown),
                choice["option"],
            )
        )
    return parts


def _signed(row: pd.Series, metric: Metric) -> str:
    if not row["extra"]:
        return MISSING
    middle = value_text(row["gain_q50"], metric, signed=True)
    return f"{middle} ({interval_text(row['gain_q05'], row['gain_q95'], metric)})"


def _creep(fit: Fit) -> str:
    """Why a run on its plateau may end worse than it stands."""
    sds = {drift_sd(trials_per_evaluation(fit, [run])) for run in fit.observations.runs}
    sizes = " or ".join(f"{sd:g}" for sd in sorted(sds))
    return (
        f"Beyond the data every curve creeps by a random amount (sd {sizes} of the scale per e-fold of compute, for the better more "
        "often than not), as real curves were seen to: a run on its plateau can also end worse than it stands."
    )


def prices_differ(decision: Decision) -> bool:
    """Whether options of one budget cost different money, so that it needs a column."""
    paid = decision.options.query("extra > 0").groupby("budget")["cost"]
    return bool((paid.max() - paid.min() > 1e-9 * paid.max()).any())


def target_rows(decision: Decision) -> list[Row]:
    """Compute and money to the target, for the options of the budget tables."""
    best = decision.options.groupby("option")["regret"].min()
    shown = decision.targets.assign(regret=decision.targets["option"].map(best)).sort_values(
        "regret", kind="stable"
    )
    return [
        Row(
            row["option"],
            1,
            [
                probability_text(row["p_never"]),
                f"{compute_text(row['q50'])} ({compute_text(row['q05'])} to {compute_text(row['q95'])})"
                if pd.notna(row["q50"])
                else MISSING,
                compute_text(row["extra_q50"]) if pd.notna(row["q50"]) else MISSING,
                *([money_text(row["cost_q50"])] if decision.targets["cost_q50"].notna().any() else []),
            ],
        )
        for _, row in shown.head(OPTIONS_SHOWN).iterrows()
    ]


def comparisons(briefing: Briefing) -> tuple[list[str], str]:
    """Sentences on pairs that can be told apart (or on all, where they are few), and one on the rest."""
    pairs, metric = briefing.pairs, briefing.decision.metric
    if pairs.empty:
        return [], ""
    decided = pairs[pairs["verdict"] != "not decided"]
    shown = pairs if len(pairs) <= PAIRS_SHOWN else decided.head(PAIRS_SHOWN)
    said = [comparison_sentence(row, metric) for _, row in shown.iterrows()]
    if len(shown) == len(pairs):
        return said, ""
    counts = pairs["verdict"].value_counts()
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return said, f"Of {len(pairs)} pairs: {listed} (second against first; all in pairs.csv)."


def band_rows(briefing: Briefing) -> list[Row]:
    """Per budget and option: intervals and P(target) without and with transitions."""
    if briefing.averaged is None:
        return []
    decision, metric = briefing.decision, briefing.decision.metric
    key = ["budget", "option"]
    both = decision.options.merge(briefing.averaged.options, on=key, suffixes=("", "_averaged"))
    rows = []
    for size in decision.choices["budget"]:
        own = both[both["budget"] == size]
        own = own.sort_values("regret", kind="stable").head(BANDS_SHOWN)
        for i, (_, row) in enumerate(own.iterrows()):
            cells = [
                row["option"],
                interval_text(row["q05"], row["q95"], metric),
                interval_text(row["q05_averaged"], row["q95_averaged"], metric),
            ]
            if decision.target is not None:
                cells += [probability_text(row["p_target"]), probability_text(row["p_target_averaged"])]
            rows.append(Row(budget_text(decision, size) if i == 0 else "", len(own), cells))
    return rows


def transition_sentences(briefing: Briefing) -> list[str]:
    """What averaging over transitions does to the choices."""
    if briefing.averaged is None:
        return []
    return choice_under_transitions(briefing.decision, briefing.averaged)


def flag_rows(briefing: Briefing) -> tuple[list[Row], str]:
    """Runs and recipes in which something is seen, alarms first, and a sentence on the other runs."""
    if briefing.flags is None:
        return [], ""
    runs = briefing.flags[briefing.flags["level"] == "run"]
    seen = briefing.flags[briefing.flags["state"] != "prior_only"]
    rows = [
        Row(
            _whose(row),
            1,
            [
                _state(row),
                row["reason"].replace("prior_only", "nothing seen")
                + (f" Signs: {row['precursors']}" if row["precursors"] else ""),
            ],
            flagged=row["state"] == "alarm",
        )
        for _, row in seen.sort_values("state", kind="stable").iterrows()  # alarm before watch
    ]
    quiet = runs[runs["state"] == "prior_only"]
    if quiet.empty:
        return rows, ""
    ahead = probability_text(float(quiet["p_ahead"].max()))
    unread = int((quiet["evaluations"] < MINIMUM).sum())
    some = f" ({unread} more: fewer than {MINIMUM} evaluations, too few to be read)" if unread else ""
    return rows, (
        f"No second move is seen in {len(quiet) - unread} of {len(runs)} runs{some}; by the hazard alone one begins within "
        f"{(quiet['horizon'] / quiet['compute']).max():.3g} times a run's compute with probability {ahead} at most."
    )


def _whose(row: pd.Series) -> str:
    return f"{row['run']}, its runs together" if row["level"] == "recipe" else str(row["run"])


def _state(row: pd.Series) -> str:
    return str(row["state"]) if row["kind"] == "none" else f"{row['state']}: {row['kind']}"


def alarms(briefing: Briefing) -> list[str]:
    """What must be seen before anything else."""
    said = []
    if briefing.flags is not None:
        for kind, own in briefing.flags.query("state == 'alarm'").groupby("kind"):
            whose = [_whose(row) for _, row in own.iterrows()]
            named = ", ".join(whose[:ALARMS_NAMED]) + (
                f" and {len(whose) - ALARMS_NAMED} more" if len(whose) > ALARMS_NAMED else ""
            )
            said.append(f"a {kind} is flagged in {named}")
    hacked = [run for run, lines in briefing.honesty.items() if any("ALARM" in line for line in lines)]
    if hacked:
        said.append(
            f"the proxy rose while the value it stands for fell in {', '.join(hacked[:ALARMS_NAMED])}"
        )
    return said


def honesty_lines(briefing: Briefing) -> list[str]:
    """Sentences of runs, each once, with the runs it holds for."""
    whose: dict[str, list[str]] = {}
    for run, sentences in briefing.honesty.items():
        for sentence in sentences:
            whose.setdefault(sentence, []).append(run)
    total = len(briefing.honesty)
    return [
        f"{'All runs' if len(runs) == total and total > 1 else ', '.join(runs)}: {sentence}"
        for sentence, runs in whose.items()
    ]


def corrected_rows(briefing: Briefing) -> list[Row]:
    """True pass rates behind a verifier with measured error rates, of the options shown above."""
    if briefing.corrected is None:
        return []
    decision = briefing.decision
    rows = []
    for _, row in briefing.corrected.iterrows():
        chosen = decision.choices.set_index("budget").loc[row["budget"], "option"]
        if row["option"] == chosen:
            rows.append(
                Row(
                    budget_text(decision, row["budget"]),
                    1,
                    [
                        row["option"],
                        f"{value_text(row['q50'], decision.metric)} ({interval_text(row['q05'], row['q95'], decision.metric)})",
                    ],
                )
            )
    return rows


def score_rows(briefing: Briefing) -> tuple[list[Row], str]:
    """Scores of the forecast made at half of every run, and what they rest on."""
    if briefing.scores is None:
        return [], briefing.unscored
    scores, metric = briefing.scores, briefing.scores.metric
    summary = scores.summary()
    span = abs(metric.scale[1] - metric.scale[0])
    rows = []
    for _, row in summary.iterrows():
        cells = [
            value_text(row["bias"], metric, signed=True),
            value_text(row["rmse"], metric),
            value_text(row["crps"], metric),
            f"{row['within_02']:.0%}".replace("%", "\u00a0%"),
        ]
        cells += [
            MISSING
            if np.isnan(row[f"coverage_{level}"])
            else f"{row[f'coverage_{level}']:.0%}".replace("%", "\u00a0%")
            for level in INTERVALS
            if level in (50, 90)
        ]
        cells.append(value_text(row["width_90"], metric))
        rows.append(Row(METHODS[row["method"]], 1, cells))
    # Where a method found no curve its scores are of the easier runs.
    partial = [METHODS[str(name)] for name in summary.loc[summary["missing"] > 0, "method"]]
    scored = summary[summary["missing"] == 0].set_index("method")
    best = [METHODS[str(scored[score].idxmin())] for score in ("rmse", "crps")]
    verdict = (
        f"Smallest RMSE and CRPS: {best[0]}."
        if best[0] == best[1]
        else f"Smallest RMSE: {best[0]}; smallest CRPS: {best[1]}."
    )
    if partial:
        verdict += f" Not ranked, as not all could be fitted: {', '.join(partial)}."
    own = scores.forecasts[scores.forecasts["method"] == OURS]
    squared = own["error"].pow(2).groupby(own["run"]).sum()
    if len(squared) > 1 and squared.max() > 0.5 * squared.sum():
        share = squared.max() / squared.sum()
        verdict += f" {share:.0%} of our squared error is that of one run, {squared.idxmax()}.".replace(
            "%", "\u00a0%"
        )
    ours = summary.iloc[0]
    runs, evaluations = int(ours["runs"]), int(ours["evaluations"])
    return rows, (
        f"Every run was cut at half of its compute, fitted by itself, and scored on the {evaluations:,} evaluations that "
        f"came later ({runs} run{'s' * (runs != 1)}; errors within a run move together, so they are worth about "
        f"{round(float(ours['effective']))} independent ones). Errors and widths are in units of the metric "
        f"(scale {span:g}). {verdict}"
    )


def sensitivity(fit: Fit, parameters: pd.DataFrame) -> str:
    """How far ceilings move under another prior, in one sentence."""
    shifts = parameters.loc[parameters["parameter"] == "ceiling", "prior_shift"].dropna()
    other = "llm-rl" if fit.settings.prior == "wide" else "wide"
    if shifts.empty:
        return f"How far the prior “{other}” would move the ceilings cannot be told from these draws."
    largest = value_text(float(shifts.abs().max()), fit.runs.metric)
    return f"Under the prior “{other}” of the ceiling, ceilings would move by at most {largest}."
