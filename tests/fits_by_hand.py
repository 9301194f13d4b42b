"""Fits whose posterior is written down, not sampled: for tests of everything that only reads a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from forecast.curves import sigmoid
from forecast.fits import Fit, Settings
from forecast.inference.diagnostics import Check
from forecast.runs.receipt import Receipt
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

CHAINS, DRAWS = 2, 300
FLOOR, CEILING, EXPONENT, MIDPOINT = 0.40, 0.60, 1.9, 3_000.0
"""The curve of the first run; recipe r has a ceiling .01 r higher."""


def hand_runs(
    names: Mapping[str, str] | Sequence[str] = ("alpha", "beta"),
    *,
    compute: Sequence[float] = tuple(np.linspace(1_000, 16_000, 16)),
    metric: Metric | None = None,
    axis: ComputeAxis | None = None,
    seed: int = 0,
) -> Runs:
    """Evaluations of one sigmoid per run.

    Parameters
    ----------
    names : mapping of run to recipe, or sequence of runs that are recipes of their own
    compute : sequence of float
        Where each run was evaluated, in GPU-hours unless `axis` says otherwise.
    metric, axis : optional
        Default: pass rate of 1,000 held-out prompts x 16 samples; GPU-hours.
    seed : int
    """
    metric = metric or Metric("acc", prompts=1000, samples_per_prompt=16)
    recipe_of = names if isinstance(names, Mapping) else {name: name for name in names}
    recipes = list(dict.fromkeys(recipe_of.values()))
    rng = np.random.default_rng(seed)
    parts = []
    for run, recipe in recipe_of.items():
        x = np.asarray(compute, float)
        y = sigmoid(x, FLOOR, CEILING + 0.01 * recipes.index(recipe), EXPONENT, MIDPOINT)
        y = y + 0.004 * rng.standard_normal(len(x))
        parts.append(
            pd.DataFrame({"run": run, "recipe": recipe, "compute": x, "value": metric.from_fraction(y)})
        )
    return Runs(
        table=pd.concat(parts),
        metric=metric,
        compute=axis or ComputeAxis("gpu_hours", "sum of time_per_step × 0.0222"),
        floors={run: Floor(metric.from_fraction(FLOOR)) for run in recipe_of},
        receipts=(
            Receipt(
                "points.csv", "csv", rows_read=len(compute) * len(recipe_of) + 3, dropped={"no value": 3}
            ),
        ),
    )


def fit_by_hand(
    runs: Runs | None = None,
    *,
    upto: float | None = 8_000.0,
    passed: bool | None = True,
    pooled: tuple[str, ...] = ("ceiling", "exponent"),
    independent_shift: float = 0.0,
    refused: Mapping[str, str] | None = None,
    ceiling_sd: float = 0.01,
    noise: float = 0.004,
    seed: int = 0,
    **settings: Any,
) -> Fit:
    """A fit of `runs` whose draws are normal around the curves of `hand_runs`.

    Parameters
    ----------
    runs : Runs, optional
        Default `hand_runs()`.
    upto : float or None
        End of the fitted range.
    passed : bool or None
        Outcome of the one diagnostic.
    pooled : tuple of str
        Parameters said to be pooled; when not empty there is an independent posterior too.
    independent_shift : float
        How much higher the ceilings of the independent posterior are.
    refused : mapping of str to str, optional
        Runs said to be refused, with the reason; they have no draws unless ``forced=True``.
    ceiling_sd : float
        Posterior sd of the ceilings.
    noise : float
        Evaluation noise beyond the binomial.
    seed : int
    **settings
        Further fields of `Settings`.
    """
    runs = runs if runs is not None else hand_runs()
    refused = dict(refused or {})
    asked = Settings(upto=upto, seed=seed, **settings)
    window = runs.window(asked.start, upto)
    kept = [name for name in window.names if asked.forced or name not in refused]
    recipes = list(dict.fromkeys(runs.recipes[name] for name in kept))
    recipe_of_run = [recipes.index(runs.recipes[name]) for name in kept]
    rng = np.random.default_rng(seed)

    def draws(shift: float) -> xr.Dataset:
        shape = (CHAINS, DRAWS, len(recipes))

        def normal(mean: Any, sd: float, of: str = "recipe") -> np.ndarray:
            size = shape if of == "recipe" else (CHAINS, DRAWS)
            return mean + sd * rng.standard_normal(size)

        ceiling = normal(CEILING + 0.01 * np.arange(len(recipes)) + shift, ceiling_sd)
        ceiling = np.clip(ceiling, FLOOR + 0.01, 0.99)
        share = (ceiling - FLOOR) / (1 - FLOOR)
        recipe = {
            "gain": np.log(share / (1 - share)),
            "log_exponent": normal(np.log(EXPONENT), 0.05),
            "log_midpoint": normal(np.log(MIDPOINT), 0.05),
        }
        per_recipe = {
            f"recipe_{name}": (("chain", "draw", "recipe"), value) for name, value in recipe.items()
        }
        of_run = {name: value[:, :, recipe_of_run] for name, value in recipe.items()}
        per_run = {
            "floor": np.full(of_run["gain"].shape, FLOOR),
            "ceiling": ceiling[:, :, recipe_of_run],
            "exponent": np.exp(of_run["log_exponent"]),
            "midpoint": np.exp(of_run["log_midpoint"]),
            "gain": of_run["gain"],
            "noise": np.full(of_run["gain"].shape, noise),
        }
        shared = {"persistence": normal(0.5, 0.05, "all")}
        for name in recipe:
            shared[f"{name}_between_sd"] = np.exp(normal(np.log(0.3), 0.1, "all"))
            shared[f"{name}_within_sd"] = np.exp(normal(np.log(0.05), 0.1, "all"))
            shared[f"{name}_mean_z"] = normal(0.0, 0.2, "all")
        return xr.Dataset(
            per_recipe
            | {name: (("chain", "draw", "run"), value) for name, value in per_run.items()}
            | {name: (("chain", "draw"), value) for name, value in shared.items()},
            coords={"run": kept, "recipe": recipes},
        )

    groups = {"/posterior": draws(0.0)}
    if pooled:
        groups["/independent/posterior"] = draws(independent_shift)
    check = Check("R-hat, curves", passed, 1.002 if passed else 1.3, 1.01, "R-hat, curves 1.002 (<= 1.01)")
    return Fit(
        runs=runs,
        settings=asked,
        pooled=pooled,
        posterior=xr.DataTree.from_dict(groups),
        checks=[check],
        independent_checks=[Check("R-hat, curves", True, 1.002, 1.01, "R-hat 1.002")] if pooled else [],
        refused=refused,
        provenance={
            "created": "2026-01-01T00:00:00+00:00",
            "versions": {"python": "3.12.0", "rlforecast": "0.1.0"},
            "data_sha256": runs.hash(),
            "sampler": {"sampler": "nutpie", "chains": CHAINS, "tune": 0, "draws": DRAWS},
        },
    )


def apart(fit: Fit) -> Fit:
    """The fit as the particle engine leaves it where recipes have several runs: no curve of a recipe."""
    draws = fit.draws.drop_vars([name for name in fit.draws if str(name).startswith("recipe_")])
    return replace(
        fit,
        settings=replace(fit.settings, engine="particle"),
        pooled=(),
        posterior=xr.DataTree.from_dict({"/posterior": draws}),
    )
