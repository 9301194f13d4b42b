"""The numbers and figures of a page, in files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from forecast.files import replacing_directory
from forecast.records import records
from forecast.report.briefing import Briefing
from forecast.report.decision_content import alarms, score_rows, transition_sentences
from forecast.report.sentences import comparison_sentence, decision_sentences
from forecast.report.svg import boxes_for_missing_letters, svg_markup

if TYPE_CHECKING:
    from forecast.fits import Fit

TABLES = (
    *("options", "choices", "targets", "experiments", "pairs", "flags", "backtest", "corrected"),
    *("options_averaged", "choices_averaged", "targets_averaged"),
    *("reward_gap", "over_optimisation", "forecast", "parameters"),
)
FIGURES = ("forecast", "ceilings", "reward_gap")
OWNED = (
    "report.json",
    *(f"{name}.csv" for name in TABLES),
    *(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")),
)
"""Every file that the folder may hold."""


def data_folder(page: Path) -> Path:
    """Folder of a page's data: ``report.html`` has ``report-data``."""
    return page.with_name(f"{page.stem}-data")


def write_data(
    folder: Path,
    fit: Fit,
    briefing: Briefing,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, Figure],
    *,
    command: str,
    overwrite: bool = False,
) -> None:
    """Write tables as CSV, figures as PNG and SVG, and everything as one JSON, all or nothing.

    Parameters
    ----------
    folder : path
    fit : Fit
    briefing : Briefing
    tables : mapping of str to DataFrame
        Further tables, of `TABLES`.
    figures : mapping of str to Figure
        Of `FIGURES`.
    command : str
        What makes them again.
    overwrite : bool

    Raises
    ------
    InputError
        If the folder exists (and `overwrite` is false), holds other files, or cannot be written.
    """
    everything = briefing.tables() | dict(tables)
    metric = fit.runs.metric
    told: dict[str, Any] = {
        "command": command,
        "provenance": dict(fit.provenance),
        "decision": briefing.decision.to_dict(),
        "alarms": alarms(briefing),
        "sentences": [
            {"headline": head, "details": rest} for head, rest in decision_sentences(briefing.decision)
        ],
        "comparisons": [comparison_sentence(row, metric) for _, row in briefing.pairs.iterrows()],
        "transitions": transition_sentences(briefing),
        "outside_map": briefing.outside,
        "hazard": None if briefing.averaged is None else briefing.averaged.hazard,
        "backtest": score_rows(briefing)[1],
        "reward": {run: list(sentences) for run, sentences in briefing.honesty.items()},
        "tables": {name: records(table) for name, table in everything.items()},
    }
    with replacing_directory(folder, overwrite=overwrite, owned=OWNED) as place:
        for name, table in everything.items():
            table.to_csv(place / f"{name}.csv", index=False)
        for name, figure in figures.items():
            (place / f"{name}.svg").write_text(svg_markup(figure, name), encoding="utf-8")
            with boxes_for_missing_letters():
                figure.savefig(place / f"{name}.png")
        (place / "report.json").write_text(json.dumps(told, indent=2, default=str) + "\n", encoding="utf-8")
