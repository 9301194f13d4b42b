"""Do forecasts hold on curves of real RL, run on tiny transformers?

``rlforecast study mini-runs CURVES``: every run is cut at a quarter and a half of its compute, fitted by itself, and
scored on all that came later; the stable recipes are also fitted together, all seeds and recipes in one go.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forecast.errors import InputError
from studies.backtest_rows import ABOUT, FEW, SKIPPED, backtest_rows, bar, data_sha256, scores, shown
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options
from studies.study_figures import coverage_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecast.runs.table import Runs

NAME = "mini-runs"
CUTS = (0.25, 0.5)
PROMPTS, SAMPLES = 256, 4

MOST_CRPS_RATIO, LEAST_COVERAGE_95 = 0.70, 0.88
"""Asked of the stable recipes, at each cut."""

_FALLING = "addmul_lr1e-3"


@dataclass(frozen=True)
class Curves:
    """Recipes whose curves have one shape, and the engines that forecast them."""

    label: str
    has: Callable[[str], bool]
    engines: tuple[str, ...] = ("particle",)


SETS = {
    "stable": Curves(
        "stable: addition and multiplication",
        lambda recipe: recipe.startswith("addmul") and recipe != _FALLING,
        ("hierarchical", "particle"),
    ),
    "unstable": Curves("unstable: learning rate 1e-3, rises, then falls", lambda recipe: recipe == _FALLING),
    "carry": Curves("carry: one class of prompts jumps late", lambda recipe: recipe.startswith("carry")),
}
ENGINES = {"particle": "each run by itself", "hierarchical": "all together"}


def read(curves: Path) -> dict[str, Runs]:
    """Read the curves of each set; compute is what generation and training took.

    Raises
    ------
    InputError
        If a set has no curve.
    """
    import forecast as fc

    files = sorted(curves.glob("*.csv"))
    if not files:
        raise InputError(
            "no curve", where=curves, expected="files *.csv", fix="name the folder that holds them"
        )
    runs = fc.read_runs(
        files,
        run="run",
        recipe="recipe",
        seed="seed",
        metric="eval_pass_rate",
        prompts=PROMPTS,
        samples=SAMPLES,
        compute=["gen_flops", "train_flops"],
        compute_unit="flops",
        step="step",
    )
    names = {
        key: [run for run, recipe in runs.recipes.items() if own.has(recipe)] for key, own in SETS.items()
    }
    if missing := [key for key, own in names.items() if not own]:
        raise InputError(
            "curves are missing",
            where=curves,
            found=f"none of the set {', '.join(missing)}",
            expected=f"recipes addmul*, {_FALLING} and carry*",
            fix="name the folder that holds them all",
        )
    return {key: runs.select(own) for key, own in names.items()}


def work(task: Task) -> pd.DataFrame:
    """Cut, refit and score one set with one engine; rows of all later evaluations."""
    import forecast as fc

    runs = read(Path(task["curves"]))[task["set"]]
    result = fc.backtest(runs, fractions=CUTS, engine=task["engine"], workers=1, seed=task["seed"])
    return backtest_rows(result).assign(set=task["set"], engine=task["engine"])


def tasks(curves: Path, seed: int) -> list[Task]:
    """All work, the slowest first."""
    return [
        Task(f"{key}/{engine}", {"curves": str(curves), "set": key, "engine": engine, "seed": seed})
        for key, own in SETS.items()
        for engine in own.engines
    ]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per set, engine and cut: our scores, and those of the incumbents beside them."""
    import pandas as pd

    lines = []
    for key, own in SETS.items():
        for engine in (name for name in ENGINES if name in own.engines):
            for cut in (f"{100 * cut:g} %" for cut in CUTS):
                group = rows[(rows["set"] == key) & (rows["engine"] == engine) & (rows["cut"] == cut)]
                if group.empty:
                    continue
                lines.append(
                    {
                        "set": key,
                        "engine": engine,
                        "fitted": cut,
                        "runs": group["run"].nunique(),
                        SKIPPED: int((group["method"] == SKIPPED).sum()),
                        **scores(group),
                    }
                )
    return pd.DataFrame(lines)


