"""Do signs in the training log warn of a fall, and how often do they show where none comes?

``rlforecast study precursors``: skills worlds are trained, their logs written and read, and every sign looked for at
every evaluation. Worlds drawn at random have no transition: what fires there is a false alarm. The same kind of world
with an exploit, and the presets, say how often and how early signs show where the held-out pass rate does fall.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import numpy as np

from studies.backtest_rows import shown
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecast.runs.table import Runs
    from simulators.skills.experiment import SkillsWorld

NAME = "precursors"
SMOOTH, EXPLOIT = "drawn, no transition", "drawn, with an exploit"
STREAMS = {SMOOTH: 0, EXPLOIT: 1}
SHARES = {SMOOTH: 1.0, EXPLOIT: 0.3}
OF_PRESETS = 0.04
"""Worlds per preset, as a share of those asked for."""
BLOCK = 10

FALL = 0.05
"""Loss of exact pass rate after its highest from which a run counts as one with a transition."""
ONSET = 0.1
"""Share of that loss at which the fall has begun."""

TRAINING_REWARD = "proxy_gap, training reward"
"""The same rule on a log that holds the reward in training, but not what the verifier says of held-out prompts."""

_STYLES = {
    "truncation": ("#0072b2", "s"),
    "zero_variance": ("#e69f00", "D"),
    "entropy": ("#009e73", "o"),
    "proxy_gap": ("#d55e00", "^"),
    TRAINING_REWARD: ("#000000", "x"),
}


def work(task: Task) -> pd.DataFrame:
    """Train the worlds of one task and look for signs; a row per run and sign."""
    import pandas as pd

    if task["set"] not in STREAMS:
        return pd.DataFrame(_rows(_preset(task), task["set"], 0))
    rows = []
    for k in range(task["first"], task["first"] + task["worlds"]):
        rng = np.random.default_rng([task["seed"], STREAMS[task["set"]], k])
        rows += _rows(_drawn(task["set"] == EXPLOIT, rng), task["set"], k)
    return pd.DataFrame(rows)


def _drawn(exploit: bool, rng: np.random.Generator) -> SkillsWorld:
    from simulators.skills.drawing import draw_smooth
    from simulators.skills.experiment import draw_experiment

    settings = draw_smooth(rng)
    if exploit:
        verifier = replace(settings.verifier, exploits=1, exploit_logit=float(rng.uniform(-9, -5)))
        rate = float(np.exp(rng.uniform(np.log(0.1), np.log(2.0))))
        settings = replace(settings, verifier=verifier, recipe=replace(settings.recipe, exploit_rate=rate))
    return draw_experiment(settings, {"recipe1": settings.recipe}, 1, rng)


def _preset(task: Task) -> SkillsWorld:
    from simulators.skills.experiment import train_all
    from simulators.skills.population import draw_population
    from simulators.skills.presets import preset

    settings = preset(task["set"])
    population = draw_population(settings, task["worlds"], np.random.default_rng([task["seed"], 2]))
    rng = np.random.default_rng([task["seed"], 3])
    return train_all(population, settings, {"recipe1": settings.recipe}, rng)


def _rows(world: SkillsWorld, name: str, first: int) -> list[dict[str, object]]:
    from forecast.outlook.precursors import precursors

    unverified = {
        run: [{key: value for key, value in record.items() if key != "proxy_pass_rate"} for record in records]
        for run, records in world.logs().items()
    }
    runs, without = _read(world), _read(replace(world, _logs=unverified))
    rows: list[dict[str, object]] = []
    for k, run in enumerate(runs.names):
        exact = world.curves[world.curves["run"] == run]
        fall, onset = fallen(exact[runs.compute.unit].to_numpy(), exact["pass_rate"].to_numpy())
        signs = [(sign.name, sign) for sign in precursors(runs, run)]
        signs += [(TRAINING_REWARD, sign) for sign in precursors(without, run) if sign.name == "proxy_gap"]
        rows += [
            {
                "set": name,
                "world": first + k,
                "precursor": precursor,
                "fired": sign.fired,
                "since": sign.since,
                "fall": fall,
                "onset": onset,
            }
            for precursor, sign in signs
        ]
    return rows


def _read(world: SkillsWorld) -> Runs:
    """Run table as a user gets it from the logs."""
    import forecast as fc
    from simulators.files import write_logs

    with TemporaryDirectory() as folder:
        write_logs(world, Path(folder))
        return fc.read_runs(Path(folder) / "runs.toml")


def fallen(compute: np.ndarray, value: np.ndarray) -> tuple[float, float]:
    """Loss of an exact curve after its highest, and the compute at which a share `ONSET` of it is lost.

    Parameters
    ----------
    compute, value : ndarray
        The curve, in order of compute.

    Returns
    -------
    fall : float
        Highest value minus the lowest one after it.
    onset : float
        In the unit of `compute`, linear between evaluations; NaN where less than `FALL` is lost.
    """
    top = int(np.argmax(value))
    fall = float(value[top] - value[top:].min())
    if fall < FALL:
        return fall, float("nan")
    level = value[top] - ONSET * fall
    below = top + int(np.argmax(value[top:] < level))
    return fall, float(np.interp(-level, -value[below - 1 : below + 1], compute[below - 1 : below + 1]))


def tasks(worlds: int, seed: int) -> list[Task]:
    """All work, presets first."""
    from simulators.skills.presets import PRESETS

    size = max(1, round(OF_PRESETS * worlds))
    made = [Task(name, {"set": name, "first": 0, "worlds": size, "seed": seed}) for name in PRESETS]
    for name, share in SHARES.items():
        count = max(1, round(share * worlds))
        for first in range(0, count, BLOCK):
            block = {"set": name, "first": first, "worlds": min(BLOCK, count - first), "seed": seed}
            made.append(Task(f"{name.replace(', ', '/').replace(' ', '-')}/{first:04d}", block))
    return made


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per set, with or without a fall, and sign.

    Returns
    -------
    pandas.DataFrame
        ``set, falls, precursor, runs``; ``fired``, the share of them where it did; ``lead``, ``lead_10``, ``lead_90``:
        compute at which it fired over compute at which the fall began (below 1: before), median and deciles of those
        that fired; ``early``, the share of all runs where it fired before.
    """
    import pandas as pd

    rows = rows.assign(lead=rows["since"] / rows["onset"], falls=rows["onset"].notna())
    names = list(dict.fromkeys([SMOOTH, EXPLOIT, *rows["set"]]))
    lines = []
    for name in names:
        for falls in (False, True):
            for precursor in _STYLES:
                mine = rows[
                    (rows["set"] == name) & (rows["falls"] == falls) & (rows["precursor"] == precursor)
                ]
                if mine.empty:
                    continue
                lead = mine["lead"].dropna()
                deciles = lead.quantile([0.1, 0.5, 0.9]).to_numpy()
                lines.append(
                    {
                        "set": name,
                        "falls": falls,
                        "precursor": precursor,
                        "runs": len(mine),
                        "fired": mine["fired"].mean(),
                        "lead_10": deciles[0],
                        "lead": deciles[1],
                        "lead_90": deciles[2],
                        "early": (mine["lead"] < 1).mean() if falls else np.nan,
                    }
                )
    return pd.DataFrame(lines)


