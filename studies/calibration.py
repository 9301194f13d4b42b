"""Do intervals cover what comes later, and how much of it is lost when the model is wrong?

``rlforecast study calibration``: simulated runs are cut at a half and a quarter of their compute, refitted, and the
forecast of the last evaluation is scored. The first worlds come from the model's own family, others break one of its
assumptions at a time, and the skills worlds come from no family: a policy is trained. Every world is drawn from its own generator, so that any of them can be looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from studies.backtest_rows import SKIPPED
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options
from studies.study_figures import coverage_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from simulators.skills.experiment import SkillsWorld
    from simulators.worlds import World

NAME = "calibration"
HORIZON = 16_000.0


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
    skills : bool
        Skills worlds without transitions, every setting at random, in place of parametric ones.
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
    skills: bool = False
    cuts: tuple[float, ...] = (0.5, 0.25)
    engine: str = "particle"
    siblings: str = "cut"

    def count(self, worlds: int) -> int:
        """Worlds of this scenario when `worlds` are asked for."""
        return max(1, round(self.share * worlds))


SIBLINGS: dict[str, Any] = {"draw": 7, "share": 0.03, "recipes": 4, "seeds": 3, "cuts": (0.25,)}

SCENARIOS: dict[str, Scenario] = {
    "right": Scenario("model right", 0, share=1.0),
    "right-hierarchical": Scenario(
        "model right, hierarchical engine", 0, share=0.2, block=5, engine="hierarchical"
    ),
    "low-ceiling": Scenario("ceilings .25-.40", 1, curves={"ceiling": (0.25, 0.40)}),
    "high-ceiling": Scenario("ceilings .85-.95", 2, curves={"ceiling": (0.85, 0.95)}),
    "power-law": Scenario("power-law truth", 3, curves={"family": "power_law"}),
    "burr": Scenario("slow tails (Burr truth)", 4, curves={"family": "burr"}),
    "slow-noise": Scenario("slow noise (correlation .9-.97)", 5, noise={"correlation": (0.9, 0.97)}),
    "outliers": Scenario(
        "3 % of evaluations off by up to .2", 6, evaluations={"glitches": 0.03, "glitch_size": (-0.2, 0.2)}
    ),
    "skills": Scenario("skills worlds", 8, share=1.0, block=5, skills=True),
    "siblings-whole": Scenario(
        "4 x 3 runs, siblings complete", **SIBLINGS, block=1, engine="hierarchical", siblings="whole"
    ),
    "siblings-unused": Scenario("the same, each run by itself", **SIBLINGS, block=2),
}


def work(task: Task) -> pd.DataFrame:
    """Draw, cut, refit and score the worlds of one task; rows of the last evaluations."""
    import pandas as pd

    import forecast as fc

    scenario = SCENARIOS[task["scenario"]]
    parts = []
    for k in range(task["first"], task["first"] + task["worlds"]):
        world = draw(scenario, np.random.default_rng([task["seed"], scenario.draw, k]))
        result = fc.backtest(
            world.runs,
            fractions=scenario.cuts,
            engine=scenario.engine,
            siblings=scenario.siblings,
            seed=task["seed"] + k,
            workers=1,
        )
        horizon = world.runs.table["compute"].max()
        last = result.forecasts[result.forecasts["compute"] == horizon]
        truth = {run: world.curve(run, [horizon])[0] for run in world.runs.names}
        parts.append(last.assign(world=k, truth=last["run"].map(truth).astype(float)))
        parts.append(result.skipped.assign(world=k, method=SKIPPED))
    return pd.concat(parts, ignore_index=True).assign(scenario=task["scenario"])


def draw(scenario: Scenario, rng: np.random.Generator) -> World | SkillsWorld:
    """Draw one world of a scenario."""
    if scenario.skills:
        from simulators.skills.drawing import draw_smooth
        from simulators.skills.experiment import draw_experiment

        settings = draw_smooth(rng)
        return draw_experiment(settings, {"recipe1": settings.recipe}, 1, rng)

    from simulators.evaluations import Evaluations
    from simulators.noise import Noise
    from simulators.truth import Curves
    from simulators.worlds import draw_world

    return draw_world(
        scenario.recipes,
        scenario.seeds,
        rng=rng,
        curves=Curves(**scenario.curves),
        noise=Noise(**scenario.noise),
        evaluations=Evaluations(horizon=HORIZON, **scenario.evaluations),
    )


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
            methods = summarise_backtest(scored, None, (0.0, 1.0)).set_index("method").to_dict("index")
            ours, grid = methods["rlforecast"], methods["least_squares"]
            covariance, power = methods["least_squares_covariance"], methods["power_law"]
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
                    **{score: ours[score] for score in ("bias", "rmse", "crps", "crps_ratio")},
                    **{f"coverage_{level}": ours[f"coverage_{level}"] for level in (50, 80, 95)},
                    # Runs of one experiment share a population: the worlds are the independent units.
                    "coverage_95_se": _standard_error(by_world, len(own)),
                    "width_95": ours["width_95"],
                    "grid_within_02": grid["within_02"],
                    "covariance_coverage_95": covariance["coverage_95"],
                    "covariance_crps_ratio": covariance["crps_ratio"],
                    "power_law_crps_ratio": power["crps_ratio"],
                }
            )
    return pd.DataFrame(lines)


def _standard_error(by_world: pd.Series, forecasts: int) -> float:
    """Of the mean over worlds; where all are alike, that of one forecast that is not."""
    n = len(by_world)
    if n < 2:
        return float("nan")
    one_off = np.sqrt((1 - 1 / forecasts) / forecasts) / np.sqrt(forecasts)
    return float(max(by_world.std(ddof=1) / np.sqrt(n), one_off))


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
    return coverage_figure(
        summary,
        summary["scenario"] + ", fitted " + summary["fitted"],
        summary["worlds"],
        "share of last evaluations inside (bars: 95 % Monte-Carlo error over worlds)",
    )


NOTES = """\
- Scored is the last evaluation of each run, at twice (fitted 50 %) or four times (25 %) the fitted compute. "Least
  squares" is ScaleRL's grid, a point forecast whose CRPS is its absolute error. Skipped runs are those that screening
  refuses and, with the hierarchical engine, those whose diagnostics fail.
- Our intervals allow for slow drift, which these worlds do not have: where the model is right they are a little wide.
"""


@click.command(NAME)
@click.option("--worlds", type=click.IntRange(min=1), default=200, show_default=True)
@click.option(
    "--only", type=click.Choice(list(SCENARIOS)), multiple=True, help="Only this scenario; repeatable."
)
@study_options
def calibration(worlds: int, only: tuple[str, ...], where: Where) -> None:
    """Do intervals cover what comes later on simulated runs, also where the model is wrong?

    About half an hour on two cores, most of it for the scenarios with the hierarchical engine.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        summary = summarise(rows)
        return figure(summary), f"{markdown(summary)}\n\n{NOTES}"

    conduct(
        NAME,
        work,
        [task for task in tasks(worlds, where.seed) if not only or task["scenario"] in only],
        report,
        where,
        title="Coverage and scores of forecasts of simulated runs",
        options={"worlds": worlds} | ({"only": " --only ".join(only)} if only else {}),
    )
