"""Would we have forecast the extensions of the ScaleRL runs?

``rlforecast study scalerl``: the long runs of Khatri et al. 2025 (read off the figures, see ``studies/data``) are cut
where the paper's own fits end, and the published extensions are scored: all runs together and each by itself, with
the unreported floor latent or stated as 0.40, beside least squares and the published parameters. Once for the eleven
published series, once for the nine runs that they draw (three series draw one run). Then the nine runs are cut ever
earlier. Errors within a run are nearly one number: read the scores as of nine forecasts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click
import numpy as np
import pandas as pd

from studies.backtest_rows import SKIPPED
from studies.conduct import Where, conduct
from studies.demo import DATA, SAME_RUN, SOURCE, merge_redrawn
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    import forecast as fc

NAME = "scalerl"
PUBLISHED = DATA.with_name("scalerl_published.csv")
STATED_FLOOR = 0.40
FLOORS: dict[str, str | float] = {"floor latent": "latent", f"floor {STATED_FLOOR}": STATED_FLOOR}
SETS = {"series": False, "runs": True}
"""Name -> whether series that redraw a run are merged into it."""

ENGINES = {"all together": "hierarchical", "each by itself": "particle"}
EXTENSION = "where the paper's fit ends"
CUTS = (3_000.0, 4_000.0, 5_000.0, 6_000.0)
"""GPU-hours; all but one run were fitted to about 7,700 by the paper."""


def points(*, merged: bool) -> pd.DataFrame:
    """Columns run, segment (fit | extended), gpu_hours, pass_rate."""
    table = pd.read_csv(DATA)
    if not merged:
        return table.rename(columns={"series": "run"})
    parts = [merge_redrawn(part).assign(segment=segment) for segment, part in table.groupby("segment")]
    return pd.concat(parts, ignore_index=True)


def run_table(table: pd.DataFrame) -> fc.Runs:
    """Run table of all points."""
    import forecast as fc

    return fc.Runs(
        table.rename(columns={"gpu_hours": "compute", "pass_rate": "value"})[["run", "compute", "value"]],
        fc.Metric("pass_rate", prompts=1000, samples_per_prompt=16),
        fc.ComputeAxis("gpu_hours", SOURCE),
    )


def fit_ends(table: pd.DataFrame) -> dict[str, float]:
    """Last compute that the paper fitted, by run."""
    ends = table[table["segment"] == "fit"].groupby("run")["gpu_hours"].max()
    return {str(run): float(end) for run, end in ends.items()}


def work(task: Task) -> pd.DataFrame:
    """Cut, refit and score one set of runs in one way; rows of the later evaluations."""
    import forecast as fc

    table = points(merged=SETS[task["set"]])
    labels = {"set": task["set"], "how": task["how"], "floor": task["floor"], "cut_at": task["cut_at"]}
    if task["how"] == "published":
        return published_forecasts(table).assign(**labels)
    result = fc.backtest(
        run_table(table),
        upto=fit_ends(table) if task["cut_at"] == EXTENSION else [float(task["cut_at"])],
        engine=ENGINES[task["how"]],
        floor=FLOORS[task["floor"]],
        seed=task["seed"],
        workers=1,
    )
    skipped = result.skipped.assign(method=SKIPPED)
    return pd.concat([result.forecasts, skipped], ignore_index=True).assign(**labels)


def published_forecasts(table: pd.DataFrame) -> pd.DataFrame:
    """Score the published ceiling and exponent, with the midpoint fitted to the fit segment."""
    from scipy.optimize import minimize_scalar

    from forecast.curves import sigmoid

    published = pd.read_csv(PUBLISHED).set_index("series").to_dict("index")
    parts = []
    for name, run in table.groupby("run"):
        fitted, later = run[run["segment"] == "fit"], run[run["segment"] == "extended"]
        row = published[str(name)]
        curve = partial(sigmoid, floor=STATED_FLOOR, ceiling=row["ceiling"], exponent=row["exponent"])
        x, y = fitted["gpu_hours"].to_numpy(), fitted["pass_rate"].to_numpy()
        best = minimize_scalar(
            lambda log_midpoint, curve, x, y: np.sum((curve(x, midpoint=np.exp(log_midpoint)) - y) ** 2),
            bounds=(np.log(100), np.log(40_000)),
            args=(curve, x, y),
            method="bounded",
        )
        forecast = curve(later["gpu_hours"].to_numpy(), midpoint=np.exp(best.x))
        error = forecast - later["pass_rate"].to_numpy()
        parts.append(
            pd.DataFrame(
                {
                    "run": str(name),
                    "method": "published",
                    "compute": later["gpu_hours"].to_numpy(),
                    "observed": later["pass_rate"].to_numpy(),
                    "mean": forecast,
                    "error": error,
                    "crps": np.abs(error),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def tasks(seed: int) -> list[Task]:
    """All work: first what takes longest."""
    made = []
    for how in ENGINES:
        for name in SETS:
            for floor in FLOORS:
                sweep = CUTS if name == "runs" and floor != "floor latent" else ()
                for cut_at in (EXTENSION, *map(str, sweep)):
                    labels = {"set": name, "how": how, "floor": floor, "cut_at": cut_at}
                    made.append(Task("/".join(labels.values()), labels | {"seed": seed}))
    for name in SETS:
        labels = {"set": name, "how": "published", "floor": f"floor {STATED_FLOOR}", "cut_at": EXTENSION}
        made.append(Task(f"{name}/published", labels | {"seed": seed}))
    return made


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per set, way, floor, cut and method (incumbents once, from the runs by themselves)."""
    from forecast.outlook.backtest_summary import INTERVALS, MARGIN, effective_number

    lines = []
    keys = ["set", "cut_at", "floor", "how", "method"]
    for key, own in rows[rows["method"] != SKIPPED].groupby(keys, sort=False):
        named = dict(zip(keys, key, strict=True))
        if named["method"] not in ("rlforecast", "published") and named["how"] != "each by itself":
            continue
        error = own["error"].to_numpy()
        lines.append(
            named
            | {
                "evaluations": len(own),
                "runs": own["run"].nunique(),
                "effective": effective_number(error, own["run"].to_numpy()),
                "rmse": np.sqrt(np.mean(error**2)),
                "bias": error.mean(),
                "crps": own["crps"].mean(),
                "within_02": np.mean(np.abs(error) <= MARGIN),
            }
            | {
                f"coverage_{level}": own["observed"].between(own[low], own[high]).mean()
                if own[low].notna().any()
                else np.nan
                for level, (low, high) in INTERVALS.items()
            }
            | {"width_95": (own["q975"] - own["q025"]).mean()}
        )
    return pd.DataFrame(lines)


