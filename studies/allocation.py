"""How is a budget of rollouts best split into prompts, rollouts per prompt and steps? (IsoCompute's question.)

``rlforecast study allocation``: every split is trained on the same simulated worlds, with easy and with hard prompts and
with several learning rates, and measured at budgets from 2^12 to 2^20 rollouts, by mean pass rate, best and worst of four.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from forecast.errors import InputError
from simulators.ranges import check_number
from studies.allocation_figure import figure
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from simulators.skills.frontier import FrontierFit

NAME = "allocation"
BUDGETS = tuple(2**k for k in range(12, 21))
BLOCK = 16
"""Worlds per task; worlds of one block are trained together."""

LEARNING_RATES = (0.01, 0.03, 0.1)
"""Of Adam, at 32 prompts x 32 rollouts: which split wins depends on it, so that it is chosen too."""

FIXED = 32
"""Prompts per batch where only G is chosen, as in IsoCompute's main figure."""

ANY = "any"
REFERENCE = 8


def work(task: Task) -> pd.DataFrame:
    """Train one split with one learning rate on one block of worlds; rows of all budgets and metrics."""
    from simulators.skills.allocation import budget_settings, plausible_rates, spend

    seed, first = task["seed"], task["first"]
    rates = plausible_rates(task["pass_rates"], task["samples"], np.random.default_rng([seed, 1]))
    settings = budget_settings(rates, learning_rate=task["learning_rate"])
    split = (task["prompts"], task["rollouts"])
    rows = spend(settings, [split], task["budgets"], task["worlds"], [seed, first])
    return rows.assign(world=rows["world"] + first, set=task["set"])


def tasks(
    sets: dict[str, tuple[Sequence[float], Sequence[int] | None]],
    worlds: int,
    seed: int,
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    budgets: Sequence[int] = BUDGETS,
    splits: Sequence[tuple[int, int]] | None = None,
) -> list[Task]:
    """All work on these sets of pass rates and samples behind them, the slowest first."""
    from simulators.skills.allocation import SPLITS

    return [
        Task(
            f"{name}/{prompts}x{rollouts}/{rate:g}/{first:04d}",
            {
                "set": name,
                "pass_rates": list(rates),
                "samples": None if samples is None else list(samples),
                "prompts": prompts,
                "rollouts": rollouts,
                "first": first,
                "worlds": min(BLOCK, worlds - first),
                "budgets": list(budgets),
                "learning_rate": rate,
                "seed": seed,
            },
        )
        for prompts, rollouts in sorted(splits or SPLITS, key=lambda split: split[0] * split[1])
        for name, (rates, samples) in sets.items()
        for rate in learning_rates
        for first in range(0, worlds, BLOCK)
    ]


def summarise(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple[str, str, str], FrontierFit]]:
    """Best splits by set, metric and budget, with P chosen (`ANY`) or fixed; and the fitted frontiers."""
    import pandas as pd

    from simulators.skills.frontier import fit_frontier, frontier

    parts, fits = [], {}
    for name, own in rows.groupby("set", sort=False):
        fixed = own[own["prompts"] == FIXED]
        for metric in own["metric"].unique():
            for choice, table in ((ANY, own), (str(FIXED), fixed)):
                best = frontier(table, metric, reference=REFERENCE)
                parts.append(best.assign(set=name, choice=choice))
                fits[str(name), metric, choice] = fit_frontier(table, metric)
    return pd.concat(parts, ignore_index=True), fits


def markdown(summary: pd.DataFrame, fits: dict[tuple[str, str, str], FrontierFit]) -> str:
    """Tables and what they say, as Markdown."""
    said = "\n".join(f"- {sentence}" for sentence in [*sentences(summary, fits), *by_metric(summary)])
    return f"{said}\n\n{_best_table(summary)}\n\n{_fit_table(fits)}"


def sentences(summary: pd.DataFrame, fits: dict[tuple[str, str, str], FrontierFit]) -> list[str]:
    """Does the best G rise, does it saturate, and what does G = 8 everywhere cost?"""
    found = []
    for (name, metric), group in summary.groupby(["set", "metric"], sort=False):
        fixed = group[group["choice"] == str(FIXED)]
        fit = fits[str(name), str(metric), str(FIXED)]
        first, last = fixed.iloc[0], fixed.iloc[-1]
        rises = (
            f"the best G goes from {first['rollouts']} at {_power(first['budget'])} rollouts to {last['rollouts']} at "
            f"{_power(last['budget'])} with P = {FIXED} (it at least doubles with probability {fit.rises:.2f}, and "
            f"saturates below the largest G tried with {fit.saturates:.2f})"
        )
        free = group[(group["choice"] == ANY) & group["gain"].notna()]
        costs = [
            (fixed[fixed["gain"].notna()], "gain", f"with P = {FIXED}"),
            (free, "gain", "with the best P of each"),
            (free, "gain_stopped", "where both may stop before the budget is spent"),
        ]
        cost = ", ".join(_worst(own, column, label) for own, column, label in costs if len(own))
        cost = f"; G = {REFERENCE} at every budget costs at most {cost}" if cost else ""
        found.append(f"**{name}, {metric}**: {rises}{cost}.")
    return found


