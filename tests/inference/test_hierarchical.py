"""The hierarchical model against an independent density, its prior, a known truth, and its contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import arviz as az
import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import multivariate_normal, norm

from forecast.curves import sigmoid
from forecast.inference import hierarchical
from forecast.inference.diagnostics import all_passed, check_sampling, failures
from forecast.inference.hierarchical import Effort, build_model, compile_model, sample
from forecast.inference.observations import Observations
from forecast.inference.priors import POOLED_PARAMETERS, PRIORS, Priors

CURVE = ("gain", "log_exponent", "log_midpoint")
POOLED_AS = dict(zip(CURVE, POOLED_PARAMETERS, strict=True))
SHAPES = {(1, 1): [0], (4, 2): [0, 1, 0, 1]}
Point = dict[str, NDArray[np.float64]]


def observations(
    recipe_of_run: list[int],
    rng: np.random.Generator,
    *,
    floor_known: bool = True,
    points: tuple[int, ...] = (5, 3, 7, 4),
    trials: float = 16_000,
) -> Observations:
    """Evaluations of different length and spacing around one rising curve."""
    runs, recipes = len(recipe_of_run), max(recipe_of_run) + 1
    counts = points[:runs]
    run = np.repeat(np.arange(runs), counts)
    first = np.concatenate([[True], run[1:] != run[:-1]])
    log_compute = np.concatenate([np.sort(rng.uniform(-2.5, 0.0, n)) for n in counts])
    curve = sigmoid(np.exp(log_compute), 0.3, 0.6, 1.8, 0.4)
    return Observations(
        runs=tuple(f"run{j}" for j in range(runs)),
        recipes=tuple(f"recipe{r}" for r in range(recipes)),
        recipe_of_run=np.array(recipe_of_run),
        log_reference=np.log(1000.0 * np.arange(1, recipes + 1)),
        run=run,
        log_compute=log_compute,
        fraction=curve + 0.02 * rng.standard_normal(len(run)),
        inverse_trials=np.full(len(run), 1 / trials),
        first=first,
        distance=np.where(first, 0.1, rng.uniform(0.4, 3.0, len(run))),
        floor=rng.uniform(0.25, 0.35, runs),
        floor_se=rng.uniform(0.004, 0.01, runs),
        floor_known=np.full(runs, floor_known),
        floor_group=np.arange(recipes),
        chance=0.0,
        noise_median=np.full(runs, 0.01),
        noise_log_sd=np.full(runs, 0.7),
    )


class Evaluated:
    """The model's log density and its natural parameters as functions of the sampler's coordinates."""

    def __init__(self, runs: int, recipes: int) -> None:
        self.model = build_model(runs, recipes)
        named = [
            *("gain", "exponent", "log_midpoint", "floor", "ceiling", "noise", "persistence"),
            *(f"{name}_{what}" for name in CURVE for what in ("mean_z", "between_sd", "within_sd", "run_z")),
            *("floor_z", "floor_group_z", "noise_common_z"),
        ]
        outputs = [self.model.logp(), *self.model.replace_rvs_by_values([self.model[name] for name in named])]
        self._compiled = pytensor.function(self.model.value_vars, outputs, mode="FAST_COMPILE")
        self._names = ["logp", *named]
        start = self.model.initial_point()
        self._shapes = {v.name: np.shape(start[v.name]) for v in self.model.value_vars}
        self.size = sum(int(np.prod(shape)) for shape in self._shapes.values())

    def condition_on(self, data: Observations, priors: Priors, pooled: tuple[str, ...]) -> None:
        with self.model:
            pm.set_data(hierarchical._model_data(data, priors, pooled))

    def __call__(self, coordinates: NDArray[np.float64]) -> Point:
        values, at = [], 0
        for shape in self._shapes.values():
            size = int(np.prod(shape))
            values.append(coordinates[at : at + size].reshape(shape))
            at += size
        return dict(zip(self._names, map(np.asarray, self._compiled(*values)), strict=True))

    def log_density(
        self, coordinates: NDArray[np.float64], natural: Callable[[Point], NDArray[np.float64]]
    ) -> float:
        """Log density of the natural parameters: the sampler's minus log |det d natural / d coordinates|."""
        step = 1e-5
        columns = []
        for i in range(self.size):
            there, back = coordinates.copy(), coordinates.copy()
            there[i] += step
            back[i] -= step
            columns.append((natural(self(there)) - natural(self(back))) / (2 * step))
        sign, log_volume = np.linalg.slogdet(np.column_stack(columns))
        assert sign != 0
        return float(self(coordinates)["logp"]) - log_volume


