"""The parameter table and whether it says when the prior is speaking."""

from __future__ import annotations

from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from fits_by_hand import CEILING, FLOOR, fit_by_hand, hand_runs

from forecast.fits import Fit, fit
from forecast.outlook.fitted_curves import curve_draws
from forecast.outlook.identifiability import ceiling_shift, verdict
from forecast.runs.table import Metric, Runs
from simulators.worlds import sigmoid_world

COLUMNS = [
    *("level", "name", "parameter", "unit", "mean", "sd", "q05", "q50", "q95", "prior_sd", "sd_ratio"),
    *("fitted_over_midpoint", "prior_shift", "verdict", "least_squares", "warning"),
]
PERCENT = Metric("acc", scale=(0, 100), prompts=1000, samples_per_prompt=16)
WRONG = Metric("wrong", "error_rate", scale=(1, 0), prompts=1000, samples_per_prompt=16)


@pytest.mark.parametrize("level", ["run", "recipe", "new_run"])
def test_four_rows_per_name_with_the_promised_columns(hand_fit: Fit, level: str) -> None:
    table = hand_fit.parameters(level=level)
    assert list(table.columns) == COLUMNS
    assert table["parameter"].tolist() == ["floor", "ceiling", "exponent", "midpoint"] * 2
    assert (table[["q05", "q50", "q95"]].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    is_ceiling = table["parameter"] == "ceiling"
    assert (table.loc[is_ceiling, "verdict"] != "").all()
    assert (table.loc[~is_ceiling, "verdict"] == "").all()
    assert table.set_index("parameter").loc["midpoint", "unit"].eq("gpu_hours").all()


def test_floor_and_ceiling_come_in_the_units_of_the_log() -> None:
    plain = fit_by_hand().parameters().set_index(["name", "parameter"]).loc["alpha"]
    assert plain.loc["floor", "mean"] == pytest.approx(FLOOR)
    assert plain.loc["ceiling", "mean"] == pytest.approx(CEILING, abs=0.003)
    percent = (
        fit_by_hand(hand_runs(metric=PERCENT)).parameters().set_index(["name", "parameter"]).loc["alpha"]
    )
    for column in ("mean", "sd", "q05", "q50", "q95", "prior_sd", "prior_shift", "least_squares"):
        assert percent.loc["ceiling", column] == pytest.approx(100 * plain.loc["ceiling", column], rel=1e-6)
        if column in ("mean", "sd", "q05"):
            assert percent.loc["midpoint", column] == pytest.approx(plain.loc["midpoint", column])
    assert percent.loc["ceiling", "sd_ratio"] == pytest.approx(plain.loc["ceiling", "sd_ratio"])
    wrong = fit_by_hand(hand_runs(metric=WRONG)).parameters().set_index(["name", "parameter"]).loc["alpha"]
    assert wrong.loc["ceiling", "mean"] == pytest.approx(1 - plain.loc["ceiling", "mean"])
    assert wrong.loc["ceiling", "q05"] == pytest.approx(1 - plain.loc["ceiling", "q95"])
    assert wrong.loc["ceiling", "prior_sd"] == pytest.approx(plain.loc["ceiling", "prior_sd"])
    # A prior that lowers the pass rate raises the error rate.
    assert wrong.loc["ceiling", "prior_shift"] == pytest.approx(-plain.loc["ceiling", "prior_shift"])


@pytest.mark.parametrize(
    ("half", "sd_ratio", "shift", "own", "start", "words"),
    [
        (0.005, 0.05, 0.001, None, "identified", "+-0.005"),
        (0.05, 0.3, 0.01, None, "roughly known", "+-0.05"),
        (0.005, 0.5, 0.001, None, "not identified", "50%"),
        (0.005, 0.05, -0.03, None, "not identified", "-0.03"),
        (0.005, 0.05, float("nan"), None, "not identified", "cannot tell"),
        (0.005, 0.05, 0.001, 0.9, "identified", "through its siblings only"),
        (0.005, 0.05, 0.001, 0.1, "identified", "+-0.005"),
    ],
)
def test_the_words_follow_the_numbers(
    half: float, sd_ratio: float, shift: float, own: float | None, start: str, words: str
) -> None:
    ceiling = 0.6 + half / 0.9 * np.linspace(-1, 1, 2001)
    said = verdict(ceiling, sd_ratio, shift, own, 1.0)
    assert said.startswith(start)
    assert words in said
    assert ("siblings" in said) == (own == 0.9)
    if "+-" in said:
        assert "90 % interval" in said
        assert f"+-{100 * half:.3g}" in verdict(ceiling, sd_ratio, shift, own, -100.0)


def test_an_early_rise_does_not_identify_the_ceiling(early_fit: Fit) -> None:
    assert early_fit.passed, early_fit.checks
    row = early_fit.parameters().set_index("parameter").loc["ceiling"]
    assert row["verdict"].startswith("not identified")
    assert row["fitted_over_midpoint"] < 1.5
    assert row["q05"] < 0.6 < row["q95"]


def test_a_plateau_identifies_the_ceiling(plateau_fit: Fit) -> None:
    assert plateau_fit.passed, plateau_fit.checks
    row = plateau_fit.parameters().set_index("parameter").loc["ceiling"]
    assert row["verdict"].startswith("identified")
    assert row["fitted_over_midpoint"] > 8
    assert abs(row["mean"] - 0.6) < 4 * row["sd"]
    assert row["sd_ratio"] < 0.1
    assert abs(row["prior_shift"]) < 0.003


def test_forecasts_from_sampled_fits_cover_the_truth_and_know_what_they_do_not(
    early_fit: Fit, plateau_fit: Fit
) -> None:
    early = early_fit.predict([16_000]).iloc[0]
    late = plateau_fit.predict([64_000]).iloc[0]
    assert early["q95"] - early["q05"] > 3 * (late["q95"] - late["q05"])
    assert late["q05"] - 0.02 < 0.6 < late["q95"] + 0.02


def two_recipes() -> Runs:
    return sigmoid_world(2, 2, points=40, rng=np.random.default_rng(30), midpoint_share=(0.3, 0.4)).runs


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["none", "ceiling"])
def test_shift_under_the_other_prior_is_that_of_a_refit(pool: str) -> None:
    runs = two_recipes()
    here, there = (fit(runs, upto=8_000, prior=prior, pool=pool, seed=4) for prior in ("wide", "llm-rl"))
    assert here.passed
    assert there.passed
    for level in ("run", "recipe"):
        for name in here.observations.runs if level == "run" else here.observations.recipes:
            before, after = curve_draws(here, level, name), curve_draws(there, level, name)
            assert before is not None
            assert after is not None
            refitted = after.ceiling.mean() - before.ceiling.mean()
            shape = (here.draws.sizes["chain"], -1)
            errors = [float(az.mcse(curve.ceiling.reshape(shape))) for curve in (before, after)]
            # The weighted draws are at least 200 effective ones.
            weighted = after.ceiling.std() / np.sqrt(200)
            shift = ceiling_shift(here, level, name)
            assert abs(shift - refitted) < 4 * np.hypot(weighted, np.hypot(*errors)), (name, shift, refitted)


