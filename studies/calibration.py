"""Do intervals cover what comes later, and how much of it is lost when the model is wrong?

``rlforecast study calibration``: simulated runs are cut at a half and a quarter of their compute, refitted, and the
forecast of the last evaluation is scored. The first worlds come from the model's own family, the others break one of
its assumptions at a time. Every world is drawn from its own generator, so that any of them can be looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from studies.executor import Task, run_tasks
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "calibration"
HORIZON = 16_000.0
SKIPPED = "skipped"
"""Method of the rows that say which run could not be scored."""


@dataclass(frozen=True)
class Scenario:
    """Worlds of one kind and how they are forecast.

    Attributes
    ----------
    label : str
        As the table shows it.
    draw : int
        Number of the stream of worlds; scenarios that share it forecast the same worlds.
    share : float
        Worlds, as a share of those asked for.
    block : int
        Worlds per task: some seconds of work.
    recipes, seeds : int
        Size of each experiment.
    curves, noise, evaluations : mapping
        What differs from the defaults of `simulators.truth.Curves` and so on.
    cuts : tuple of float
    engine, siblings : str
        As in `forecast.backtest`.
    """

    label: str
    draw: int
    share: float = 0.5
    block: int = 10
    recipes: int = 1
    seeds: int = 1
    curves: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] = field(default_factory=dict)
    evaluations: Mapping[str, Any] = field(default_factory=dict)
    cuts: tuple[float, ...] = (0.5, 0.25)
    engine: str = "particle"
    siblings: str = "cut"

    def count(self, worlds: int) -> int:
        """Worlds of this scenario when `worlds` are asked for."""
        return max(1, round(self.share * worlds))


SIBLINGS: dict[str, Any] = {"draw": 7, "share": 0.07, "recipes": 4, "seeds": 3, "cuts": (0.25,)}

SCENARIOS: dict[str, Scenario] = {
    "right": Scenario("model right", 0, share=1.0),
    "right-hierarchical": Scenario(
        "model right, hierarchical engine", 0, share=0.3, block=5, engine="hierarchical"
    ),
    "low-ceiling": Scenario("ceilings .25-.40", 1, curves={"ceiling": (0.25, 0.40)}),
    "high-ceiling": Scenario("ceilings .85-.95", 2, curves={"ceiling": (0.85, 0.95)}),
    "power-law": Scenario("power-law truth", 3, curves={"family": "power_law"}),
    "burr": Scenario("slow tails (Burr truth)", 4, curves={"family": "burr"}),
    "slow-noise": Scenario("slow noise (correlation .9-.97)", 5, noise={"correlation": (0.9, 0.97)}),
    "outliers": Scenario(
        "3 % of evaluations off by up to .2", 6, evaluations={"glitches": 0.03, "glitch_size": (-0.2, 0.2)}
    ),
    "siblings-whole": Scenario(
        "4 x 3 runs, siblings complete", **SIBLINGS, block=1, engine="hierarchical", siblings="whole"
    ),
    "siblings-unused": Scenario("the same, each run by itself", **SIBLINGS, block=2),
}


def work(task: Task) -> pd.DataFrame:
    """Draw, cut, refit and score the worlds of one task; rows of the last evaluations."""
    import pandas as pd

    import forecast as fc
    from simulators.evaluations import Evaluations
    from simulators.noise import Noise
    from simulators.truth import Curves
    from simulators.worlds import draw_world

    scenario = SCENARIOS[task["scenario"]]
    parts = []
    for k in range(task["first"], task["first"] + task["worlds"]):
        world = draw_world(
            scenario.recipes,
            scenario.seeds,
            rng=np.random.default_rng([task["seed"], scenario.draw, k]),
            curves=Curves(**scenario.curves),
            noise=Noise(**scenario.noise),
            evaluations=Evaluations(horizon=HORIZON, **scenario.evaluations),
        )
        result = fc.backtest(
            world.runs,
            fractions=scenario.cuts,
            engine=scenario.engine,
            siblings=scenario.siblings,
            seed=task["seed"] + k,
            workers=1,
        )
        last = result.forecasts[result.forecasts["compute"] == HORIZON]
        truth = {run: world.curve(run, [HORIZON])[0] for run in world.runs.names}
        parts.append(last.assign(world=k, truth=last["run"].map(truth).astype(float)))
        parts.append(result.skipped.assign(world=k, method=SKIPPED))
    return pd.concat(parts, ignore_index=True).assign(scenario=task["scenario"])


def tasks(worlds: int, seed: int) -> list[Task]:
    """All work, the slowest first so that no worker is left with it at the end."""
    made = []
    for name, scenario in sorted(SCENARIOS.items(), key=lambda item: item[1].engine != "hierarchical"):
        count = scenario.count(worlds)
        for first in range(0, count, scenario.block):
            size = min(scenario.block, count - first)
            made.append(
                Task(f"{name}/{first:04d}", {"scenario": name, "first": first, "worlds": size, "seed": seed})
            )
    return made


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per scenario and cut: our scores, and those of the incumbents beside them."""
    import pandas as pd

    from forecast.outlook.backtest_summary import summarise as summarise_backtest

    # Runs of different worlds have the same names.
    rows = rows.assign(run=rows["world"].astype(str) + "/" + rows["run"])
    lines = []
    for name, scenario in SCENARIOS.items():
        for cut in (f"{100 * cut:g} %" for cut in scenario.cuts):
            group = rows[(rows["scenario"] == name) & (rows["cut"] == cut)]
            scored = group[group["method"] != SKIPPED]
            if scored.empty:
                continue
            methods = summarise_backtest(scored, None, (0.0, 1.0)).set_index("method")
            ours, grid = methods.loc["rlforecast"], methods.loc["least_squares"]
            covariance, power = methods.loc["least_squares_covariance"], methods.loc["power_law"]
            own = scored[scored["method"] == "rlforecast"]
            inside = (own["q025"] <= own["observed"]) & (own["observed"] <= own["q975"])
            by_world = inside.groupby(own["world"]).mean()
            lines.append(
                {
                    "scenario": scenario.label,
                    "fitted": cut,
                    "forecasts": int(ours["evaluations"]),
                    "worlds": len(by_world),
                    SKIPPED: int((group["method"] == SKIPPED).sum()),
                    **{name: ours[name] for name in ("bias", "rmse", "crps", "crps_ratio")},
                    **{f"coverage_{level}": ours[f"coverage_{level}"] for level in (50, 80, 95)},
                    # Runs of one experiment share a population: the worlds are the independent units.
                    "coverage_95_se": _standard_error(by_world),
                    "width_95": ours["width_95"],
                    "grid_within_02": grid["within_02"],
                    "covariance_coverage_95": covariance["coverage_95"],
                    "covariance_crps_ratio": covariance["crps_ratio"],
                    "power_law_crps_ratio": power["crps_ratio"],
                }
            )
    return pd.DataFrame(lines)


