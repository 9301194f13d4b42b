"""Runs fitted one by one: what is stored, what the repeats must agree on, and the second try."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from forecast.curves import sigmoid
from forecast.inference import runs_apart
from forecast.inference.observations import Observations
from forecast.inference.particle import ParticleEffort, Particles, sample_run
from forecast.inference.priors import PRIORS
from forecast.inference.run_prior import run_prior
from forecast.inference.runs_apart import check_repeats, sample_apart

WIDE = PRIORS["wide"]
CURVE = ("gain", "log_exponent", "log_midpoint")
PER_RUN = ("floor", "ceiling", "exponent", "midpoint", "noise", "persistence", "gain")
SMALL = ParticleEffort(repeats=4, particles=400, moves=6, keep=0.6)
LARGE = replace(SMALL, particles=600)


def quiet(stage: str, done: int, total: int) -> None:
    pass


def observations(recipe_of_run: list[int], points: int = 8) -> Observations:
    """Runs of one curve that end at different computes, from 4,000 up."""
    runs, recipes = len(recipe_of_run), max(recipe_of_run) + 1
    rng = np.random.default_rng(0)
    run = np.repeat(np.arange(runs), points)
    absolute = np.concatenate([np.log(4_000 * (j + 1) * np.linspace(0.1, 1, points)) for j in range(runs)])
    recipe = np.array(recipe_of_run)
    reference = np.array([absolute[recipe[run] == r].max() for r in range(recipes)])
    first = np.arange(len(run)) % points == 0
    curve = sigmoid(np.exp(absolute), 0.3, 0.6, 1.8, 1_500.0)
    return Observations(
        runs=tuple(f"run{j}" for j in range(runs)),
        recipes=tuple(f"recipe{r}" for r in range(recipes)),
        recipe_of_run=recipe,
        log_reference=reference,
        run=run,
        log_compute=absolute - reference[recipe[run]],
        fraction=curve + 0.006 * rng.standard_normal(len(run)),
        inverse_trials=np.full(len(run), 1 / 16_000),
        first=first,
        distance=np.where(first, 0.1, 1.0),
        floor=np.full(runs, 0.3),
        floor_se=np.full(runs, 0.004),
        floor_known=np.full(runs, True),
        floor_group=np.arange(recipes),
        chance=0.0,
        noise_median=np.full(runs, 0.007),
        noise_log_sd=np.full(runs, 0.6),
    )


def particles(*, seed: int = 0, repeats: int = 4, size: int = 500) -> Particles:
    """Draws that repeats agree on, written down."""
    rng = np.random.default_rng(seed)
    normal = {
        name: rng.standard_normal((repeats, size)) for name in ("floor", "gain", "exponent", "midpoint")
    }
    draws = {
        "floor": 0.3 + 0.004 * normal["floor"],
        "ceiling": 0.6 + 0.01 * normal["gain"],
        "exponent": np.exp(0.6 + 0.1 * normal["exponent"]),
        "midpoint": np.exp(7.0 + 0.1 * normal["midpoint"]),
        "noise": np.full((repeats, size), 0.007),
        "persistence": np.full((repeats, size), 0.5),
        "gain": 0.01 * normal["gain"],
    }
    return Particles("sigmoid", draws, 50 + 0.2 * rng.standard_normal(repeats), 5, 0.3, 0.4)


# What is stored


def test_draws_are_those_of_each_run_by_itself_under_its_name() -> None:
    data = observations([0, 1, 1])
    tree = sample_apart(data, WIDE, seed=5, report=quiet, efforts=(SMALL,)).tree
    draws = tree["posterior"].to_dataset()
    assert draws.sizes == {"chain": 4, "draw": 400, "run": 3}
    assert draws["run"].to_numpy().tolist() == ["run0", "run1", "run2"]
    for j, name in enumerate(data.runs):
        alone = sample_run(data, j, run_prior(WIDE, data, j), seed=[5, j], effort=SMALL)
        one = draws.sel(run=name)
        for parameter in PER_RUN:
            np.testing.assert_array_equal(one[parameter], alone.draws[parameter])
        # In the unit of compute, wherever the run ended.
        assert 900 < np.exp(np.log(one["midpoint"]).mean()) < 2_500
    stats = tree["sample_stats"].to_dataset()
    assert stats["log_evidence"].dims == ("chain", "run")
    assert (stats["walk_acceptance"] > 0.05).all()
    assert set(stats.data_vars) == {"log_evidence", "walk_acceptance", "leap_acceptance"}


def test_recipes_with_several_runs_have_no_curve() -> None:
    together = sample_apart(observations([0, 1, 1]), WIDE, seed=5, report=quiet, efforts=(SMALL,)).tree
    assert set(together["posterior"].data_vars) == set(PER_RUN)
    assert "recipe" not in together["posterior"].coords
    apart = sample_apart(observations([0, 1]), WIDE, seed=5, report=quiet, efforts=(SMALL,)).tree
    recipe = {f"recipe_{name}" for name in CURVE} | {f"{name}_within_sd" for name in CURVE}
    assert set(apart["posterior"].data_vars) == set(PER_RUN) | recipe
    assert apart["posterior"]["recipe"].to_numpy().tolist() == ["recipe0", "recipe1"]


def fixed(monkeypatch: pytest.MonkeyPatch, draws: dict[str, NDArray[np.float64]]) -> None:
    """Replace the sampler by draws that are known."""
    base = particles(size=max([500, *(value.shape[1] for value in draws.values())]))
    monkeypatch.setattr(
        runs_apart, "sample_run", lambda *args, **kwargs: replace(base, draws=base.draws | draws)
    )


@pytest.mark.parametrize("name", CURVE)
def test_recipes_follow_from_their_run_by_the_conjugate_normal(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The run at one value, a prior sd above the middle: the recipe by quadrature over it and the seeds' spread.

    The engine takes the spread from its prior, though the run says a little about it: 1 % of the recipe's sd here,
    2 % at two prior sds.
    """
    prior, within = getattr(WIDE, name), getattr(WIDE, f"{name}_within")
    centre = prior.mean + (np.log(4_000.0) if name == "log_midpoint" else 0.0)
    at = centre + prior.sd
    stored = {"gain": "gain", "log_exponent": "exponent", "log_midpoint": "midpoint"}[name]
    fixed(monkeypatch, {stored: np.full((4, 5_000), at if name == "gain" else np.exp(at))})
    tree = sample_apart(observations([0]), WIDE, seed=3, report=quiet, efforts=(SMALL,)).tree
    draws = tree["posterior"].to_dataset()
    found = draws[f"recipe_{name}"].to_numpy().ravel()
    grid = np.linspace(at - 1.5, at + 1.5, 6001)
    density = np.zeros_like(grid)
    for deviate in np.linspace(-4, 4, 161):
        spread = within.mean * np.exp(within.sd * deviate)
        density += norm.pdf(deviate) * norm.pdf(grid, centre, prior.sd) * norm.pdf(at, grid, spread)
    distribution = np.cumsum(density) / density.sum()
    assert kstest(found, lambda x: np.interp(x, grid, distribution)).pvalue > 1e-4
    spreads = np.log(draws[f"{name}_within_sd"].to_numpy().ravel())
    assert kstest((spreads - np.log(within.mean)) / within.sd, "norm").pvalue > 1e-4
    # A recipe is further from its run where seeds differ more.
    assert np.corrcoef(np.abs(found - at), spreads)[0, 1] > 0.2