def of_run(point: Point, name: str) -> NDArray[np.float64]:
    return np.log(point["exponent"]) if name == "log_exponent" else point[name]


def idle(point: Point, name: str, recipe_of_run: NDArray[np.int64], priors: Priors) -> NDArray[np.float64]:
    """Per recipe, the mean of its runs' offsets: the curves do not depend on it. Scaled to unit variance."""
    counts = np.bincount(recipe_of_run)
    means = np.bincount(recipe_of_run, point[f"{name}_run_z"]) / counts
    return means * np.sqrt(counts * getattr(priors, f"{name}_within").mean / point[f"{name}_within_sd"])


def natural_parameters(point: Point, recipe_of_run: NDArray[np.int64], priors: Priors) -> NDArray[np.float64]:
    """Parameters in which the priors are stated, as one vector."""
    parts = []
    for name in CURVE:
        parts += [of_run(point, name), idle(point, name, recipe_of_run, priors), point[f"{name}_mean_z"]]
        parts += [np.log(point[f"{name}_{what}_sd"]) for what in ("between", "within")]
    parts += [point["floor_z"], point["floor_group_z"], np.log(point["noise"]), point["noise_common_z"]]
    parts += [logit(point["persistence"])]
    return np.concatenate([np.atleast_1d(part) for part in parts])


def expected_log_density(point: Point, data: Observations, priors: Priors, pooled: tuple[str, ...]) -> float:
    """Priors of a population, its recipes and their runs, and the chain's joint normal, in SciPy."""
    total = 0.0
    for name in CURVE:
        prior = getattr(priors, name)
        spreads = {}
        for what in ("between", "within"):
            spread = getattr(priors, f"{name}_{what}")
            spreads[what] = float(point[f"{name}_{what}_sd"])
            total += norm.logpdf(np.log(spreads[what]), np.log(spread.mean), spread.sd)
        total += norm.logpdf(point[f"{name}_mean_z"])
        if POOLED_AS[name] in pooled:
            centre, sd = prior.mean + prior.sd * float(point[f"{name}_mean_z"]), spreads["between"]
        else:
            centre, sd = prior.mean, prior.sd
        for r in range(len(data.recipes)):
            # Runs of a recipe share its deviation from the centre and have their own on top.
            values = of_run(point, name)[data.recipe_of_run == r]
            covariance = sd**2 + spreads["within"] ** 2 * np.eye(len(values))
            total += multivariate_normal.logpdf(values, np.full(len(values), centre), covariance)
        total += norm.logpdf(idle(point, name, data.recipe_of_run, priors)).sum()
    total += norm.logpdf(point["floor_z"]).sum() + norm.logpdf(point["floor_group_z"]).sum()
    common = priors.noise_common
    total += norm.logpdf(point["noise_common_z"])
    total += norm.logpdf(
        np.log(point["noise"]),
        np.log(data.noise_median) + data.noise_log_sd * np.sqrt(common) * point["noise_common_z"],
        data.noise_log_sd * np.sqrt(1 - common),
    ).sum()
    persistence = float(point["persistence"])
    total += norm.logpdf(logit(persistence), priors.noise_persistence.mean, priors.noise_persistence.sd)
    for j in range(len(data.runs)):
        at = data.run == j
        mu = sigmoid(
            np.exp(data.log_compute[at]),
            point["floor"][j],
            point["ceiling"][j],
            point["exponent"][j],
            np.exp(point["log_midpoint"][j]),
        )
        noise = point["noise"][j]
        time = np.cumsum(np.where(data.first[at], 0.0, data.distance[at]))
        covariance = noise**2 * persistence ** np.abs(time[:, None] - time)
        covariance += np.diag(mu * (1 - mu) * data.inverse_trials[at])
        if data.inverse_trials.any():
            total += conditional_log_density(data.fraction[at] - mu, covariance, memory=3)
        else:
            # Nothing but persistent noise: a Markov process, exactly.
            total += multivariate_normal.logpdf(data.fraction[at], mu, covariance)
    return float(total)


