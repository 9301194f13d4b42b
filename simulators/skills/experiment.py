"""Several recipes, each with several seeds, on the same base model and prompts: logs with a known truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from forecast.errors import InputError
from forecast.runs.table import UNITS, ComputeAxis, Floor, Metric, Runs
from simulators.files import spec
from simulators.ranges import check_choice, check_counts, check_number
from simulators.skills.acceptance import rates
from simulators.skills.context import room
from simulators.skills.metrics import (
    best_of_n,
    majority,
    pass_at_k,
    sample_solved,
    unbiased_pass_at_k,
    worst_of_k,
)
from simulators.skills.population import STRATA, Population, draw_population
from simulators.skills.settings import MOST_RATE, Costs, Recipe, Settings
from simulators.skills.standing import approaches_ceiling, ceiling
from simulators.skills.training import History, train
from simulators.truth import numbered

SPACINGS = ("even", "log")
MOST_SAMPLES = 10**6


@dataclass(frozen=True)
class SkillsWorld:
    """An experiment: one base model and prompt set, recipes x seeds.

    Attributes
    ----------
    runs : Runs
        The evaluations as a user would have them, of the whole held-out set and of its classes.
    truth : pandas.DataFrame
        One row per run: ``run, recipe, seed``; exact pass rates ``floor`` (before training), ``highest`` and
        ``last``; ``ceiling``, the pass rate with every skill learned, and ``ceiling_is``: ``limit`` where training
        approaches it, ``bound`` elsewhere (see `simulators.skills.standing.approaches_ceiling`); ``last_proxy``, what the verifier says of the last policy; then the recipe's settings.
    curves : pandas.DataFrame
        One row per run and evaluation, before training included: ``run, step``, compute in all units, then exact
        values of the held-out set: ``pass_rate``, ``proxy_pass_rate`` (what the verifier accepts), ``pass_at_4``, ``worst_of_4``,
        ``best_of_4`` (chosen by the verifier), ``majority_of_4``, ``truncated``, ``exploited``, ``entropy``
        (nats per step), the pass rate of every class of prompts, and ``train_pass_rate``.
    recipes : mapping
        Recipes by name.
    """

    runs: Runs
    truth: pd.DataFrame
    curves: pd.DataFrame
    recipes: Mapping[str, Recipe]
    _logs: Mapping[str, Sequence[Mapping[str, Any]]]

    def logs(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """What each run logged: one record per evaluation, then one for each class of prompts."""
        return self._logs

    def spec(self) -> str:
        """``runs.toml`` that reads these logs."""
        return spec(self.runs, strata=True)

    def curve(self, run: str, compute: ArrayLike) -> NDArray[np.float64]:
        """Exact pass rate of one run at `compute` (unit of the run table), linear between evaluations.

        Raises
        ------
        InputError
            If there is no such run, or it did not go that far.
        """
        rows = self.curves[self.curves["run"] == run]
        if rows.empty:
            raise InputError("no such run in this world", found=run, expected=" | ".join(self.truth["run"]))
        known = rows[_COLUMNS[self.runs.compute.unit]]
        wanted = np.asarray(compute, dtype=float)
        if not np.all((wanted >= 0) & (wanted <= known.iloc[-1])):
            raise InputError("the run did not go there", found=compute, expected=f"0 to {known.iloc[-1]:g}")
        return np.interp(wanted, known, rows["pass_rate"])


_COLUMNS = {unit: unit for unit in UNITS} | {"steps": "step"}
"""Column of the logs that holds each unit of compute."""


def draw_recipes(base: Recipe, count: int, rng: np.random.Generator) -> dict[str, Recipe]:
    """`base` and variations of it: learning rate, group size, advantage, staleness, KL.

    Parameters
    ----------
    base : Recipe
    count : int
    rng : numpy.random.Generator
    """
    check_counts(recipes=count)
    recipes = {numbered("recipe", 1, count): base}
    for i in range(2, count + 1):
        stale = bool(rng.random() < 0.5)
        recipes[numbered("recipe", i, count)] = replace(
            base,
            learning_rate=min(float(base.learning_rate * 2 ** rng.uniform(-1, 1)), MOST_RATE),
            rollouts=max(2, round(base.rollouts * float(rng.choice([0.5, 1.0, 2.0])))),
            advantage=str(rng.choice(["grpo", "batch", "unnormalised"])),
            staleness=8 if stale else 0,
            correction="cispo" if stale else "none",
            kl=float(rng.choice([0.0, 0.0, 0.05, 0.15])),
        )
    return recipes


def draw_experiment(
    settings: Settings, recipes: Mapping[str, Recipe], seeds: int, rng: np.random.Generator, **measured: Any
) -> SkillsWorld:
    """Draw a base model with its prompts and train it with every recipe.

    Parameters
    ----------
    settings : Settings
        Its recipe gives way to `recipes`.
    recipes : mapping of str to Recipe
    seeds : int
        Runs of each recipe, which differ in rollouts and the order of prompts.
    rng : numpy.random.Generator
        Source of all randomness.
    **measured
        As in `train_all`.

    Returns
    -------
    SkillsWorld
        Runs named ``RECIPE_s0`` and so on.
    """
    check_counts(seeds=seeds)
    of_population, of_training = rng.spawn(2)
    population = draw_population(settings, 1, of_population).repeat(seeds)
    return train_all(population, settings, recipes, of_training, **measured)


def train_all(
    population: Population,
    settings: Settings,
    recipes: Mapping[str, Recipe],
    rng: np.random.Generator,
    *,
    points: int = 75,
    spacing: str = "even",
    samples: int = 16,
    unit: str = "gpu_hours",
    progress: Callable[[str, int], None] | None = None,
) -> SkillsWorld:
    """Train every world of a population with every recipe, and log it.

    Parameters
    ----------
    population : Population
        The same world several times (`Population.repeat`) for several seeds, or different ones.
    settings : Settings
        What the population was drawn with; its recipe gives way to `recipes`.
    recipes : mapping of str to Recipe
    rng : numpy.random.Generator
        Source of all randomness.
    points : int
        Evaluations per run beside step 0, at most one per update.
    spacing : {"even", "log"}
        Of the evaluations, in steps.
    samples : int
        Rollouts per held-out prompt and evaluation.
    unit : str
        Of the run table's compute.
    progress : callable, optional
        Called with the recipe's name and the number of its steps that are done.

    Returns
    -------
    SkillsWorld
        Runs named ``RECIPE_s0`` and so on, one per world of the population.
    """
    check_counts(recipes=len(recipes), points=points)
    check_number("samples per prompt", samples, 1, MOST_SAMPLES)
    check_choice("spacing of evaluations", spacing, SPACINGS)
    check_choice("compute unit", unit, UNITS)
    root = int(rng.integers(2**63))
    limit = ceiling(population.held_out, room(settings.context, settings.prompts.steps))
    right = rates(settings.verifier, population)[0]
    truth, curves, tables, floors, logs = [], [], [], {}, {}
    for name, recipe in recipes.items():
        # From the name: other recipes, and their order, change nothing.
        stream = np.random.default_rng([root, *name.encode()])
        at = _evaluated(recipe.steps, points, spacing)
        report = None if progress is None else _named(progress, name)
        history = train(population, replace(settings, recipe=recipe), stream, at, report)
        for world in range(population.worlds):
            run = f"{name}_{numbered('s', world, population.worlds - 1)}"
            labels: dict[str, Any] = {"run": run, "recipe": name, "seed": world}
            stratum = population.held_out.stratum[world]
            exact = _exact(history, world, stratum, right, settings.costs)
            records = _measured(history, world, stratum, right, exact, labels, samples, stream)
            logs[run] = records
            floors[run], table = _evaluations(records, unit)
            tables.append(table)
            curves.append(exact.assign(run=run)[["run", *exact.columns]])
            truth.append(
                {
                    **labels,
                    "floor": exact["pass_rate"].iloc[0],
                    "highest": exact["pass_rate"].max(),
                    "last": exact["pass_rate"].iloc[-1],
                    "ceiling": limit[world],
                    "ceiling_is": "limit"
                    if approaches_ceiling(replace(settings, recipe=recipe))
                    else "bound",
                    "last_proxy": exact["proxy_pass_rate"].iloc[-1],
                    **vars(recipe),
                }
            )
    return SkillsWorld(
        runs=Runs(
            table=pd.concat(tables, ignore_index=True),
            metric=Metric("pass_rate"),
            compute=ComputeAxis(unit, derivation="simulated"),
            floors=floors,
        ),
        truth=pd.DataFrame(truth),
        curves=pd.concat(curves, ignore_index=True),
        recipes=dict(recipes),
        _logs=logs,
    )


def _evaluated(steps: int, points: int, spacing: str) -> list[int]:
    """Steps after which to evaluate: whole numbers, each once."""
    count = min(points, steps)
    spaced = np.geomspace(1, steps, count) if spacing == "log" else np.linspace(0, steps, count + 1)[1:]
    return sorted({max(1, round(step)) for step in spaced})


def _evaluations(records: Sequence[Mapping[str, Any]], unit: str) -> tuple[Floor, pd.DataFrame]:
    """Floor and rows of the run table from the records of a log."""
    rows = pd.DataFrame(records)
    start = rows[rows["step"] == 0].iloc[0]
    later = rows[rows["step"] > 0].rename(columns={"pass_rate": "value"})
    later["compute"] = later[_COLUMNS[unit]].astype(float)
    columns = ["run", "recipe", "seed", "step", "compute", "value", "trials", "stratum"]
    return Floor(float(start["pass_rate"]), int(start["trials"])), later[columns]


def _named(progress: Callable[[str, int], None], name: str) -> Callable[[int], None]:
    return lambda step: progress(name, step)


def _exact(
    history: History, world: int, stratum: NDArray[np.int64], right: float, costs: Costs
) -> pd.DataFrame:
    used, held_out = history.used, history.held_out
    solved, accepted = held_out.solved[:, world], held_out.accepted[:, world]
    columns: dict[str, Any] = {
        "step": history.step,
        "rollouts": used.rollouts[:, world],
        "tokens": used.generated[:, world],
        "flops": used.flops(costs)[:, world],
        "gpu_hours": used.gpu_hours(costs)[:, world],
        "pass_rate": solved.mean(axis=1),
        "proxy_pass_rate": accepted.mean(axis=1),
        "pass_at_4": pass_at_k(solved, 4),
        "worst_of_4": worst_of_k(solved, 4),
        "best_of_4": best_of_n(solved, accepted, right, 4),
        "majority_of_4": majority(solved, 4),
        "truncated": held_out.truncated[:, world].mean(axis=1),
        "exploited": held_out.exploited[:, world].mean(axis=1),
        "entropy": held_out.entropy[:, world].mean(axis=1),
        **{f"pass_rate_{STRATA[k]}": solved[:, stratum == k].mean(axis=1) for k in np.unique(stratum)},
        "train_pass_rate": history.train.solved[:, world],
    }
    return pd.DataFrame(columns)


def _measured(
    history: History,
    world: int,
    stratum: NDArray[np.int64],
    right: float,
    exact: pd.DataFrame,
    labels: Mapping[str, Any],
    samples: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Records of a log: every evaluation samples each held-out prompt anew."""
    held_out = history.held_out
    solved = held_out.solved[:, world]
    counts = sample_solved(solved, samples, rng)
    # Of the rollouts that are not right, the verifier accepts the share that the rest of the proxy is.
    wrongly = (held_out.accepted[:, world] - right * solved).clip(0) / np.maximum(1 - solved, 1e-12)
    accepted = rng.binomial(counts, right) + rng.binomial(samples - counts, wrongly.clip(0, 1))
    truncated = rng.binomial(samples * solved.shape[1], exact["truncated"].to_numpy().clip(0, 1))
    records: list[dict[str, Any]] = []
    for k, row in enumerate(exact.to_dict("records")):
        at = {"step": int(row["step"])} | {
            unit: row[unit] for unit in ("rollouts", "tokens", "flops", "gpu_hours")
        }
        whole = {
            "pass_rate": counts[k].mean() / samples,
            "trials": counts[k].size * samples,
            "proxy_pass_rate": accepted[k].mean() / samples,
            "truncated": truncated[k] / (counts[k].size * samples),
            "entropy": row["entropy"],
        }
        if samples >= 4:
            whole["pass_at_4"] = unbiased_pass_at_k(counts[k], samples, 4).mean()
        if k:
            whole |= {
                "batch_reward": history.batch_reward[k, world],
                "zero_variance": 1 - history.mixed[k, world],
                "clip_fraction": history.clipped[k, world],
            }
        records.append({**at, **{name: float(value) for name, value in whole.items()}, **labels})
        records[-1]["trials"] = int(whole["trials"])
        for group in np.unique(stratum):
            mine = counts[k][stratum == group]
            part = {"stratum": STRATA[group], "pass_rate": float(mine.mean() / samples)}
            records.append({**at, **part, "trials": int(mine.size * samples), **labels})
    return records