def test_recipes_midpoints_are_relative_to_their_own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that say nothing of the recipe: its midpoint is the prior's, at its own end of the data."""
    fixed(monkeypatch, {})
    data = observations([0, 1])
    unsure = replace(WIDE, log_midpoint_within=replace(WIDE.log_midpoint_within, mean=1e6))
    draws = sample_apart(data, unsure, seed=3, report=quiet, efforts=(SMALL,)).tree["posterior"].to_dataset()
    for r, end in enumerate((4_000.0, 8_000.0)):
        value = (draws["recipe_log_midpoint"].to_numpy()[..., r].ravel() - np.log(end) + 0.7) / 1.3
        assert kstest(value, "norm").pvalue > 1e-4


# What repeats must agree on


OF = dict.fromkeys(("floor", "ceiling"), "floor and ceiling") | dict.fromkeys(
    ("exponent", "midpoint"), "exponent and midpoint"
)
EVIDENCE = "repeatability of the log evidence"


def by_name(fits: dict[str, Particles]) -> dict[str, Any]:
    return {check.name: check for check in check_repeats(fits)}


def test_repeats_that_agree_pass() -> None:
    checks = by_name({"a": particles(seed=1), "b": particles(seed=2)})
    assert set(checks) == {*(f"repeatability of {what}" for what in OF.values()), EVIDENCE}
    assert all(check.passed for check in checks.values())
    # 500 independent draws: the sd of a 5 % quantile is 2.1 / sqrt(500) posterior sds, halved by four repeats;
    # the largest of 2 parameters x 3 quantiles x 2 runs.
    for what in OF.values():
        assert 0.025 < checks[f"repeatability of {what}"].value < 0.12


