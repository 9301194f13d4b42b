"""Do forecasts that average over transitions hold, and what do flags see, how late and how often in vain?

``rlforecast study transitions``: on simulated runs with a known truth. Bands: the sigmoid's interval and averaged ones,
where none to four tenths of the runs rise again or collapse within a factor of four of the data. Flags: what each
statistic says before, at a tenth and at three tenths of a move. Watched: runs read at every evaluation, with the
states that a user would have seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "transitions"

TIMES = (1.5, 2.0, 4.0, 8.0)
TRUE_HAZARD = 0.083
"""Per decade and kind: a fifth of the runs move within the 1.2 decades in which their moves are drawn."""

HAZARDS = (0.021, 0.05, TRUE_HAZARD, 0.33)
"""A quarter of the true one, the default, the true one, and four times it."""

POINTS = {"bands": 40, "flags": 57, "watched": 30}
"""Evaluations that are seen."""

BANDS = {"smooth": 0.8, "slow": 0.1, "move": 0.4}
FLAGS = {"smooth": 0.3, "slow": 0.1} | {
    f"{kind} {done:g}": 0.1 for kind in ("rise", "collapse") for done in (0.005, 0.1, 0.3)
}
WATCHED = {"smooth": 0.75, "slow": 0.75, "rise": 0.1, "collapse": 0.1}
"""Worlds of each kind, as shares of those asked for."""

_BLOCK = {"bands": 10, "flags": 10, "watched": 5}  # worlds per task: half a minute of work
_PARTS = {"bands": BANDS, "flags": FLAGS, "watched": WATCHED}


def work(task: Task) -> pd.DataFrame:
    """Draw and measure the worlds of one task."""
    import pandas as pd

    measure = {"bands": _bands, "flags": _flags, "watched": _watched}[task["part"]]
    rows: list[dict[str, Any]] = []
    for k in range(task["first"], task["first"] + task["worlds"]):
        stream = [
            task["seed"],
            list(_PARTS).index(task["part"]),
            list(_PARTS[task["part"]]).index(task["cell"]),
        ]
        rows += [row | {"world": k} for row in measure(task["cell"], np.random.default_rng([*stream, k]), k)]
    return pd.DataFrame(rows).assign(part=task["part"], cell=task["cell"])


def _bands(cell: str, rng: np.random.Generator, k: int) -> list[dict[str, Any]]:
    """Intervals of later evaluations: the sigmoid's, and averaged ones with several hazards."""
    from forecast.inference.observations import observe
    from forecast.inference.priors import drift_sd, get_priors
    from forecast.inference.run_prior import run_prior
    from forecast.inference.weighing import flattened, weigh
    from forecast.outlook.averaged import average
    from forecast.outlook.draws import CurveDraws, drift_draws
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.scores import crps
    from studies.transition_worlds import NOW, PROMPTS, SAMPLES, draw

    world = draw(
        rng, points=POINTS["bands"], ahead=TIMES[-1], slow=cell == "slow", kind="either" * (cell == "move")
    )
    priors, trials = get_priors("wide"), PROMPTS * SAMPLES
    observations = observe(world.runs.window(upto=NOW))
    weighed = weigh(observations, 0, run_prior(priors, observations, 0), seed=[k], close=())
    draws, _ = flattened(weighed.particles["sigmoid"])
    drift = drift_sd(trials)
    single = CurveDraws(
        **{name: draws[name] for name in ("floor", "ceiling", "exponent", "midpoint", "noise")},
        drift=drift_draws(drift, len(draws["floor"]), rng),
        fitted_upto=NOW,
    )
    curves = {"sigmoid": single} | {
        f"{rate:g}": average(single, [weighed], Hazard(rate, rate), priors, drift, rng) for rate in HAZARDS
    }
    table = world.runs.overall()
    at = [int(np.argmin(np.abs(table["compute"] - times * NOW))) for times in TIMES]
    compute, observed = (table[name].to_numpy()[at] for name in ("compute", "value"))
    rows = []
    for name, curve in curves.items():
        found = curve.evaluation(compute, trials, rng)
        low, middle, high = np.quantile(found, (0.025, 0.5, 0.975), axis=0)
        scores = crps(found, observed)
        rows += [
            {
                "forecast": name,
                "times": times,
                "inside": float(low[i] <= observed[i] <= high[i]),
                "width": high[i] - low[i],
                "crps": scores[i],
                "error": middle[i] - observed[i],
            }
            for i, times in enumerate(TIMES)
        ]
    return rows