def markdown(summary: pd.DataFrame) -> str:
    """Summary as a Markdown table: a row per set, a cell per sign."""
    lines = [
        f"| worlds | held-out pass rate | runs | {' | '.join(_STYLES)} |",
        "|---" * (3 + len(_STYLES)) + "|",
    ]
    for (name, falls), group in summary.groupby(["set", "falls"], sort=False):
        by_sign = {row["precursor"]: row for row in group.to_dict("records")}
        cells = []
        for precursor in _STYLES:
            if precursor not in by_sign:
                cells.append("-")
                continue
            row = by_sign[precursor]
            cell = shown(row["fired"], ".3f")
            if np.isfinite(row["lead"]):
                cell += f" at {row['lead']:.2f} ({row['lead_10']:.2f}-{row['lead_90']:.2f}), early {row['early']:.2f}"
            cells.append(cell)
        label = name if name in STREAMS else f"preset `{name}`"
        what = "falls" if falls else "does not fall"
        lines.append(f"| {label} | {what} | {group['runs'].max()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(summary: pd.DataFrame) -> Figure:
    """Share of runs where each sign shows, and when relative to the fall; one line per set."""
    from matplotlib.figure import Figure

    groups = list(summary.groupby(["set", "falls"], sort=False))
    drawn = Figure(figsize=(11, 0.45 * len(groups) + 1.8), layout="constrained")
    share, lead = drawn.subplots(1, 2, sharey=True)
    labels = [f"{name}{' (falls)' if falls else ''}" for (name, falls), _ in groups]
    for k, (precursor, (colour, marker)) in enumerate(_STYLES.items()):
        offset = 0.13 * (k - (len(_STYLES) - 1) / 2)
        mine = [group[group["precursor"] == precursor] for _, group in groups]
        at = np.array([len(groups) - 1 - i - offset for i, group in enumerate(mine) if len(group)])
        some = {
            column: np.array([group[column].iloc[0] for group in mine if len(group)])
            for column in ("fired", "lead", "lead_10", "lead_90")
        }
        share.plot(some["fired"], at, marker, color=colour, ms=5, label=precursor)
        error = [some["lead"] - some["lead_10"], some["lead_90"] - some["lead"]]
        lead.errorbar(some["lead"], at, xerr=error, fmt=marker, color=colour, ms=5, lw=1)
    share.set_yticks(np.arange(len(groups))[::-1], labels)
    share.set_xlim(-0.03, 1.03)
    share.set_xlabel("share of runs where it fires")
    share.legend(loc="lower left", frameon=False, ncols=3, bbox_to_anchor=(0, 1))
    lead.axvline(1, color="#000000", lw=1, ls=":")
    lead.set_xlabel("compute where it fires / where the fall begins\n(median, 10-90 %)")
    for axes in (share, lead):
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


NOTES = f"""\
- Cells: share of runs where the sign shows; where the pass rate falls, also when: compute at which it fired over compute
  at which {100 * ONSET:g} % of the later loss of exact pass rate was lost (below 1: before), median of the runs where
  it fired (10-90 %), and the share of all runs where it fired before. "Falls": by {FALL:g} or more.
- False alarms are what fires in the first line. A quarter of these worlds have a length limit, and no simulated policy
  learns to write longer: of truncation, that share is the least to expect.
- `{TRAINING_REWARD}`: the log holds the reward in training only. Elsewhere the proxy is what the verifier says of the
  held-out prompts.
"""


@click.command(NAME)
@click.option("--worlds", type=click.IntRange(min=1), default=200, show_default=True)
@study_options
def precursors(worlds: int, where: Where) -> None:
    """Do signs in the training log warn of a fall, and how often do they show where none comes?

    About five minutes on two cores.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        summary = summarise(rows)
        return figure(summary), f"{markdown(summary)}\n\n{NOTES}"

    conduct(
        NAME,
        work,
        tasks(worlds, where.seed),
        report,
        where,
        title="Signs in the training log before a fall",
        options={"worlds": worlds},
    )