def conditional_log_density(
    residual: NDArray[np.float64], covariance: NDArray[np.float64], memory: int
) -> float:
    """Log density of each residual given at most `memory` before it, from the dense covariance."""
    total = 0.0
    for i in range(len(residual)):
        before = np.arange(max(0, i - memory), i)
        weights = np.linalg.solve(covariance[np.ix_(before, before)], covariance[before, i])
        variance = covariance[i, i] - weights @ covariance[before, i]
        total += norm.logpdf(residual[i], weights @ residual[before], np.sqrt(variance))
    return float(total)


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def evaluated(request: pytest.FixtureRequest) -> tuple[list[int], Evaluated]:
    recipe_of_run = SHAPES[request.param]
    return recipe_of_run, Evaluated(*request.param)


def random_coordinates(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return 0.7 * rng.standard_normal(size)


CASES = {
    "apart, floors known": ((), True, 16_000, "wide"),
    "pooled, floors known": (POOLED_PARAMETERS, True, 16_000, "wide"),
    "part pooled, floors latent": (("ceiling",), False, 16_000, "llm-rl"),
    "part pooled, trials unknown": (("exponent", "midpoint"), True, np.inf, "wide"),
}


@pytest.mark.parametrize("case", CASES)
def test_log_density_agrees_with_scipy(evaluated: tuple[list[int], Evaluated], case: str) -> None:
    pooled, floor_known, trials, preset = CASES[case]
    recipe_of_run, model = evaluated
    rng = np.random.default_rng(1)
    data = observations(recipe_of_run, rng, floor_known=floor_known, trials=trials)
    priors = PRIORS[preset]
    model.condition_on(data, priors, pooled)
    differences = []
    for _ in range(4):
        coordinates = random_coordinates(model.size, rng)
        found = model.log_density(
            coordinates, lambda point: natural_parameters(point, data.recipe_of_run, priors)
        )
        differences.append(found - expected_log_density(model(coordinates), data, priors, pooled))
    # Finite differences over 20-44 coordinates: about 1e-8 each.
    np.testing.assert_allclose(differences, differences[0], atol=1e-4, rtol=0)


def test_floor_is_measured_or_a_share_of_the_way_to_the_ceiling(
    evaluated: tuple[list[int], Evaluated],
) -> None:
    recipe_of_run, model = evaluated
    rng = np.random.default_rng(4)
    data = observations(recipe_of_run, rng)
    coordinates = random_coordinates(model.size, rng)
    model.condition_on(data, PRIORS["wide"], ())
    known = model(coordinates)
    np.testing.assert_allclose(known["floor"], data.floor + data.floor_se * known["floor_z"], atol=1e-9)
    one_start, own_starts = np.zeros_like(data.floor_group), data.floor_group
    for floor_group, chance in ((own_starts, 0.0), (one_start, 0.0), (own_starts, 0.25)):
        unmeasured = replace(data, floor_known=~data.floor_known, floor_group=floor_group, chance=chance)
        model.condition_on(unmeasured, PRIORS["wide"], ())
        latent = model(coordinates)
        group = floor_group[data.recipe_of_run]
        prior = PRIORS["wide"].latent_floor
        z = latent["floor_group_z"][group] + PRIORS["wide"].latent_floor_within * latent["floor_z"]
        share = expit(prior.mean + prior.sd * z)
        np.testing.assert_allclose(
            (latent["floor"] - chance) / (latent["ceiling"] - chance), share, rtol=1e-9
        )
        assert (latent["floor"] >= chance).all()
        gain = (latent["ceiling"] - latent["floor"]) / (1 - latent["floor"])
        np.testing.assert_allclose(gain, expit(latent["gain"]), rtol=1e-9)


@pytest.mark.parametrize("measured", [0.0, 0.001, 0.999, 1.0])
def test_measured_floors_at_the_ends_stay_inside(
    evaluated: tuple[list[int], Evaluated], measured: float
) -> None:
    recipe_of_run, model = evaluated
    rng = np.random.default_rng(5)
    data = observations(recipe_of_run, rng)
    data = replace(
        data, floor=np.full_like(data.floor, measured), floor_se=np.full_like(data.floor_se, 0.004)
    )
    model.condition_on(data, PRIORS["wide"], ())
    for _ in range(20):
        point = model(4 * rng.standard_normal(model.size))
        assert ((point["floor"] > 0) & (point["floor"] < 1)).all()
        assert np.abs(point["floor"] - measured).max() < 0.004 * (2 + np.abs(point["floor_z"]).max())
        assert np.isfinite(point["logp"])


# One evaluation per run with noise of 50 says nothing about a curve between 0 and 1.
def says_nothing(recipe_of_run: list[int]) -> Observations:
    rng = np.random.default_rng(6)
    data = observations(recipe_of_run, rng, floor_known=False, points=(1, 1, 1, 1))
    return replace(
        data, noise_median=np.full_like(data.floor, 50.0), noise_log_sd=np.full_like(data.floor, 1e-6)
    )


def assert_normal(draws: xr.DataArray, mean: float, sd: float, label: str) -> None:
    """Mean, sd and outer quantiles within 4.5 Monte-Carlo standard errors (about 100 comparisons)."""
    values = draws.to_numpy()
    expected = {"mean": mean, "sd": sd}
    found = {"mean": values.mean(), "sd": values.std(ddof=1)}
    for name, value in expected.items():
        error = float(az.mcse(values, method=name))
        assert abs(found[name] - value) < 4.5 * error, (label, name, found[name], value, error)
    for probability in (0.05, 0.95):
        error = float(az.mcse(values, method="quantile", prob=probability))
        value = norm.ppf(probability, mean, sd)
        assert abs(np.quantile(values, probability) - value) < 4.5 * error, (label, probability, value, error)


@pytest.mark.parametrize(
    "pooled",
    [pytest.param((), id="apart", marks=pytest.mark.slow), pytest.param(POOLED_PARAMETERS, id="pooled")],
)
def test_without_information_the_posterior_is_the_prior(pooled: tuple[str, ...]) -> None:
    priors = PRIORS["wide"]
    data = says_nothing(SHAPES[4, 2])
    effort = Effort(tune=1500, draws=3000, target_accept=0.99)
    posterior = sample(data, priors, pooled, seed=11, effort=effort)
    draws = posterior["posterior"].to_dataset()
    for r, recipe in enumerate(data.recipes):
        for name in CURVE:
            prior = getattr(priors, name)
            found = draws[f"recipe_{name}"].sel(recipe=recipe)
            if name == "log_midpoint":
                found = found - data.log_reference[r]
            if pooled:
                # Standardised by what the recipe's own level says, which must leave a standard normal.
                centre = prior.mean + prior.sd * draws[f"{name}_mean_z"]
                found = (found - centre) / draws[f"{name}_between_sd"]
                assert_normal(found, 0.0, 1.0, f"{recipe} {name}")
            else:
                assert_normal(found, prior.mean, prior.sd, f"{recipe} {name}")
    for name in CURVE:
        assert_normal(draws[f"{name}_mean_z"], 0.0, 1.0, f"{name} population")
        for what in ("between", "within"):
            spread = getattr(priors, f"{name}_{what}")
            assert_normal(
                np.log(draws[f"{name}_{what}_sd"]), np.log(spread.mean), spread.sd, f"{name} {what}"
            )
    of_run = {"gain": draws["gain"], "log_exponent": np.log(draws["exponent"])}
    for j, run in enumerate(data.runs):
        recipe = data.recipes[data.recipe_of_run[j]]
        for name, values in of_run.items():
            offset = values.sel(run=run) - draws[f"recipe_{name}"].sel(recipe=recipe)
            assert_normal(offset / draws[f"{name}_within_sd"], 0.0, 1.0, f"{run} {name}")
        share = draws["floor"].sel(run=run) / draws["ceiling"].sel(run=run)
        sd = priors.latent_floor.sd * np.hypot(1, priors.latent_floor_within)
        assert_normal(np.log(share / (1 - share)), priors.latent_floor.mean, sd, f"{run} floor share")


SHORT = Effort(chains=2, tune=200, draws=100)


def rising(seed: int, points: int = 30, noise: float = 0.005) -> Observations:
    rng = np.random.default_rng(seed)
    data = observations([0], rng, points=(points,))
    curve = sigmoid(np.exp(data.log_compute), 0.3, 0.6, 1.8, 0.4)
    return replace(data, fraction=curve + noise * rng.standard_normal(points), floor=np.array([0.3]))


def test_same_seed_same_draws_and_another_data_set_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_model(1, 1)
    compilations: list[Any] = []
    original: Callable[..., Any] = nutpie.compile_pymc_model

    def counted(*args: Any, **kwargs: Any) -> Any:
        compilations.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(nutpie, "compile_pymc_model", counted)
    first, again, other_seed = (
        sample(rising(0), PRIORS["wide"], (), seed=seed, effort=SHORT)["posterior"].to_dataset()
        for seed in (3, 3, 4)
    )
    xr.testing.assert_identical(first, again)
    assert not np.array_equal(first["ceiling"], other_seed["ceiling"])
    latent = replace(rising(1, points=12), floor_known=np.array([False]))
    other_data = sample(latent, PRIORS["llm-rl"], ("ceiling",), seed=3, effort=SHORT)
    assert not np.array_equal(first["ceiling"], other_data["posterior"]["ceiling"])
    assert not compilations


def test_draws_carry_names_and_the_unit_of_compute() -> None:
    data = rising(0)
    draws = sample(data, PRIORS["wide"], (), seed=3, effort=SHORT)["posterior"].to_dataset()
    assert list(draws["run"].to_numpy()) == list(data.runs)
    assert list(draws["recipe"].to_numpy()) == list(data.recipes)
    assert not [name for name in draws.data_vars if str(name).endswith("_z") and "mean" not in str(name)]
    # The same logs in a unit 1,000 times smaller: the midpoint grows by 1,000, nothing else changes.
    moved = replace(data, log_reference=data.log_reference + np.log(1000))
    scaled = sample(moved, PRIORS["wide"], (), seed=3, effort=SHORT)["posterior"].to_dataset()
    xr.testing.assert_allclose(scaled["midpoint"], 1000 * draws["midpoint"])
    xr.testing.assert_allclose(scaled["recipe_log_midpoint"], draws["recipe_log_midpoint"] + np.log(1000))
    xr.testing.assert_identical(scaled["ceiling"], draws["ceiling"])


def test_much_precise_data_recover_the_truth() -> None:
    rng = np.random.default_rng(8)
    n = 80
    truth = {"floor": 0.25, "ceiling": 0.68, "exponent": 2.1, "midpoint": 300.0}
    compute = np.geomspace(30, 3000, n)
    data = observations([0], rng, points=(n,), trials=4_000_000)
    curve = sigmoid(compute, *truth.values())
    noise = rng.normal(0, 0.001, n) + rng.normal(0, np.sqrt(curve * (1 - curve) / 4e6))
    data = replace(
        data,
        log_reference=np.log([3000.0]),
        log_compute=np.log(compute / 3000),
        fraction=curve + noise,
        distance=np.ones(n),
        floor=np.array([0.25]),
        floor_se=np.array([0.004]),
        noise_median=np.array([0.007]),
        noise_log_sd=np.array([0.6]),
    )
    tree = sample(data, PRIORS["wide"], (), seed=5)
    checks = check_sampling(tree)
    assert all_passed(checks), failures(checks)
    posterior = tree["posterior"].to_dataset()
    widest = {"floor": 0.004, "ceiling": 0.004, "exponent": 0.1, "midpoint": 15.0}
    for name, value in truth.items():
        draws = posterior[name].to_numpy().ravel()
        assert abs(draws.mean() - value) < 4 * draws.std(), (name, draws.mean(), draws.std())
        assert draws.std() < widest[name]
    noises = posterior["noise"].to_numpy().ravel()
    assert abs(noises.mean() - 0.001) < 4 * noises.std()
