"""How a budget of rollouts is best split into prompts per batch, rollouts per prompt and steps.

C rollouts are ``P x G x T``: prompts per batch, rollouts per prompt, steps. Every split is trained once, on the same
worlds, to the largest budget, and evaluated where it has spent each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from forecast.errors import InputError
from simulators.ranges import check_choice, check_counts, check_number, whole_numbers
from simulators.skills.frontier import CHOICE, frontier
from simulators.skills.metrics import pass_at_k, worst_of_k
from simulators.skills.population import Array, draw_population
from simulators.skills.settings import Policy, Prompts, Recipe, Settings
from simulators.skills.training import train

if TYPE_CHECKING:
    import pandas as pd

METRICS: Mapping[str, Callable[[Array], Array]] = {
    "mean": partial(pass_at_k, k=1),
    "pass@4": partial(pass_at_k, k=4),
    "worst@4": partial(worst_of_k, k=4),
}
"""Of the pass rates of held-out prompts."""

SPLITS = tuple((prompts, 2**k) for prompts in (8, 32, 128) for k in range(1, 11))
"""Prompts per batch and rollouts per prompt."""

MULTIPLES = (1 / 3, 1.0, 3.0)
"""Multiples of the learning rate that `best_split` chooses from: which split wins depends on it."""

EASY = tuple(np.linspace(0.3, 0.6, 61).round(6).tolist())
HARD = tuple(((np.arange(50) + 0.5) / 50 * 0.0625).round(6).tolist())
"""Pass rates before training, as of the prompt sets of IsoCompute's sweep."""

_DRAWS = 2_000
_LEAST_RATE = 1e-12


def budget_settings(
    pass_rates: Sequence[float], *, learning_rate: float = 0.03, batch: tuple[int, int] = (32, 32)
) -> Settings:
    """Worlds in which noise has a price.

    Where moving costs nothing, small groups and huge learning rates always win. Here prompts have directions of their
    own in a shared parameter space with curvature: what is learned on 256 training prompts by too many or too noisy
    updates is lost on held-out ones.

    Parameters
    ----------
    pass_rates : sequence of float
        Before training, resampled; each in (0, 1].
    learning_rate : float
        Adam's, at the batch of reference.
    batch : tuple of int
        Prompts and rollouts of that batch. `spend` scales the rate by the square root of the batch P x G.
    """
    prompts, rollouts = batch
    return Settings(
        prompts=Prompts(train=256, held_out=256, pass_rates=tuple(pass_rates)),
        policy=Policy(rank=128, features=1.0, curvature=0.002),
        recipe=Recipe(prompts=prompts, rollouts=rollouts, optimiser="adam", learning_rate=learning_rate),
    )


def spend(
    settings: Settings,
    splits: Sequence[tuple[int, int]],
    budgets: Sequence[int],
    worlds: int,
    seed: int | Sequence[int] = 0,
    *,
    multiples: Sequence[float] = (1.0,),
) -> pd.DataFrame:
    """Train every split on the same worlds; one row per world, split, budget and metric.

    Parameters
    ----------
    settings : Settings
        `recipe` holds the batch at which its learning rate holds; it is scaled by the square root of the batch, as in
        IsoCompute's sweep. Its number of steps is not used.
    splits : sequence of tuple
        Prompts per batch and rollouts per prompt.
    budgets : sequence of int
        Rollouts. A split has no row where one step costs more.
    worlds : int
        Trained together.
    seed : int or sequence of int
        One seed gives the same worlds whatever the splits.
    multiples : sequence of float
        Of the learning rate: every split is trained with each.

    Returns
    -------
    pandas.DataFrame
        Columns ``world``, ``prompts``, ``rollouts``, ``steps``, ``learning_rate`` (at the recipe's batch), ``budget``,
        ``metric`` and ``value``, exact on the held-out prompts.
    """
    import pandas as pd

    budgets, pairs = whole_numbers("budgets", budgets, 1), _pairs(splits)
    seeds = [int(each) for each in np.atleast_1d(seed)]
    check_number("worlds", worlds, 1)
    population = draw_population(settings, worlds, np.random.default_rng([*seeds, 0]))
    recipe = settings.recipe
    parts = []
    for (prompts, rollouts), multiple in product(pairs, multiples):
        batch = prompts * rollouts
        affordable = np.array([budget for budget in budgets if budget >= batch])
        if not affordable.size:
            continue
        steps = affordable // batch
        check_number("multiples of the learning rate", multiple, 0.0)
        reference = recipe.learning_rate * multiple
        rate = reference * math.sqrt(batch / (recipe.prompts * recipe.rollouts))
        own = replace(recipe, prompts=prompts, rollouts=rollouts, learning_rate=rate, steps=int(steps[-1]))
        rng = np.random.default_rng([*seeds, prompts, rollouts])
        history = train(population, replace(settings, recipe=own), rng, at=steps.tolist())
        solved = history.held_out.solved[np.searchsorted(history.step, steps)]
        for metric, measure in METRICS.items():
            columns = {
                "world": np.tile(np.arange(worlds), len(steps)),
                "prompts": prompts,
                "rollouts": rollouts,
                "steps": np.repeat(steps, worlds),
                "learning_rate": reference,
                "budget": np.repeat(affordable, worlds),
                "metric": metric,
                "value": measure(solved).ravel(),
            }
            parts.append(pd.DataFrame(columns))
    if not parts:
        raise InputError(
            "no split can make a step",
            found=f"budgets up to {max(budgets):,} rollouts",
            expected=f"{min(p * g for p, g in pairs):,} or more",
        )
    return pd.concat(parts, ignore_index=True)