def _standard_error(by_world: pd.Series) -> float:
    """Of the mean over worlds; with all of them at one value that of the next possible one."""
    n = len(by_world)
    if n < 2:
        return float("nan")
    return float(max(by_world.std(ddof=1), np.sqrt(1 / n * (1 - 1 / n))) / np.sqrt(n))


def markdown(summary: pd.DataFrame) -> str:
    """Summary as a Markdown table."""
    lines = [
        "| worlds | fitted | forecasts (skipped) | bias | RMSE | CRPS | / least squares | within 50 % | within 80 % | within 95 % (s.e.) | 95 % width | least squares within +-.02 | least squares + covariance within 95 % | its CRPS / least squares | power law's CRPS / least squares |",
        "|---" * 15 + "|",
    ]
    for _, row in summary.iterrows():
        lines.append(
            f"| {row['scenario']} | {row['fitted']} | {row['forecasts']} ({row[SKIPPED]}) | {row['bias']:+.4f} | {row['rmse']:.4f} "
            f"| {row['crps']:.4f} | {row['crps_ratio']:.2f} | {row['coverage_50']:.2f} | {row['coverage_80']:.2f} "
            f"| {row['coverage_95']:.3f} ({row['coverage_95_se']:.3f}) | {row['width_95']:.3f} | {row['grid_within_02']:.2f} "
            f"| {row['covariance_coverage_95']:.2f} | {row['covariance_crps_ratio']:.2f} | {row['power_law_crps_ratio']:.2f} |"
        )
    return "\n".join(lines)