_SHOWN = ("rlforecast", "least_squares", "least_squares_covariance", "power_law", "published")


def markdown(summary: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Both tables, and what was skipped."""
    from forecast.outlook.contenders import METHODS

    names = METHODS | {"published": "published ceiling and exponent"}
    parts = []
    extension = summary[(summary["cut_at"] == EXTENSION) & summary["method"].isin(_SHOWN)]
    for name, group in extension.groupby("set", sort=False):
        first = group.iloc[0]
        parts.append(
            f"| {first['evaluations']} later evaluations of {first['runs']} {name} | RMSE | bias | CRPS | within 50 % | within 80 % "
            "| within 95 % | 95 % width | within +-.02 | independent errors |\n" + "|---" * 10 + "|"
        )
        for _, row in group.sort_values(
            "method", key=lambda m: m.map(_SHOWN.index), kind="stable"
        ).iterrows():
            how = f", {row['how']}" if row["method"] == "rlforecast" else ""
            floor = "" if row["method"] == "published" else f", {row['floor']}"
            parts.append(f"| {names[row['method']]}{how}{floor} | {_cells(row)} |")
        parts.append("")
    parts.append(
        "| nine runs cut at | forecast | RMSE | bias | CRPS | within 50 % | within 80 % | within 95 % | 95 % width | within +-.02 | independent errors |\n"
        + "|---" * 11
        + "|"
    )
    stated = summary[(summary["cut_at"] != EXTENSION) & (summary["floor"] == f"floor {STATED_FLOOR}")]
    for cut, group in stated[stated["method"].isin(_SHOWN)].groupby("cut_at", sort=False):
        for _, row in group.iterrows():
            how = f", {row['how']}" if row["method"] == "rlforecast" else ""
            parts.append(
                f"| {float(str(cut)):,.0f} GPU-hours | {names[row['method']]}{how} | {_cells(row)} |"
            )
    skipped = rows[rows["method"] == SKIPPED]
    parts += ["", f"Skipped: {len(skipped)}."]
    parts += [
        f"- {row['set']}, {row['how']}, {row['floor']}, cut {row['cut_at']}: {row['run']}, {row['reason']}"
        for _, row in skipped.iterrows()
    ]
    return "\n".join(parts)


def _cells(row: pd.Series) -> str:
    intervals = [
        "-" if np.isnan(row[column]) else f"{row[column]:.{digits}f}"
        for column, digits in (("coverage_50", 2), ("coverage_80", 2), ("coverage_95", 2), ("width_95", 3))
    ]
    return (
        f"{row['rmse']:.4f} | {row['bias']:+.4f} | {row['crps']:.4f} | {' | '.join(intervals)} "
        f"| {row['within_02']:.2f} | {row['effective']:.0f}"
    )


def figure(summary: pd.DataFrame) -> Figure:
    """CRPS, and coverage and width of 95 % intervals, against the cut."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 3.8), layout="constrained")
    crps, coverage, width = drawn.subplots(1, 3)
    stated = summary[(summary["floor"] == f"floor {STATED_FLOOR}") & (summary["set"] == "runs")]
    labels = [*(f"{cut / 1000:g},000" for cut in CUTS), "paper's\nfit end"]
    order = [*map(str, CUTS), EXTENSION]
    for method, how, label, colour, marker in (
        ("rlforecast", "all together", "rlforecast, all together", "#0072b2", "o"),
        ("rlforecast", "each by itself", "rlforecast, each by itself", "#56b4e9", "s"),
        ("least_squares", "each by itself", "least squares (grid)", "#000000", "x"),
        ("least_squares_covariance", "each by itself", "least squares + covariance", "#999999", "D"),
    ):
        own = stated[(stated["method"] == method) & (stated["how"] == how)].set_index("cut_at").reindex(order)
        crps.plot(labels, own["crps"], marker=marker, color=colour, label=label)
        if method != "least_squares":
            coverage.plot(labels, own["coverage_95"], marker=marker, color=colour)
            width.plot(labels, own["width_95"], marker=marker, color=colour)
    coverage.axhline(0.95, color="#000000", lw=1, ls=":")
    coverage.set_ylim(0, 1.03)
    for axes, title in (
        (crps, "CRPS (pass rate)"),
        (coverage, "inside 95 % intervals"),
        (width, "95 % width"),
    ):
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("fitted up to, GPU-hours")
        axes.spines[["top", "right"]].set_visible(False)
    crps.set_yscale("log")
    crps.legend(fontsize=7, frameon=False)
    return drawn


NOTES = f"""\
- Redrawn series: {", ".join(f"{a} draws {b}" for a, b in SAME_RUN.items())}: the table of nine runs is the honest count.
  "Independent errors" says how many the evaluations are worth, given that those of one run move together.
- Priors and drift were chosen with these runs in view. The published parameters were fitted by the authors, partly with
  the extensions in view. The floor is not reported: {STATED_FLOOR} (+-.02) is what inverting the printed curves gives.
- The sweep states the floor as {STATED_FLOOR} and scores all evaluations beyond the cut.
"""


@click.command(NAME)
@study_options
def scalerl(where: Where) -> None:
    """Would the extensions of the published ScaleRL runs have been forecast? Also when cut earlier.

    About ten minutes on two cores.
    """
    import hashlib

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        summary = summarise(rows)
        return figure(summary), f"{markdown(summary, rows)}\n\n{NOTES}"

    conduct(
        NAME,
        work,
        tasks(where.seed),
        report,
        where,
        title="Forecasts of published ScaleRL runs",
        options={},
        data_sha256=hashlib.sha256(DATA.read_bytes()).hexdigest(),
    )
