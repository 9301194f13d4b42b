"""What other recipes say of a run, and that a run's own data are not used twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from fits_by_hand import fit_by_hand
from scipy.special import logit
from scipy.stats import norm
from weighed_by_hand import (
    GRID,
    curve_runs,
    hasty,  # noqa: F401
    moved,
    smooth,
)

from forecast.fits import Fit
from forecast.inference.diagnostics import Check
from forecast.inference.priors import POOLED_PARAMETERS, PRIORS, Normal
from forecast.inference.run_prior import RunPrior, informed, run_prior
from forecast.inference.weighing import MOVES, SMOOTH
from forecast.outlook.evidence import LEAST_OTHERS, fit_observations, population, prior_of, weigh_fit
from forecast.runs.table import Runs

WIDE = PRIORS["wide"]
NAMES = ("gain", "log_exponent", "log_midpoint")
OF_PARAMETER = dict(zip(POOLED_PARAMETERS, NAMES, strict=True))

# The population of recipes


def exact_draws(centre: Sequence[float], sd: Sequence[float], size: int = 400) -> np.ndarray:
    """Draws of each recipe whose mean and sd are exactly those given."""
    z = norm.ppf((np.arange(size) + 0.5) / size)
    z = z / z.std()
    return np.array([c + s * z for c, s in zip(centre, sd, strict=True)])


def between_variance(centre: np.ndarray, variance: np.ndarray, least_sd: float) -> float:
    """DerSimonian and Laird's estimate, from their equations (2) to (8)."""
    w = 1 / variance
    q = np.sum(w * (centre - np.sum(w * centre) / np.sum(w)) ** 2)
    c = np.sum(w) - np.sum(w**2) / np.sum(w)
    return max((q - (len(centre) - 1)) / c, least_sd**2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_the_next_recipe_is_forecast_as_by_a_grid_over_the_mean(name: str, spread: float) -> None:
    rng = np.random.default_rng(2)
    prior = getattr(WIDE, name)
    centre = prior.mean + 0.4 + spread * rng.standard_normal(6)
    sd = rng.uniform(0.05, 0.6, 6)
    tau = np.sqrt(between_variance(centre, sd**2, getattr(WIDE, f"{name}_between").mean / 2))
    mean = np.linspace(prior.mean - 12, prior.mean + 12, 40_001)
    log_posterior = norm.logpdf(mean, prior.mean, prior.sd)
    for c, s in zip(centre, sd, strict=True):
        log_posterior = log_posterior + norm.logpdf(c, mean, np.hypot(s, tau))
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    expected = weight @ mean
    expected_sd = np.sqrt(weight @ (mean - expected) ** 2 + tau**2)
    found = population(exact_draws(centre, sd), WIDE, name)
    assert found.mean == pytest.approx(expected, abs=1e-6)
    assert found.sd == pytest.approx(expected_sd, rel=1e-6)


def test_many_recipes_teach_their_mean_and_spread() -> None:
    rng = np.random.default_rng(3)
    recipes, true = 400, Normal(0.6, 0.7)
    sd = rng.uniform(0.1, 0.5, recipes)
    at = rng.normal(true.mean, true.sd, recipes)
    found = population(exact_draws(at + sd * rng.standard_normal(recipes), sd), WIDE, "gain")
    assert abs(found.mean - true.mean) < 4.5 * np.sqrt((true.sd**2 + np.mean(sd**2)) / recipes)
    # The variance of 400 numbers errs by 7 %, that of the noise by less.
    assert found.sd == pytest.approx(true.sd, rel=0.16)


def test_predictive_intervals_cover_the_next_recipe() -> None:
    """Experiments drawn from the prior of means and spreads, three to six recipes that are known."""
    rng = np.random.default_rng(4)
    inside, experiments = [], 2_000
    for _ in range(experiments):
        known = int(rng.integers(3, 7))
        mean = rng.normal(WIDE.log_exponent.mean, WIDE.log_exponent.sd)
        between = WIDE.log_exponent_between.mean * np.exp(
            WIDE.log_exponent_between.sd * rng.standard_normal()
        )
        at = rng.normal(mean, between, known + 1)
        sd = rng.uniform(0.05, 0.3, known)
        found = population(
            exact_draws(at[:-1] + sd * rng.standard_normal(known), sd, 50), WIDE, "log_exponent"
        )
        inside.append(abs(at[-1] - found.mean) < 1.645 * found.sd)
    # A plug-in spread covers somewhat less than it says.
    assert 0.82 < np.mean(inside) < 0.95


def test_recipes_that_agree_still_may_differ() -> None:
    found = population(exact_draws([0.5] * 5, [0.01] * 5), WIDE, "gain")
    assert found.sd > WIDE.gain_between.mean / 2


def test_what_is_learned_is_widened_by_the_spread_of_seeds() -> None:
    observations = fit_observations(written_fit(experiment()))
    own = run_prior(WIDE, observations, 0)
    seen = informed(WIDE, own, {"gain": Normal(0.3, 0.2)})
    rng = np.random.default_rng(5)
    n = 400_000
    within = WIDE.gain_within.mean * np.exp(WIDE.gain_within.sd * rng.standard_normal(n))
    runs = rng.normal(0.3, 0.2, n) + within * rng.standard_normal(n)
    assert seen.gain.mean == 0.3
    assert seen.gain.sd == pytest.approx(runs.std(), rel=4.5 / np.sqrt(2 * n) * 2)
    assert replace(seen, gain=own.gain) == own
    assert informed(WIDE, own, {}) == own


# Its place in a fit


def experiment(others: int = 3, seed: int = 0, ends: Mapping[str, int] | None = None) -> Runs:
    """Recipe `own` with two runs, and other recipes of one run."""
    ends = ends or {}
    names = ["own0", "own1", *(f"other{i}" for i in range(others))]
    values = {name: smooth(ceiling=0.55 + 0.02 * i)[: ends.get(name)] for i, name in enumerate(names)}
    return curve_runs(values, recipes={"own0": "own", "own1": "own"}, seed=seed)


def written_fit(runs: Runs, pooled: tuple[str, ...] = POOLED_PARAMETERS, **options: object) -> Fit:
    """A fit whose draws of a recipe are a function of that recipe's evaluations alone, were it fitted apart.

    The draws of the fit itself depend on every evaluation, as those of a pooled fit do.
    """
    fit = fit_by_hand(runs, upto=None, pooled=pooled, **options)
    if not pooled:
        return fit
    rng = np.random.default_rng(7)
    z = rng.standard_normal((2, 300, len(fit.observations.recipes)))
    table = fit.fitted.table
    own = table.groupby("recipe", sort=False)["value"]
    groups = {}
    for group, shift in (("/posterior", float(table["value"].sum())), ("/independent/posterior", 0.0)):
        path = group.lstrip("/")
        draws = fit.posterior[path].to_dataset()
        recipes = list(draws["recipe"].to_numpy())
        last = own.last().loc[recipes].to_numpy() + shift
        mean = own.mean().loc[recipes].to_numpy() + shift
        written = {
            "recipe_gain": logit(np.clip(last, 0.01, 0.99)) + 0.2 * z,
            "recipe_log_exponent": 0.5 + mean + 0.1 * z,
            "recipe_log_midpoint": np.log(2_000) + mean + 0.3 * z,
        }
        groups[group] = draws.assign(
            {name: (("chain", "draw", "recipe"), value) for name, value in written.items()}
        )
    return replace(fit, posterior=xr.DataTree.from_dict(groups))


def prior_in(fit: Fit, run: str) -> RunPrior:
    observations = fit_observations(fit)
    return prior_of(fit, observations, observations.runs.index(run))


def with_other_values(runs: Runs, run: str) -> Runs:
    table = runs.table.copy()
    mine = table["run"] == run
    table.loc[mine, "value"] = np.linspace(0.9, 0.1, int(mine.sum()))
    return replace(runs, table=table)


@pytest.mark.parametrize("touched", ["own0", "own1"])
def test_a_runs_prior_does_not_see_the_run_nor_its_siblings(touched: str) -> None:
    runs = experiment()
    before = prior_in(written_fit(runs), "own0")
    assert prior_in(written_fit(with_other_values(runs, touched)), "own0") == before


@pytest.mark.parametrize("touched", ["other0", "other1", "other2"])
def test_a_runs_prior_sees_every_other_recipe(touched: str) -> None:
    runs = experiment()
    before = prior_in(written_fit(runs), "own0")
    after = prior_in(written_fit(with_other_values(runs, touched)), "own0")
    for name in NAMES:
        assert getattr(after, name) != getattr(before, name), name
    plain = run_prior(WIDE, fit_observations(written_fit(runs)), 0)
    assert replace(after, **{name: getattr(plain, name) for name in NAMES}) == plain


def test_a_runs_prior_comes_from_the_population_of_the_others() -> None:
    fit = written_fit(experiment())
    draws = fit.independent_draws
    assert draws is not None
    found = prior_in(fit, "own0")
    upto = GRID[-1]
    for name in NAMES:
        values = np.array(
            [draws[f"recipe_{name}"].sel(recipe=f"other{i}").to_numpy().ravel() for i in range(3)]
        )
        if name == "log_midpoint":
            values = values - np.log(upto)
        expected = population(values, WIDE, name)
        within = getattr(WIDE, f"{name}_within")
        seeds = within.mean * np.exp(within.sd**2)
        assert getattr(found, name).mean == pytest.approx(expected.mean)
        assert getattr(found, name).sd == pytest.approx(np.hypot(expected.sd, seeds))


def test_midpoints_are_relative_to_each_recipes_own_end() -> None:
    short = written_fit(experiment(ends={"other1": 9}))
    draws = short.independent_draws
    assert draws is not None
    ends = {"other0": GRID[-1], "other1": GRID[8], "other2": GRID[-1]}
    values = np.array(
        [
            draws["recipe_log_midpoint"].sel(recipe=name).to_numpy().ravel() - np.log(end)
            for name, end in ends.items()
        ]
    )
    expected = population(values, WIDE, "log_midpoint")
    assert prior_in(short, "own0").log_midpoint.mean == pytest.approx(expected.mean)


@pytest.mark.parametrize("parameter", POOLED_PARAMETERS)
def test_only_what_recipes_teach_each_other_is_learned(parameter: str) -> None:
    runs = experiment()
    found = prior_in(written_fit(runs, pooled=(parameter,)), "own0")
    plain = run_prior(WIDE, fit_observations(written_fit(runs)), 0)
    different = [name for name in NAMES if getattr(found, name) != getattr(plain, name)]
    assert different == [OF_PARAMETER[parameter]]


def test_without_others_or_pooling_the_prior_is_plain() -> None:
    assert LEAST_OTHERS == 3
    few = written_fit(experiment(others=2))
    assert prior_in(few, "own0") == run_prior(WIDE, fit_observations(few), 0)
    apart = written_fit(experiment(), pooled=())
    assert prior_in(apart, "own0") == run_prior(WIDE, fit_observations(apart), 0)
    unsound = replace(
        written_fit(experiment()), independent_checks=[Check("R-hat", False, 1.3, 1.01, "R-hat 1.3")]
    )
    assert prior_in(unsound, "own0") == run_prior(WIDE, fit_observations(unsound), 0)


def test_a_run_of_another_recipe_has_others_of_its_own() -> None:
    fit = written_fit(experiment())
    first, second = prior_in(fit, "other0"), prior_in(fit, "other1")
    assert first.gain != second.gain
    assert first.log_noise == second.log_noise


def test_a_run_that_carries_no_forecast_is_weighed_and_teaches_nothing() -> None:
    runs = experiment(others=4)
    refused = {"other3": "collapsed"}
    fit = written_fit(runs, refused=refused)
    assert fit_observations(fit).runs == tuple(runs.names)
    without = written_fit(runs.select([name for name in runs.names if name not in refused]))
    assert prior_in(fit, "own0") == prior_in(without, "own0")
    taught = prior_in(fit, "other3")
    assert taught.gain != run_prior(WIDE, fit_observations(fit), 0).gain


@pytest.mark.usefixtures("hasty")
def test_every_run_of_a_fit_is_weighed_also_short_and_refused_ones() -> None:
    values = {
        "a": smooth()[:8],
        "fell": moved(-0.4, 5_000.0)[:8],
        "short": smooth()[:1],
        "flat": np.full(8, 0.3),
    }
    fit = fit_by_hand(curve_runs(values), upto=8_000.0, refused={"fell": "collapsed", "short": "too short"})
    told: list[tuple[str, int, int]] = []
    found = weigh_fit(fit, lambda *step: told.append(step))
    assert set(found) == set(values)
    assert [done for _, done, _ in told] == [1, 2, 3, 4]
    for name, weighed in found.items():
        assert set(weighed.particles) == {*SMOOTH, *MOVES.values()}
        for kind in MOVES:
            assert np.isfinite(weighed.log_bayes_factor(kind)), name
    assert found["fell"].log_bayes_factor("collapse") > 3
    again = weigh_fit(fit)
    assert again["a"].log_bayes_factor("rise") == found["a"].log_bayes_factor("rise")


def test_a_fit_weighs_its_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("forecast.outlook.evidence.weigh_fit", lambda fit: calls.append(fit) or {"a": 1})
    fit = fit_by_hand()
    assert fit.weighed is fit.weighed
    assert len(calls) == 1