def _flags(cell: str, rng: np.random.Generator, k: int) -> list[dict[str, Any]]:
    """What each statistic says at the last evaluation."""
    from forecast.inference.observations import observe
    from forecast.inference.priors import get_priors
    from forecast.inference.run_prior import run_prior
    from forecast.inference.weighing import MOVES, weigh
    from forecast.outlook.averaged import window_decades
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.readings import WATCH_LOG_BF, cusum, read
    from forecast.outlook.strata import stratum_channel
    from studies.transition_worlds import draw, with_classes

    kind, _, done = cell.partition(" ")
    world = draw(
        rng,
        points=POINTS["flags"],
        slow=cell == "slow",
        kind=kind * bool(done),
        done=float(done) if done else None,
    )
    runs = with_classes(world, rng)
    priors = get_priors("wide")
    observations = observe(runs)
    prior = run_prior(priors, observations, 0)
    weighed = weigh(observations, 0, prior, seed=[k], close=(WATCH_LOG_BF,))
    reading = read(weighed, observations, 0, prior, [k])
    strata = stratum_channel(runs, runs.names[0])
    assert strata is not None
    hazard = Hazard()
    row: dict[str, Any] = {"cusum": cusum(observations, 0, prior, [k]), "strata": strata.statistic}
    for move in MOVES:
        row[f"log_bf_{move}"] = reading.log_bf[move]
        row[f"log_bf_se_{move}"] = reading.log_bf_se[move]
        row[f"p_onset_{move}"] = reading.p_onset(move, hazard, window_decades(priors))
        row[f"state_{move}"] = reading.state(move, hazard, window_decades(priors))
    return [row | {"strata_state": strata.state}]


def _watched(cell: str, rng: np.random.Generator, k: int) -> list[dict[str, Any]]:
    """One row per evaluation of a run that is watched from its eighth evaluation on."""
    from forecast.inference.observations import observe
    from forecast.inference.priors import get_priors
    from forecast.inference.run_prior import run_prior
    from forecast.inference.weighing import MOVES
    from forecast.outlook.averaged import window_decades
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.readings import MINIMUM, glance
    from forecast.outlook.transitions import states
    from studies.transition_worlds import draw, tenth

    moves = cell in MOVES
    world = draw(
        rng,
        points=POINTS["watched"],
        slow=cell == "slow",
        kind=cell * moves,
        location=(0.4, 1.0) if moves else (1.0, 1.0),
    )
    priors, compute = get_priors("wide"), world.runs.overall()["compute"].to_numpy()
    readings = []
    for n in range(MINIMUM, len(compute) + 1):
        observations = observe(world.runs.window(upto=float(compute[n - 1])))
        readings.append(glance(observations, 0, run_prior(priors, observations, 0), [k, n]))
    found = states(readings, Hazard(), window_decades(priors))
    return [
        {"compute": reading.compute, "tenth": tenth(world)}
        | {f"log_bf_{move}": reading.log_bf[move] for move in MOVES}
        | {f"log_bf_guarded_{move}": reading.log_bf_guarded[move] for move in MOVES}
        | {f"state_{move}": state[move] for move in MOVES}
        for reading, state in zip(readings, found, strict=True)
    ]


def tasks(worlds: int, seed: int) -> list[Task]:
    """All work, the slowest first."""
    made = []
    for part in reversed(_PARTS):
        for cell, share in _PARTS[part].items():
            count = max(2, round(share * worlds))
            for first in range(0, count, _BLOCK[part]):
                size = min(_BLOCK[part], count - first)
                parameters = {"part": part, "cell": cell, "first": first, "worlds": size, "seed": seed}
                made.append(Task(f"{part}/{cell}/{first:04d}", parameters))
    return made


@click.command(NAME)
@click.option("--worlds", type=click.IntRange(min=5), default=200, show_default=True)
@study_options
def transitions(worlds: int, where: Where) -> None:
    """Do averaged forecasts hold where runs rise again or collapse, and what do the flags see?

    About half an hour on two cores.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        from studies.transition_summary import figure, markdown

        return figure(rows), markdown(rows)

    conduct(
        NAME,
        work,
        tasks(worlds, where.seed),
        report,
        where,
        title="Forecasts and flags where runs may rise again or collapse",
        options={"worlds": worlds},
    )
