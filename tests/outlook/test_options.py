"""Are all ways to go on listed, each with the curve, price and noise of what it is?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fits_by_hand import apart, fit_by_hand, hand_runs
from weighed_by_hand import hand_weighed

from forecast.errors import InputError
from forecast.outlook.options import ACTIONS, make_options
from forecast.outlook.prices import Prices
from forecast.runs.table import Metric, Runs

SEEDS = {"a0": "a", "a1": "a", "b0": "b"}


def with_models(runs: Runs, **models: str) -> Runs:
    return replace(runs, table=runs.table.assign(model=runs.table["run"].map(models)))


def test_every_run_every_recipe_and_to_stop() -> None:
    options = make_options(fit_by_hand(hand_runs(SEEDS)), Prices())
    assert [one.label for one in options] == [
        "continue a0",
        "continue a1",
        "continue b0",
        "start a",
        "start b",
        "stop with b0",
    ]
    assert {one.action for one in options} == set(ACTIONS)
    assert [one.spent for one in options] == pytest.approx([8000, 8000, 8000, 0, 0, 8000])
    assert all(np.isnan(one.price) and one.model == "" for one in options)


def test_values_are_those_of_the_forecast() -> None:
    fit = fit_by_hand(hand_runs(SEEDS))
    going, fresh = (
        [one for one in make_options(fit, Prices()) if one.action == action]
        for action in ("continue", "start")
    )
    runs, recipes = fit.predict([12_000.0]), fit.predict([4_000.0], level="new_run")
    # What was spent went through a logarithm.
    np.testing.assert_allclose([one.value(4_000.0).mean() for one in going], runs["mean"], rtol=1e-9)
    np.testing.assert_allclose([one.value(4_000.0).mean() for one in fresh], recipes["mean"], rtol=1e-9)
    assert not np.allclose(runs["mean"][0], recipes["mean"][0], rtol=1e-3)


def test_draws_of_one_recipe_go_together() -> None:
    fit = fit_by_hand(hand_runs(SEEDS), ceiling_sd=0.05)
    options = {one.label: one.value(20_000.0) for one in make_options(fit, Prices())}
    together = np.corrcoef(options["continue b0"], options["start b"])[0, 1]
    apart_ = np.corrcoef(options["continue a0"], options["continue b0"])[0, 1]
    # Ceilings (sd .05) are drawn by recipe, drifts (sd .02 at most here) by option: .05**2 / (.05**2 + .02**2) = .86.
    # Four standard errors of a correlation of 600 independent draws are .16.
    assert together > 0.7
    assert abs(apart_) < 0.16


def test_to_stop_keeps_what_is_best_now_whatever_is_asked_for() -> None:
    fit = fit_by_hand()
    named = make_options(fit, Prices(), names=["alpha"])
    assert [one.label for one in named] == ["continue alpha", "start alpha", "stop with beta"]
    stop = named[-1]
    np.testing.assert_array_equal(stop.value(1e6), stop.value(0.0))
    assert stop.value(0.0).mean() == pytest.approx(
        fit.predict([8_000.0], names=["beta"])["mean"][0], rel=1e-9
    )


def test_names_are_of_runs_and_of_recipes() -> None:
    fit = fit_by_hand(hand_runs(SEEDS))
    labels = [one.label for one in make_options(fit, Prices(), names=["b", "a1"])]
    assert labels == ["continue a1", "start b", "stop with b0"]


def test_runs_fitted_apart_have_no_new_run_to_start() -> None:
    fit = apart(fit_by_hand(hand_runs(SEEDS)))
    assert [one.action for one in make_options(fit, Prices())] == ["continue"] * 3 + ["stop"]
    with pytest.raises(InputError, match=r"no such run or recipe, found b, expected a0 \| a1 \| b0$"):
        make_options(fit, Prices(), names=["b"])


def test_unknown_and_refused_names() -> None:
    fit = fit_by_hand(hand_runs(("alpha", "beta", "gamma")), refused={"gamma": "collapsed"})
    assert "continue gamma" not in [one.label for one in make_options(fit, Prices())]
    with pytest.raises(InputError, match=r"no forecast for run 'gamma', found collapsed"):
        make_options(fit, Prices(), names=["gamma"])
    with pytest.raises(InputError, match=r"no such run or recipe, found delta, expected alpha \| beta"):
        make_options(fit, Prices(), names=["alpha", "delta"])


def test_models_and_their_prices() -> None:
    fit = fit_by_hand(with_models(hand_runs(SEEDS), a0="small", a1="small", b0="large"))
    options = {one.label: one for one in make_options(fit, Prices(3.0, {"small": 1.0, "large": 9.0}))}
    assert {label: (one.model, one.price) for label, one in options.items()} == {
        "continue a0": ("small", 1.0),
        "continue a1": ("small", 1.0),
        "continue b0": ("large", 9.0),
        "start a": ("small", 1.0),
        "start b": ("large", 9.0),
        "stop with b0": ("large", 0.0),
    }
    with pytest.raises(InputError, match="no price for model 'large'"):
        make_options(fit, Prices(None, {"small": 1.0}))


def test_a_recipe_of_several_models_has_one_price_or_none() -> None:
    fit = fit_by_hand(with_models(hand_runs(SEEDS), a0="small", a1="large", b0="large"))
    prices = Prices(3.0, {"small": 1.0, "large": 9.0})
    with pytest.raises(InputError, match="runs of recipe 'a' are of several models"):
        make_options(fit, prices)
    runs = {one.label: one.price for one in make_options(fit, prices, names=["a0", "a1", "b"])}
    assert runs == {"continue a0": 1.0, "continue a1": 9.0, "start b": 9.0, "stop with b0": 0.0}
    assert {one.price for one in make_options(fit, Prices(3.0))} == {3.0, 0.0}


def test_noise_is_that_of_evaluations() -> None:
    declared = make_options(fit_by_hand(), Prices())
    assert [one.trials for one in declared] == pytest.approx([16_000] * 5)
    silent = make_options(fit_by_hand(hand_runs(metric=Metric("acc"))), Prices())
    assert np.isinf([one.trials for one in silent]).all()


def test_averaged_options_may_move_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_by_hand()
    weighed = {name: hand_weighed() for name in fit.runs.names}
    monkeypatch.setattr("forecast.outlook.evidence.weigh_fit", lambda fit: weighed)
    plain = make_options(fit, Prices())
    moving = make_options(fit, Prices(), transitions="averaged")
    assert [one.label.split()[0] for one in moving] == [one.label.split()[0] for one in plain]
    for one, other in zip(plain, moving, strict=True):
        assert one.value(1e6).shape == other.value(1e6).shape
        assert np.std(other.value(1e6)) > 1.5 * np.std(one.value(1e6))