@pytest.mark.parametrize("name", ["floor", "ceiling", "exponent", "midpoint"])
def test_a_repeat_that_found_another_place_fails_and_is_named(name: str) -> None:
    good, bad = particles(seed=1), particles(seed=2)
    draws = {key: value.copy() for key, value in bad.draws.items()}
    # Two posterior sds off.
    sd = 2 * (np.log(draws[name]).std() if name in ("exponent", "midpoint") else draws[name].std())
    draws[name][2] = draws[name][2] * np.exp(sd) if name in ("exponent", "midpoint") else draws[name][2] + sd
    check = by_name({"good": good, "bad": replace(bad, draws=draws)})[f"repeatability of {OF[name]}"]
    assert check.passed is False
    # Sd over repeats 1 of the good ones' sds, standard error 1/2; the four together are wider, by 1.3.
    assert check.value == pytest.approx(0.38, abs=0.08)
    assert f"{name}[bad]" in check.text
    assert "good" not in check.text


def test_a_repeat_that_missed_part_of_the_tail_fails() -> None:
    bad = particles(seed=2)
    draws = {key: value.copy() for key, value in bad.draws.items()}
    draws["ceiling"][1] = 0.6 + 0.4 * (draws["ceiling"][1] - 0.6)
    checks = by_name({"bad": replace(bad, draws=draws)})
    assert checks["repeatability of floor and ceiling"].passed is False
    assert checks[EVIDENCE].passed is True


def test_log_evidences_that_disagree_fail() -> None:
    bad = replace(particles(seed=2), log_evidences=np.array([50.0, 50.1, 54.0, 50.2]))
    check = by_name({"good": particles(seed=1), "bad": bad})["repeatability of the log evidence"]
    assert check.passed is False
    assert check.value == pytest.approx(np.std([50.0, 50.1, 54.0, 50.2], ddof=1))
    assert check.text.startswith("repeatability of the log evidence: sd in nats 2 at bad")


@pytest.mark.parametrize("case", ["one repeat", "draws not a number", "evidence not a number"])
def test_what_cannot_be_checked_has_not_passed(case: str) -> None:
    fit = particles(repeats=1 if case == "one repeat" else 4)
    if case == "draws not a number":
        fit = replace(fit, draws=fit.draws | {"ceiling": np.full((4, 500), np.nan)})
    if case == "evidence not a number":
        fit = replace(fit, log_evidences=np.full(4, np.nan))
    assert not all(check.passed for check in check_repeats({"a": fit}))


# The second try


def test_only_runs_whose_repeats_disagree_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ParticleEffort, Any]] = []
    stages: list[tuple[str, int, int]] = []

    def sampled(data: Any, j: int, prior: Any, *, seed: Any, effort: ParticleEffort) -> Particles:
        asked.append((j, effort, seed))
        found = particles(seed=j, size=effort.particles)
        if j == 1 and effort == SMALL:
            return replace(found, log_evidences=np.array([40.0, 50.0, 60.0, 70.0]))
        return found

    monkeypatch.setattr(runs_apart, "sample_run", sampled)
    result = sample_apart(
        observations([0, 1, 2]),
        WIDE,
        seed=9,
        report=lambda *line: stages.append(line),
        efforts=(SMALL, LARGE),
    )
    # Runs are fitted in threads, in any order.
    in_order = sorted(((j, effort) for j, effort, _ in asked), key=lambda one: (one[0], one[1].particles))
    assert in_order == [(0, SMALL), (1, SMALL), (1, LARGE), (2, SMALL)]
    assert len({str(seed) for _, _, seed in asked}) == 3
    assert result.effort == LARGE
    assert all(check.passed for check in result.checks)
    assert [line[1:] for line in stages] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    # One shape for all: the harder run's draws are thinned evenly, repeat by repeat.
    draws = result.tree["posterior"].to_dataset()
    assert draws.sizes["draw"] == SMALL.particles
    full = particles(seed=1, size=LARGE.particles).draws["ceiling"]
    kept = draws["ceiling"].sel(run="run1").to_numpy()
    for repeat in range(4):
        at = np.searchsorted(np.sort(full[repeat]), np.sort(kept[repeat]))
        assert len(set(at)) == SMALL.particles
        assert np.isin(kept[repeat], full[repeat]).all()
    assert kept[0, 0] == full[0, 0]
    assert kept[0, -1] == full[0, -1]


def test_repeats_that_never_agree_are_handed_over_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = np.array([40.0, 50.0, 60.0, 70.0])
    monkeypatch.setattr(
        runs_apart, "sample_run", lambda *args, **kwargs: replace(particles(), log_evidences=apart)
    )
    result = sample_apart(observations([0]), WIDE, seed=9, report=quiet, efforts=(SMALL, LARGE))
    assert result.effort == LARGE
    assert [check.passed for check in result.checks] == [True, True, False]