def _pairs(splits: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Splits as pairs of whole numbers, each once."""
    try:
        pairs = dict.fromkeys((index(prompts), index(rollouts)) for prompts, rollouts in splits)
    except (TypeError, ValueError) as error:
        raise InputError(
            "splits are no pairs of whole numbers", found=repr(splits), expected="(prompts, rollouts)"
        ) from error
    for prompts, rollouts in pairs:
        check_counts(prompts=prompts, rollouts=rollouts)
    check_counts(splits=len(pairs))
    return list(pairs)


def plausible_rates(
    pass_rates: Sequence[float], samples: int | Sequence[int] | None, rng: np.random.Generator
) -> tuple[float, ...]:
    """Pass rates that may lie behind measured ones, to resample prompts from.

    Parameters
    ----------
    pass_rates : sequence of float
        Of each prompt before training, measured, as fractions.
    samples : int or sequence of int, optional
        Rollouts behind each: a prompt with c of n solved has a rate of Beta(c + .5, n - c + .5), so that 0 of n is not
        taken as impossible. The spread of measured rates holds the noise of measuring already: this adds to it, the
        less the larger n. Default: rates are exact.
    rng : numpy.random.Generator
    """
    try:
        rates = np.asarray(pass_rates, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError("pass_rates are no numbers", found=repr(pass_rates)[:60]) from error
    if rates.ndim != 1 or not rates.size:
        raise InputError(
            "pass_rates is empty or no list", found=f"shape {rates.shape}", expected="one per prompt"
        )
    for rate in rates:
        check_number("pass_rates", rate, 0.0, 1.0, unit=", as fractions")
    if samples is None:
        if (rates == 0).any():
            raise InputError(
                "pass rates of 0 may be small or impossible",
                found=f"{int((rates == 0).sum())} of {rates.size} prompts",
                fix="say how many rollouts per prompt are behind them (samples)",
            )
        return tuple(np.maximum(rates, _LEAST_RATE).tolist())
    counts = np.asarray(samples, dtype=float)
    if counts.ndim > 1 or counts.size not in (1, rates.size):
        raise InputError("samples do not fit pass_rates", found=counts.size, expected=f"one, or {rates.size}")
    for count in counts.ravel():
        check_number("samples", count, 1.0, unit=" rollouts per prompt")
    solved = rates * counts
    drawn = rng.beta(solved + 0.5, counts - solved + 0.5, (math.ceil(_DRAWS / rates.size), rates.size))
    return tuple(np.maximum(drawn, _LEAST_RATE).ravel().tolist())


def best_split(
    pass_rates: Sequence[float],
    budgets: Sequence[int],
    *,
    samples: int | Sequence[int] | None = None,
    metric: str = "mean",
    worlds: int = 8,
    seed: int = 0,
    settings: Settings | None = None,
    splits: Sequence[tuple[int, int]] | None = None,
    multiples: Sequence[float] = MULTIPLES,
) -> pd.DataFrame:
    """Best split of each budget on prompts of your own difficulty, each trained with the learning rate that suits it.

    The intervals hold over simulated worlds; they do not say how much yours is like them. The time is in proportion to
    the largest budget: 2^16 rollouts take about half a minute.

    Parameters
    ----------
    pass_rates, samples
        See `plausible_rates`.
    budgets : sequence of int
        Rollouts.
    metric : {"mean", "pass@4", "worst@4"}
        Of held-out prompts: mean pass rate, probability that one of four, that all four rollouts are right.
    worlds : int
        At least 2.
    seed : int
    settings : Settings, optional
        Its `prompts.pass_rates` are replaced. Default: `budget_settings`.
    splits : sequence of tuple, optional
        Prompts per batch and rollouts per prompt to choose from. Default: `SPLITS`.
    multiples : sequence of float
        Of the settings' learning rate, to choose from.

    Returns
    -------
    pandas.DataFrame
        Some columns of `simulators.skills.frontier.frontier`, one row per budget.
    """
    check_choice("metric", metric, tuple(METRICS))
    check_number("worlds", worlds, 2)
    check_number("seed", seed, 0)
    plausible = plausible_rates(pass_rates, samples, np.random.default_rng([seed, 1]))
    base = budget_settings(plausible) if settings is None else settings
    own = replace(base, prompts=replace(base.prompts, pass_rates=plausible))
    table = spend(own, SPLITS if splits is None else splits, budgets, worlds, seed, multiples=multiples)
    return frontier(table, metric, seed=seed)[list(CHOICE)]