def markdown(summary: pd.DataFrame) -> str:
    """Summary as a Markdown table, and what was asked for."""
    lines = [
        "| curves | fitted | engine | runs (skipped) | independent errors | bias | RMSE | CRPS | / least squares | within 50 % | within 80 % | within 95 % | 95 % width | least squares within +-.02 | power law's CRPS / least squares |",
        "|---" * 15 + "|",
    ]
    for _, row in summary.iterrows():
        cells = [
            SETS[row["set"]].label,
            row["fitted"],
            ENGINES[row["engine"]],
            f"{row['runs']} ({row[SKIPPED]})",
            shown(row["effective"] or float("nan"), ".1f"),
            shown(row["bias"], "+.3f"),
            *(shown(row[name], ".4f") for name in ("rmse", "crps")),
            *(shown(row[name], ".2f") for name in ("crps_ratio", "coverage_50", "coverage_80")),
            *(shown(row[name], ".3f") for name in ("coverage_95", "width_95")),
            *(shown(row[name], ".2f") for name in ("grid_within_02", "power_law_crps_ratio")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Asked of the stable recipes:", ""]
    for _, row in summary[summary["set"] == "stable"].iterrows():
        at = f"{ENGINES[row['engine']]}, fitted {row['fitted']}"
        lines += [
            bar(f"{at}: CRPS / least squares", row["crps_ratio"], most=MOST_CRPS_RATIO),
            bar(f"{at}: share within 95 %", row["coverage_95"], least=LEAST_COVERAGE_95),
        ]
    return "\n".join(lines)


def refusals(rows: pd.DataFrame) -> str:
    """Why runs were skipped, as a Markdown list; empty if none was."""
    skipped = rows[rows["method"] == SKIPPED]
    lines = [
        f"- {key}, {ENGINES[str(engine)]}, fitted {cut}: {', '.join(group['run'])}: {reason}"
        for (key, engine, cut, reason), group in skipped.groupby(
            ["set", "engine", "cut", "reason"], sort=False
        )
    ]
    return "\n".join(["Skipped, and why:", "", *lines, "", ""]) if lines else ""


def figure(summary: pd.DataFrame) -> Figure:
    """Coverage of three intervals, and CRPS relative to least squares, by set, engine and cut."""
    drawn = summary[summary["scored"] > 0]
    return coverage_figure(
        drawn,
        drawn["set"] + ", " + drawn["engine"].map(ENGINES) + ", fitted " + drawn["fitted"],
        drawn["effective"].where(drawn["effective"] >= FEW),
        ABOUT,
    )


NOTES = f"""\
- One SFT checkpoint and one evaluation set ({PROMPTS} prompts, {SAMPLES} samples each) lie behind all curves of a task, so
  errors move together between runs too: there are fewer independent errors than the table says, which counts only what
  moves together within a run. The figure draws no bars below {FEW}.
- The priors and the drift were chosen with these curves in view.
- Scored are all evaluations after the cut. Bias: forecast minus observed. "Least squares" is ScaleRL's grid, a point
  forecast whose CRPS is its absolute error.
"""


@click.command(NAME)
@click.argument("curves", type=click.Path(exists=True, file_okay=False))
@study_options
def mini_runs(curves: str, where: Where) -> None:
    """Do forecasts hold on curves of real RL, run on tiny transformers?

    CURVES holds one CSV file per run. About five minutes on two cores.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        summary = summarise(rows)
        return figure(summary), f"{markdown(summary)}\n\n{refusals(rows)}{NOTES}"

    folder = Path(curves).resolve()
    conduct(
        NAME,
        work,
        tasks(folder, where.seed),
        report,
        where,
        title="Forecasts of real RL on tiny transformers",
        options={},
        arguments=shlex.quote(curves),
        data_sha256=data_sha256(read(folder).values()),
    )