def test_shift_of_a_run_by_itself_is_that_of_a_refit(early_fit: Fit) -> None:
    """Particle fits of an early rise, whose ceiling follows the prior: weights against another posterior."""
    here = early_fit
    assert here.settings.engine == "particle"
    there = fit(here.runs, upto=here.settings.upto, prior="llm-rl", seed=4)
    name, recipe = here.observations.runs[0], here.observations.recipes[0]
    for start, end in ((here, there), (there, here)):
        before, after = (one.draws["ceiling"].to_numpy()[..., 0] for one in (start, end))
        refitted = after.mean() - before.mean()
        # Means by repeat, of four; of 6,000 draws, some copies of each other, weights leave 1,000 and more.
        own = np.hypot(before.mean(axis=1).std(ddof=1), after.mean(axis=1).std(ddof=1)) / 2
        error = np.hypot(own, after.std() / np.sqrt(1000))
        shift = ceiling_shift(start, "run", name)
        assert abs(shift - refitted) < 4 * error
        assert abs(shift) > 0.002  # the prior does move it
        # A recipe of one run moves with it.
        assert ceiling_shift(start, "recipe", recipe) == pytest.approx(shift, abs=0.2 * abs(shift))


def test_shift_is_not_told_from_too_few_draws() -> None:
    far = fit_by_hand(pooled=())
    posterior = far.posterior["posterior"].to_dataset().copy(deep=True)
    rng = np.random.default_rng(0)
    posterior["recipe_gain"].values = 6.0 + 2.0 * rng.standard_normal(posterior["recipe_gain"].shape)
    tree = type(far.posterior).from_dict({"/posterior": posterior})
    assert np.isnan(ceiling_shift(replace(far, posterior=tree), "run", "alpha"))
