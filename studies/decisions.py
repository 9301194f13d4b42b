"""Are stated probabilities of decisions calibrated, and do the choices pay?

``rlforecast study decisions``: on simulated runs with a known truth, seen up to one to six times their midpoints. Pairs:
is the probability that a recipe's ceiling is higher right, and are the verdicts? Choices: is the probability of a target
right, is the run that `budget` would continue the best one, and what is lost against two rules of thumb? Looks: where
`budget` says that an experiment is worth it, it is made, refitted and followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from studies.conduct import Where, conduct
from studies.decision_worlds import BANDS, NOW, draw_choice, draw_pair, evaluation
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecast.fits import Fit
    from forecast.inference.least_squares import LeastSquares
    from forecast.outlook.budget import Decision
    from forecast.runs.table import Runs
    from simulators.truth import Recipe
    from simulators.worlds import World

NAME = "decisions"

HORIZONS = (2.0, 4.0, 8.0)
"""Where targets are asked for, in units of what is seen."""

MULTIPLES = (1.5, 3.0, 8.0)
"""What the continued run has used at the end of a budget, in the same units."""

LOOK = 3.0
"""Of which experiments are worked out for this one, where it is not decided."""

TARGET_SD = 0.03
"""How far targets lie from the forecasts."""

_SEEDS = {"pairs": 1, "together": 2}
"""Runs of each recipe of a pair."""

_PARTS = ("pairs", "together", "choices", "spread")
_BLOCK = {"pairs": 5, "together": 1, "choices": 2, "spread": 2}  # worlds per task: some ten seconds of work

Rows = list[dict[str, Any]]


def work(task: Task) -> pd.DataFrame:
    """Draw, fit and ask the worlds of one task."""
    import pandas as pd

    part, rows = task["part"], []
    for k in range(task["first"], task["first"] + task["worlds"]):
        stream = [task["seed"], _PARTS.index(part)]
        found = _pair(part, stream, k) if part in _SEEDS else _choices(part, stream, k)
        rows += [{"part": part, "world": k} | row for row in found]
    return pd.DataFrame(rows)


def _fit(runs: Runs, engine: str, seed: int) -> Fit | str:
    """Fit, or why there is none of every run."""
    import forecast as fc

    try:
        fit = fc.fit(runs, engine=engine, seed=seed)
    except fc.Withheld as refusal:
        return str(refusal)
    if fit.refused:
        return "; ".join(f"{run} {reason}" for run, reason in fit.refused.items())
    return fit if fit.passed else "diagnostics failed"


def _incumbents(fit: Fit, level: str) -> dict[str, LeastSquares]:
    """Least-squares curve by name; every run here has a floor that leaves room for one."""
    from forecast.outlook.fitted_curves import curve_names, incumbents

    found = {name: incumbents(fit, level, name) for name in curve_names(fit, level)}
    return {name: curve for name, curve in found.items() if curve is not None}


def _pair(part: str, stream: list[int], k: int) -> Rows:
    """One row: what is said of two recipes, and what is true."""
    import forecast as fc

    world, recipes = draw_pair(stream, k, _SEEDS[part])
    engine, level = ("particle", "run") if part == "pairs" else ("hierarchical", "recipe")
    truth = {
        "band": list(BANDS)[k % len(BANDS)],
        "difference": recipes[1].ceiling - recipes[0].ceiling,
        "drifted": _drifted(world, recipes[1]) - _drifted(world, recipes[0]),
        "speed": _speed(recipes),
        "seen": NOW / max(recipe.midpoint for recipe in recipes),
    }
    fit = _fit(world.runs, engine, k)
    if isinstance(fit, str):
        return [truth | {"skipped": fit}]
    said = fc.compare(fit, level=level).iloc[0]
    grid = _incumbents(fit, level)
    names = (
        "difference_q05",
        "difference_q50",
        "difference_q95",
        "p_higher",
        "p_within",
        "p_faster",
        "verdict",
    )
    return [
        truth
        | {name: said[name] for name in names}
        | {"least_squares": grid[said["second"]].ceiling - grid[said["first"]].ceiling}
    ]


def _drifted(world: World, recipe: Recipe) -> float:
    """Where a recipe would level off if the drift of its runs stopped now."""
    runs = world.truth[world.truth["recipe"] == recipe.name]
    return recipe.ceiling + float((runs["creep"] * np.log1p(NOW / runs["midpoint"])).mean())


def _speed(recipes: list[Recipe]) -> float:
    """Compute that the first recipe needs over what the second needs, as `compare` defines it."""
    from forecast.curves.sigmoid import sigmoid_compute_to
    from forecast.outlook.comparison import SHARE

    floor, ceiling = max(one.floor for one in recipes), min(one.ceiling for one in recipes)
    level = np.array([floor + SHARE * (ceiling - floor)])
    first, second = (
        sigmoid_compute_to(level, one.floor, one.ceiling, one.exponent, one.midpoint) for one in recipes
    )
    return float((first / second)[0])


def _choices(part: str, stream: list[int], k: int) -> Rows:
    """Rows of a world of several runs: targets, budgets, their options, and an experiment that is worth it."""
    import forecast as fc

    world = draw_choice(stream, k, spread=part == "spread")
    fit = _fit(world.runs, "particle", k)
    if isinstance(fit, str):
        return [{"skipped": fit}]
    runs = list(world.runs.names)
    grid = _incumbents(fit, "run")
    rng = np.random.default_rng([*stream, k, 2])
    rows = _targets(world, fit, grid, rng)
    decision = fc.budget(fit, spend=[(m - 1) * NOW for m in MULTIPLES], names=runs, experiments=False)
    for multiple in MULTIPLES:
        rows += _budget(world, decision, grid, multiple)
    said = decision.choices.set_index("budget").loc[(LOOK - 1) * NOW]
    return rows if said["verdict"] == "decided" else rows + _look(world, fit, runs, rng)


def _targets(world: World, fit: Fit, grid: dict[str, LeastSquares], rng: np.random.Generator) -> Rows:
    """Ask for one target per run and horizon.

    It lies around the mean of both forecasts: around the truth, it would tell what the forecasts do not know.
    """
    import forecast as fc
    from forecast.inference.priors import drift_sd
    from forecast.outlook.draws import drift_draws

    forecast = fit.predict([h * NOW for h in HORIZONS]).set_index(["name", "compute"])["mean"]
    rows = []
    trials = float(world.log["trials"].iloc[0])
    drifts = drift_draws(drift_sd(trials), len(grid), rng)
    for (run, curve), drift in zip(grid.items(), drifts, strict=True):
        for horizon in HORIZONS:
            compute = horizon * NOW
            point = float(curve.predict([compute])[0])
            centre = (float(forecast[run, compute]) + point) / 2
            target = float(np.clip(centre + TARGET_SD * rng.standard_normal(), 0.02, 0.98))
            true = float(world.curve(run, [compute])[0])
            said = fc.budget(fit, at=[compute], target=target, names=[run], experiments=False).options.iloc[0]
            rows.append(
                {
                    "kind": "target",
                    "times": horizon,
                    "seen": _seen(world, run),
                    "p": said["p_target"],
                    "least_squares": float(point >= target),
                    "happened": float(true >= target),
                    "happened_drifting": float(true + drift * np.log(horizon) >= target),
                }
            )
    return rows


def _seen(world: World, run: str) -> float:
    return NOW / float(world.truth.set_index("run")["midpoint"][run])


def _budget(world: World, decision: Decision, grid: dict[str, LeastSquares], multiple: float) -> Rows:
    """One row of the choice, and one for each option."""
    size = (multiple - 1) * NOW
    options = decision.options[decision.options["budget"] == size]
    chosen = decision.choices.set_index("budget").loc[size]
    truth = {
        row["option"]: float(world.curve(row["name"], [row["compute"]])[0]) for _, row in options.iterrows()
    }
    best = max(truth.values())
    table = world.runs.overall()
    last = {run: own["value"].to_numpy() for run, own in table.groupby("run", sort=False)}
    rules = {
        "least_squares": max(grid, key=lambda run: float(grid[run].predict([multiple * NOW])[0])),
        "leader": max(grid, key=lambda run: last[run][-1]),
        "leader_of_3": max(grid, key=lambda run: last[run][-3:].mean()),
    }
    choice = {
        "kind": "choice",
        "times": multiple,
        "options": len(options),
        "p": chosen["p_best"],
        "happened": float(truth[chosen["option"]] == best),
        "stated": chosen["regret"],
        "regret": best - truth[chosen["option"]],
        "verdict": chosen["verdict"],
        "stops": float(chosen["option"].startswith("stop")),
    } | {f"regret_{rule}": best - truth[f"continue {run}"] for rule, run in rules.items()}
    each = [
        {
            "kind": "option",
            "times": multiple,
            "p": row["p_best"],
            "happened": float(truth[row["option"]] == best),
        }
        for _, row in options.iterrows()
    ]
    return [choice, *each]


def _look(world: World, fit: Fit, runs: list[str], rng: np.random.Generator) -> Rows:
    """One row if an experiment is recommended: it is made, the runs are fitted again, and the new choice is taken."""
    import forecast as fc

    extra = (LOOK - 1) * NOW
    decision = fc.budget(fit, spend=[extra], names=runs)
    found = decision.experiment(extra)
    if found is None:
        return [{"kind": "look"}]
    tried = [label.removeprefix("continue ") for label in found["options"].split(" + ")]
    share = float(found["share"])
    seen = {run: evaluation(world, run, NOW + share * extra, rng) for run in tried}
    again = _fit(_with(world.runs, seen, NOW + share * extra), "particle", fit.settings.seed)
    row = {"kind": "look", "tried": len(tried), "share": share, "stated": found["gain"]} | {
        "stated_se": found["gain_se"],
        "p_change": found["p_change"],
    }
    if isinstance(again, str):
        return [row | {"skipped": again}]
    now, run_of, at_once, left = decision.choices["option"].iloc[0], {}, {}, {}
    for option in decision.options.to_dict("records"):
        label, used = option["option"], sum(f"continue {run}" != option["option"] for run in tried)
        run_of[label], at_once[label] = option["name"], NOW + option["extra"]
        # What the experiment gave to other runs is gone; to stop is to keep a run as it is.
        left[label] = NOW + option["extra"] * (1 - share * used)
    after = {label: _mean(again, run, left[label]) for label, run in run_of.items()}
    then = max(after, key=lambda label: after[label])

    def true(label: str, compute: float) -> float:
        return float(world.curve(run_of[label], [compute])[0])

    return [
        row
        | {
            "changed": float(then != now),
            "gain": true(then, left[then]) - true(now, at_once[now]),
            "believed": after[then] - _mean(again, run_of[now], at_once[now]),
        }
    ]


def _mean(fit: Fit, run: str, compute: float) -> float:
    return float(fit.predict([compute], names=[run])["mean"].iloc[0])


def _with(runs: Runs, seen: dict[str, float], compute: float) -> Runs:
    """Add one evaluation to some runs."""
    from dataclasses import replace

    import pandas as pd

    last = runs.table.groupby("run", sort=False).tail(1)
    new = last[last["run"].isin(list(seen))].assign(compute=compute)
    new = new.assign(value=new["run"].map(seen), step=(new["step"] * compute / NOW).round().astype(int))
    table = pd.concat([runs.table, new], ignore_index=True).sort_values(
        ["run", "compute"], kind="stable", ignore_index=True
    )
    return replace(runs, table=table)


def tasks(counts: dict[str, int], seed: int) -> list[Task]:
    """All work, the slowest first; `counts` are worlds by part."""
    made = []
    for part in reversed(_PARTS):
        for first in range(0, counts[part], _BLOCK[part]):
            size = min(_BLOCK[part], counts[part] - first)
            made.append(
                Task(f"{part}/{first:04d}", {"part": part, "first": first, "worlds": size, "seed": seed})
            )
    return made


@click.command(NAME)
@click.option("--pairs", type=click.IntRange(min=3), default=200, show_default=True, help="Pairs of runs.")
@click.option(
    "--together", type=click.IntRange(min=3), default=24, show_default=True, help="Pairs of recipes."
)
@click.option(
    "--worlds",
    type=click.IntRange(min=3),
    default=60,
    show_default=True,
    help="Worlds to choose in, of each kind.",
)
@study_options
def decisions(pairs: int, together: int, worlds: int, where: Where) -> None:
    """Are stated probabilities of decisions calibrated, and do the choices pay?

    About fifteen minutes on two cores.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        from studies.decision_summary import figure, markdown

        return figure(rows), markdown(rows)

    counts = {"pairs": pairs, "together": together, "choices": worlds, "spread": worlds}
    conduct(
        NAME,
        work,
        tasks(counts, where.seed),
        report,
        where,
        title="Decisions on simulated runs: stated probabilities against what is true, and what choices lose",
        options={"pairs": pairs, "together": together, "worlds": worlds},
    )