def _worst(own: pd.DataFrame, column: str, label: str) -> str:
    row = own.iloc[int(np.argmax(own[column]))]
    return f"{_interval(row, column, '.3f')} at {_power(row['budget'])} {label}"


def by_metric(summary: pd.DataFrame) -> list[str]:
    """How the answer at the largest budget changes with the metric."""
    found = []
    for name, group in summary[summary["choice"] == str(FIXED)].groupby("set", sort=False):
        last = group[group["budget"] == group["budget"].max()]
        each = ", ".join(
            f"{row['rollouts']} ({_range(row)}) for {row['metric']}" for _, row in last.iterrows()
        )
        found.append(
            f"**{name}, by metric**: the best G with P = {FIXED} at {_power(last['budget'].iloc[0])} is {each}."
        )
    return found


def _best_table(summary: pd.DataFrame) -> str:
    gain = f"gain over G = {REFERENCE} (90 %)"
    columns = [
        "prompts",
        "metric",
        "rollouts",
        "best P x G x steps",
        "learning rate",
        "G (90 %)",
        "probability of G",
    ]
    columns += ["value (90 %)", gain, f"{gain}, both may stop", f"best G with P = {FIXED}", "(90 %)"]
    columns += ["probability", gain]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    fixed = {
        (row["set"], row["metric"], row["budget"]): row
        for _, row in summary[summary["choice"] == str(FIXED)].iterrows()
    }
    for _, row in summary[summary["choice"] == ANY].iterrows():
        cells = [
            row["set"],
            row["metric"],
            _power(row["budget"]),
            f"{row['prompts']} x {row['rollouts']} x {row['steps']}",
            f"{row['learning_rate']:g}",
            *_choice(row),
            _interval(row, "value", ".3f"),
            _interval(row, "gain", "+.3f"),
            _interval(row, "gain_stopped", "+.3f"),
        ]
        at = fixed.get((row["set"], row["metric"], row["budget"]))
        cells += (
            ["-"] * 4 if at is None else [str(at["rollouts"]), *_choice(at), _interval(at, "gain", "+.3f")]
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _choice(row: pd.Series) -> list[str]:
    return [_range(row), f"{row['probability']:.2f}"]


def _fit_table(fits: dict[tuple[str, str, str], FrontierFit]) -> str:
    names = {
        "rise": "L",
        "slope": "k",
        "midpoint": "log10 C0",
        "base": "b",
        "plateau": "plateau L + b",
    }
    lines = [
        f"| prompts | metric | P | {' | '.join(names.values())} | rises | saturates |",
        "|---" * 10 + "|",
    ]
    for (name, metric, choice), fit in fits.items():
        cells = []
        for _, row in fit.parameters.iterrows():
            cell = f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            cells.append(cell if row["identified"] else f"{cell}: not identified")
        lines.append(
            f"| {name} | {metric} | {choice} | {' | '.join(cells)} | {fit.rises:.2f} | {fit.saturates:.2f} |"
        )
    return "\n".join(lines)


def _power(budget: int) -> str:
    exponent = int(budget).bit_length() - 1
    return f"2^{exponent}" if budget == 2**exponent else f"{budget:,}"


def _range(row: pd.Series) -> str:
    low, high = (round(2 ** row[f"log2_rollouts_{end}"]) for end in ("low", "high"))
    return f"{low}-{high}" if low < high else str(low)


def _interval(row: pd.Series, name: str, form: str) -> str:
    if not np.isfinite(row[name]):
        return "-"
    # Adding 0 turns -0 into 0.
    value, low, high = (round(float(row[f"{name}{end}"]), 3) + 0.0 for end in ("", "_low", "_high"))
    return f"{value:{form}} ({low:{form}} to {high:{form}})"


NOTES = """\
- P prompts per batch, G rollouts per prompt. Easy prompts have pass rates of .3-.6 before training, hard ones 0-.0625, as
  in IsoCompute's sweep (arXiv 2603.12151). The learning rate is the one at 32 x 32: it grows with the square root of the
  batch P x G, and each split counts with the one of those tried that suits it.
- Values and gains are of splits chosen on all worlds but one and measured on that one, in turn; their intervals are
  Student's t over worlds. Intervals of G and of the frontier hold over resampled worlds.
- Frontier: log2 G = L / (1 + exp(-k (log10 C - log10 C0))) + b. "Saturates": over the last fourfold of budgets G has stayed
  within half a doubling of a plateau that lies below the largest G tried. Where the best G starts at the smallest one
  tried, L and b are open.
- These worlds punish noise and too many updates, nothing else. With so many updates that held-out prompts lose again, a
  larger G pays by making fewer: compare the gain with that where both may stop before the budget is spent. With one
  learning rate for all (`--learning-rate`), the budget at which G starts to rise moves with it.
"""


def read_pass_rates(path: Path) -> tuple[list[float], list[int] | None]:
    """Columns ``pass_rate`` and, if there, ``samples`` of a CSV file.

    Raises
    ------
    InputError
        If a column or a number is missing, or is none that a pass rate or a number of samples can be.
    """
    import pandas as pd

    from simulators.skills.allocation import plausible_rates

    try:
        table = pd.read_csv(path, skipinitialspace=True, skip_blank_lines=False)
    except (ValueError, OSError) as error:
        raise InputError(
            "no CSV file", where=path, found=str(error), expected="a column pass_rate"
        ) from error
    if "pass_rate" not in table:
        raise InputError(
            "column pass_rate is missing",
            where=path,
            found=", ".join(map(str, table.columns)),
            expected="pass_rate (a fraction), samples if known",
        )
    columns: dict[str, Any] = {}
    for name in ("pass_rate", "samples"):
        if name not in table:
            continue
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.isna().any():
            row = int(np.flatnonzero(numbers.isna())[0])
            raise InputError(
                "no number",
                where=f"{path}, row {row + 2}, column {name}",
                found=table[name].iloc[row],
                expected="a number",
            )
        columns[name] = numbers.tolist()
    rates, samples = columns["pass_rate"], columns.get("samples")
    try:
        plausible_rates(rates, samples, np.random.default_rng(0))
    except InputError as error:
        raise InputError(
            error.what, where=path, found=error.found, expected=error.expected, fix=error.fix
        ) from error
    return rates, samples


@click.command(NAME)
@click.option("--worlds", type=click.IntRange(min=2), default=16, show_default=True)
@click.option(
    "--pass-rates",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV file of your own prompts in place of the easy and hard ones: column pass_rate (before training, a "
    "fraction) and, so that zeros are not taken as impossible, samples (rollouts behind it).",
)
@click.option(
    "--learning-rate",
    "learning_rates",
    type=click.FloatRange(min=1e-6, max=10),
    multiple=True,
    default=LEARNING_RATES,
    show_default=True,
    help="Adam's, at 32 prompts x 32 rollouts; repeatable: each split counts with the one that suits it.",
)
@study_options
def allocation(worlds: int, pass_rates: Path | None, learning_rates: tuple[float, ...], where: Where) -> None:
    """How is a budget of rollouts best split into prompts, rollouts per prompt and steps?

    About ten minutes on two cores.
    """
    from simulators.skills.allocation import EASY, HARD

    for rate in learning_rates:
        check_number("--learning-rate", rate, 0.0)
    sets: dict[str, tuple[Sequence[float], Sequence[int] | None]] = {
        "easy": (EASY, None),
        "hard": (HARD, None),
    }
    rates = " --learning-rate ".join(f"{rate:g}" for rate in dict.fromkeys(learning_rates))
    options: dict[str, Any] = {"worlds": worlds, "learning-rate": rates}
    sha256 = None
    if pass_rates is not None:
        # Any file name would have to be escaped for tables and figures.
        sets = {"own": read_pass_rates(pass_rates)}
        options["pass-rates"] = shlex.quote(str(pass_rates))
        sha256 = hashlib.sha256(pass_rates.read_bytes()).hexdigest()

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        summary, fits = summarise(rows)
        return figure(rows, summary, fits), f"{markdown(summary, fits)}\n\n{NOTES}"

    conduct(
        NAME,
        work,
        tasks(sets, worlds, where.seed, learning_rates=list(dict.fromkeys(learning_rates))),
        report,
        where,
        title="Best split of a budget of rollouts in simulated training",
        options=options,
        data_sha256=sha256,
    )