def figure(summary: pd.DataFrame) -> Figure:
    """Coverage of three intervals, and CRPS relative to least squares, by scenario and cut."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 0.42 * len(summary) + 1.6), layout="constrained")
    covered, ratio = drawn.subplots(1, 2, sharey=True, width_ratios=[3, 1.4])
    at = np.arange(len(summary))[::-1]
    for level, colour, marker in ((50, "#0072b2", "s"), (80, "#e69f00", "D"), (95, "#009e73", "o")):
        covered.axvline(level / 100, color=colour, lw=1, ls=":")
        p, n = summary[f"coverage_{level}"], summary["worlds"]
        error = 1.96 * np.sqrt(p * (1 - p) / n)
        covered.errorbar(p, at, xerr=error, fmt=marker, color=colour, ms=5, lw=1, label=f"{level} % interval")
    covered.set_yticks(at, summary["scenario"] + ", fitted " + summary["fitted"])
    covered.set_xlim(0.2, 1.02)
    covered.set_xlabel("share of last evaluations inside (bars: 95 % Monte-Carlo error over worlds)")
    covered.legend(loc="lower left", frameon=False, ncols=3, bbox_to_anchor=(0, 1))
    for column, colour, marker, label in (
        ("crps_ratio", "#000000", "o", "rlforecast"),
        ("covariance_crps_ratio", "#999999", "x", "least squares + covariance"),
    ):
        ratio.plot(summary[column], at, marker, color=colour, ms=5, label=label)
    ratio.axvline(1, color="#000000", lw=1, ls=":")
    ratio.set_xscale("log")
    ratio.set_xticks([0.25, 0.5, 1, 2], ["1/4", "1/2", "1", "2"])
    ratio.minorticks_off()
    ratio.set_xlabel("CRPS / least squares")
    ratio.legend(loc="lower left", frameon=False, bbox_to_anchor=(0, 1))
    for axes in (covered, ratio):
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


NOTES = """\
- Scored is the last evaluation of each run, at twice (fitted 50 %) or four times (25 %) the fitted compute. "Least
  squares" is ScaleRL's grid, a point forecast whose CRPS is its absolute error. Skipped runs are those that screening
  refuses and, with the hierarchical engine, those whose diagnostics fail.
- Our intervals allow for slow drift, which these worlds do not have: where the model is right they are a little wide.
"""


@click.command(NAME)
@click.option("--worlds", type=click.IntRange(min=1), default=200, show_default=True)
@click.option(
    "--only",
    type=click.Choice(list(SCENARIOS)),
    multiple=True,
    help="Only this scenario; repeatable.",
)
@study_options
def calibration(
    worlds: int,
    only: tuple[str, ...],
    directory: Path,
    executor: str,
    workers: int | None,
    seed: int,
    overwrite: bool,
) -> None:
    """Do intervals cover what comes later on simulated runs, also where the model is wrong?

    About 40 minutes on two cores, most of it for the scenarios with the hierarchical engine.
    """
    from forecast.terminal import messages
    from studies.results import check_results, parts_folder, write_results

    check_results(directory, NAME, overwrite=overwrite)
    settings = {"worlds": worlds, "only": list(only), "seed": seed}
    asked = [task for task in tasks(worlds, seed) if not only or task["scenario"] in only]
    console = messages()
    rows = run_tasks(
        work,
        asked,
        parts_folder(directory, NAME),
        name=NAME,
        settings=settings,
        executor=executor,
        workers=workers,
        overwrite=overwrite,
        console=console,
    )
    summary = summarise(rows)
    chosen = "".join(f" --only {name}" for name in only)
    paths = write_results(
        directory,
        NAME,
        rows.drop(columns="task"),
        figure(summary),
        f"{markdown(summary)}\n\n{NOTES}",
        settings,
        title="Coverage and scores of forecasts of simulated runs",
        command=f"rlforecast study {NAME} --worlds {worlds} --seed {seed}{chosen} -o DIR",
        seed=seed,
    )
    for path in paths:
        console.print(f"  {path}", markup=False)
