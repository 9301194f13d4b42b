"""What do curves of the tasks look like, and what does a run cost?

``python -m studies.minirun_tasks`` trains three seeds on each task from its warm start and prints where they begin and
end, class by class, how well one sigmoid describes them, and CPU seconds of one core; ``--figure`` draws them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pandas as pd

from forecast.inference.curve_fit import fit_curve
from simulators.minirun.recipes import recipe
from simulators.minirun.settings import RunSettings, changed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RUNS: dict[str, tuple[int, dict[str, str]]] = {
    "addmul": (400, {}),
    "carry_late": (900, {"staleness": "0"}),
    "chain": (400, {}),
    "route": (1500, {}),
}
"""Updates, and what differs from the default recipe."""

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00")


def train(task: str, seeds: int) -> tuple[pd.DataFrame, list[float], float]:
    """Rows of the logs of all seeds, CPU seconds of each run, and of the warm start when it was made."""
    import torch

    from simulators.minirun import training, warm_start
    from simulators.minirun.tasks.registry import task as named

    torch.set_num_threads(1)
    steps, changes = RUNS[task]
    settings = [
        RunSettings(task, recipe=changed(recipe("base"), changes), seed=seed, steps=steps)
        for seed in range(seeds)
    ]
    weights, cost = warm_start.cached(named(task), settings[0].size, settings[0].warm_seed)
    rows, seconds = [], []
    for each in settings:
        begun = time.process_time()
        rows += training.train(each, weights)
        seconds.append(time.process_time() - begun)
    return pd.DataFrame(rows), seconds, cost["seconds"]


def misfit(run: pd.DataFrame) -> float:
    """Root mean squared distance of a run from the sigmoid that fits it best, its floor estimated too."""
    fitted = fit_curve("sigmoid", run["flops"].to_numpy(dtype=float), run["pass_rate"].to_numpy())
    return float("nan") if fitted is None else float(np.sqrt(fitted.sse / len(run)))


def line(task: str, rows: pd.DataFrame, seconds: list[float], warm: float) -> dict[str, Any]:
    """One row of the table."""
    whole = rows[rows["stratum"].isna()]
    ends = whole[whole["step"] == whole["step"].max()]["pass_rate"]
    first = rows[rows["step"] == 0]
    last = rows[rows["step"] == rows["step"].max()]

    def by_class(part: pd.DataFrame) -> str:
        means = part.dropna(subset=["stratum"]).groupby("stratum", sort=False)["pass_rate"].mean()
        return " ".join(f"{name} {value:.2f}" for name, value in means.items())

    runs = [own[own["step"] > 0] for _, own in whole.groupby("seed")]
    return {
        "task": task,
        "updates": int(rows["step"].max()),
        "before": f"{whole[whole['step'] == 0]['pass_rate'].mean():.3f}",
        "classes before": by_class(first),
        "end": f"{ends.min():.3f}-{ends.max():.3f}",
        "classes at the end": by_class(last),
        "rmse of a sigmoid": f"{np.mean([misfit(run) for run in runs]):.3f}",
        "CPU s a run": f"{np.mean(seconds):.0f}",
        "warm start, CPU s": f"{warm:.0f}",
    }


def draw(axes: Axes, task: str, rows: pd.DataFrame) -> None:
    """Mean of the seeds, all prompts and class by class."""
    later = rows[rows["step"] > 0]
    for name, own in [("all", later[later["stratum"].isna()]), *later.groupby("stratum", sort=False)]:
        mean = own.groupby("step")[["flops", "pass_rate"]].mean()
        colour = (
            "#000000" if name == "all" else _COLOURS[later["stratum"].dropna().unique().tolist().index(name)]
        )
        axes.plot(mean["flops"], mean["pass_rate"], color=colour, lw=2.2 if name == "all" else 1, label=name)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(task, loc="left")
    axes.set_xlabel("training compute, FLOPs")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Where to draw the curves.")
def main(seeds: int, figure: Path | None) -> None:
    """Print the table."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 7), layout="constrained")
    lines = []
    for axes, task in zip(drawn.subplots(2, 2).ravel(), RUNS, strict=True):
        rows, seconds, warm = train(task, seeds)
        lines.append(line(task, rows, seconds, warm))
        draw(axes, task, rows)
        print(f"{task} done", flush=True)
    drawn.supylabel("held-out pass rate, mean of seeds")
    print(f"| {' | '.join(lines[0])} |")
    print("|---" * len(lines[0]) + "|")
    for each in lines:
        print(f"| {' | '.join(map(str, each.values()))} |")
    if figure is not None:
        drawn.savefig(figure, dpi=110)


if __name__ == "__main__":
    main()
