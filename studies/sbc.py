"""Is the particle engine's posterior the posterior? Simulation-based calibration (Talts et al. 2018, arXiv 1804.06788).

``rlforecast study sbc``: parameters are drawn from the prior, a run from the parameters, the posterior from the run. If
the engine is right, each true value is equally likely to lie anywhere among the draws: its PIT value is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "sbc"
BLOCK = 20
"""Runs per task: some seconds of work."""

DRAWS = 99
"""Posterior draws compared with the truth, evenly spaced so that copies left by resampling do not meet."""

BAND = 0.99
POINTS, TRIALS = 30, 16_000.0
FLOOR, FLOOR_SE = 0.25, 0.004


@dataclass(frozen=True)
class Design:
    """A curve family, and whether the floor was measured."""

    family: str
    measured: bool = True


DESIGNS = {
    "sigmoid": Design("sigmoid"),
    "sigmoid, floor latent": Design("sigmoid", measured=False),
    "burr": Design("burr"),
    "power law": Design("power_law"),
    "second rise": Design("second_rise"),
    "collapse": Design("collapse"),
}


def work(task: Task) -> pd.DataFrame:
    """Draw truths, runs and posteriors; one row per run and parameter."""
    import pandas as pd

    number = list(DESIGNS).index(task["design"])
    rows = []
    for k in range(task["first"], task["first"] + task["runs"]):
        rng = np.random.default_rng([task["seed"], number, k])
        for parameter, value in pit_values(DESIGNS[task["design"]], rng).items():
            rows.append({"design": task["design"], "run": k, "parameter": parameter, "pit": value})
    return pd.DataFrame(rows)


def pit_values(design: Design, rng: np.random.Generator) -> dict[str, float]:
    """Where the truth lies among the draws, per parameter, between 0 and 1."""
    from forecast import curves
    from forecast.inference.kernel import unpack
    from forecast.inference.observations import Observations
    from forecast.inference.particle import ParticleEffort, sample_run
    from forecast.inference.priors import get_priors
    from forecast.inference.run_prior import FAMILIES, NOISE, PERSISTENCE, names, run_prior

    log_compute = np.log(np.linspace(0.2, 1.0, POINTS))
    blank = np.zeros(POINTS)

    def observations(fraction: NDArray[np.float64]) -> Observations:
        return Observations(
            runs=("run",),
            recipes=("run",),
            recipe_of_run=np.zeros(1, dtype=np.int64),
            log_reference=np.zeros(1),
            run=np.zeros(POINTS, dtype=np.int64),
            log_compute=log_compute,
            fraction=fraction,
            inverse_trials=blank + 1 / TRIALS,
            first=np.arange(POINTS) == 0,
            distance=blank + 1.0,
            floor=np.array([FLOOR]),
            floor_se=np.array([FLOOR_SE]),
            floor_known=np.array([design.measured]),
            floor_group=np.zeros(1, dtype=np.int64),
            chance=0.0,
            noise_median=np.array([0.007]),
            noise_log_sd=np.array([0.6]),
        )

    prior = run_prior(get_priors("wide"), observations(blank), 0)
    rows, family = prior.rows(design.family), FAMILIES.index(design.family)
    start = np.array([float(design.measured), FLOOR, FLOOR_SE, 0.0, 0.5])
    true = np.empty(len(rows) + 1)
    unpack(rng.standard_normal(len(rows)), family, rows, start, true)
    # In the order of the curve functions, but for the noise; compute where a particle has its log.
    parameters = dict(zip(names(design.family), true, strict=False))
    for name in ("midpoint", "second_midpoint"):
        if name in parameters:
            parameters[name] = np.exp(parameters[name])
    if "drop" in parameters:
        parameters["drop"] = -parameters["drop"]
    shape = {name: value for name, value in parameters.items() if name not in ("noise", "persistence")}
    level = np.clip(getattr(curves, design.family)(np.exp(log_compute), **shape), 0.0, 1.0)
    wander = np.empty(POINTS)
    for i, step in enumerate(rng.standard_normal(POINTS)):
        kept = true[PERSISTENCE] if i else 0.0
        wander[i] = kept * wander[i - 1] + true[NOISE] * np.sqrt(1 - kept**2) * step
    # As the likelihood has it, values may leave 0-1.
    y = level + wander + np.sqrt(level * (1 - level) / TRIALS) * rng.standard_normal(POINTS)
    found = sample_run(
        observations(y),
        0,
        prior,
        family=design.family,
        seed=int(rng.integers(2**31)),
        effort=ParticleEffort(repeats=1, particles=1500, moves=8, keep=0.7),
    )
    keep = np.linspace(0, 1499, DRAWS).round().astype(int)
    pits = {}
    for name, value in parameters.items():
        below = int(np.sum(found.draws[name][0, keep] < value))
        pits[name] = (below + rng.random()) / (DRAWS + 1)
    return pits


def bands(rows: pd.DataFrame) -> pd.DataFrame:
    """Per design and parameter: the largest distance of the ECDF from uniform, and whether it leaves its band."""
    import pandas as pd
    from arviz_stats.ecdf_utils import ecdf_pit

    lines = []
    for (design, parameter), group in rows.groupby(["design", "parameter"], sort=False):
        at, ecdf, low, high = ecdf_pit(group["pit"].to_numpy(), BAND, 1000)
        inside = (low <= ecdf) & (ecdf <= high)
        lines.append(
            {
                "design": design,
                "parameter": parameter,
                "runs": len(group),
                "distance": float(np.abs(ecdf - at).max()),
                "mean": float(group["pit"].mean()),
                "inside": bool(inside.all()),
            }
        )
    return pd.DataFrame(lines)


def markdown(summary: pd.DataFrame) -> str:
    """Summary as a Markdown table, one line per design."""
    lines = [
        f"| design | runs | parameters | mean PIT, lowest and highest | largest distance from uniform | outside the {BAND:.0%} band |",
        "|---" * 6 + "|",
    ]
    for design, group in summary.groupby("design", sort=False):
        worst = group.sort_values("distance").iloc[-1]
        outside = ", ".join(group.loc[~group["inside"], "parameter"]) or "none"
        lines.append(
            f"| {design} | {group['runs'].iloc[0]} | {len(group)} | {group['mean'].min():.3f}-{group['mean'].max():.3f} "
            f"| {worst['distance']:.3f} ({worst['parameter']}) | {outside} |"
        )
    return "\n".join(lines)


def figure(rows: pd.DataFrame) -> Figure:
    """ECDF of the PIT values minus uniform, one panel per design, with ArviZ's simultaneous band."""
    from arviz_stats.ecdf_utils import ecdf_pit
    from matplotlib.figure import Figure

    # arviz_plots 1.x draws no envelope under NumPy 2.5 (it hands numpy.linspace a DataArray).
    drawn = Figure(figsize=(12, 6.5), layout="constrained")
    panels = drawn.subplots(2, -(-len(DESIGNS) // 2), sharex=True, sharey=True)
    for axes, (design, group) in zip(panels.flat, rows.groupby("design", sort=False), strict=False):
        for parameter, own in group.groupby("parameter", sort=False):
            at, ecdf, low, high = ecdf_pit(own["pit"].to_numpy(), BAND, 1000)
            axes.step(at, ecdf - at, lw=1, where="post", label=str(parameter).replace("_", " "))
        axes.fill_between(at, low - at, high - at, color="#cccccc", lw=0, zorder=0)
        axes.axhline(0, color="#000000", lw=0.6)
        axes.set_title(design, loc="left", fontsize=10)
        axes.legend(fontsize=6, ncols=2, frameon=False, loc="lower left")
        axes.spines[["top", "right"]].set_visible(False)
    drawn.supxlabel(f"PIT value of the truth (grey: {BAND:.0%} simultaneous band)", fontsize=10)
    drawn.supylabel("ECDF - uniform", fontsize=10)
    return drawn


NOTES = f"""\
- Every run has {POINTS} evaluations of {TRIALS:,.0f} trials over a fifth to all of its compute; truth and fit share the
  priors. The band holds simultaneously over one parameter's ECDF with probability {BAND}: of N parameters, N / 100 are
  expected outside by chance.
"""


@click.command(NAME)
@click.option("--runs", type=click.IntRange(min=2), default=300, show_default=True, help="Per design.")
@study_options
def sbc(runs: int, where: Where) -> None:
    """Is the particle engine's posterior right? Simulation-based calibration of all five curve families.

    About ten minutes on two cores.
    """
    tasks = [
        Task(
            f"{design}/{first:04d}",
            {"design": design, "first": first, "runs": min(BLOCK, runs - first), "seed": where.seed},
        )
        for design in DESIGNS
        for first in range(0, runs, BLOCK)
    ]
    conduct(
        NAME,
        work,
        tasks,
        lambda rows: (figure(rows), f"{markdown(bands(rows))}\n\n{NOTES}"),
        where,
        title="Simulation-based calibration of the particle engine",
        options={"runs": runs},
    )
