"""Families mixed by their evidence, moves beyond the data by the hazard, and what lies ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fits_by_hand import fit_by_hand, hand_runs
from weighed_by_hand import CEILINGS, UPTO, hand_weighed

from forecast.errors import InputError
from forecast.fits import Fit
from forecast.inference.priors import PRIORS
from forecast.inference.run_prior import FAMILIES
from forecast.inference.weighing import MOVES, SMOOTH, Weighed
from forecast.outlook.averaged import average, averaged_draws, family_weights, window_decades
from forecast.outlook.draws import CurveDraws
from forecast.outlook.hazard import Hazard
from forecast.outlook.onset import p_ahead

WIDE = PRIORS["wide"]
NEVER = Hazard(0, 0)
EVIDENCE = {"burr": 0.7, "power_law": 1.1, "second_rise": 2.0, "collapse": 1.2}
WINDOW_END = 4.0  # of the data
SIGMOIDS = 0.5


def sigmoids(size: int = 4_000, ceiling: float = SIGMOIDS, sd: float = 0.0) -> CurveDraws:
    rng = np.random.default_rng(3)
    return CurveDraws(
        floor=np.full(size, 0.3),
        ceiling=ceiling + sd * rng.standard_normal(size),
        exponent=1.5 + 1e-3 * rng.standard_normal(size),
        midpoint=np.full(size, 0.2 * UPTO),
        noise=np.full(size, 0.005),
        drift=np.zeros(size),
        fitted_upto=UPTO,
    )


def mixed(
    *weighed: Weighed,
    hazard: Hazard = NEVER,
    size: int = 4_000,
    seed: int = 0,
    drift: float = 0.0,
    sd: float = 0.0,
) -> CurveDraws:
    return average(
        sigmoids(size, sd=sd), list(weighed), hazard, WIDE, drift, np.random.default_rng([seed, 9])
    )


# Weights


def test_weights_are_prior_times_evidence() -> None:
    hazard = Hazard(0.3, 0.1)
    found = family_weights(hand_weighed(EVIDENCE), hazard, WIDE)
    decades = 2 * np.log10(4.0)
    assert window_decades(WIDE) == pytest.approx(decades, abs=1e-3)  # the prior's ends are rounded
    decades = window_decades(WIDE)
    some = 1 - 10 ** (-decades * 0.4 / np.log(10))
    prior = {name: (1 - some) * weight for name, weight in SMOOTH.items()}
    prior |= {"second_rise": some * 0.75, "collapse": some * 0.25}
    joint = {name: prior[name] * np.exp(EVIDENCE.get(name, 0.0)) for name in FAMILIES}
    for name in FAMILIES:
        assert found[name] == pytest.approx(joint[name] / sum(joint.values())), name
    assert list(found) == list(FAMILIES)


def test_without_evidence_the_weights_are_the_prior() -> None:
    hazard = Hazard(0.2, 0.4)
    found = family_weights(hand_weighed(), hazard, WIDE)
    within = hazard.within(window_decades(WIDE))
    assert {kind: found[family] for kind, family in MOVES.items()} == pytest.approx(within)
    assert found["burr"] / found["sigmoid"] == pytest.approx(SMOOTH["burr"] / SMOOTH["sigmoid"])


@pytest.mark.parametrize("level", [-1e4, 0.0, 1e4])
def test_weights_hold_however_large_the_evidence(level: float) -> None:
    evidence = {name: level + EVIDENCE.get(name, 0.0) for name in FAMILIES}
    expected = family_weights(hand_weighed(EVIDENCE), Hazard(), WIDE)
    assert family_weights(hand_weighed(evidence), Hazard(), WIDE) == pytest.approx(expected)
    one = family_weights(hand_weighed({"collapse": 1e4}), Hazard(), WIDE)
    assert one["collapse"] == pytest.approx(1)
    assert family_weights(hand_weighed({"collapse": 1e4}), Hazard(0.1, 0), WIDE)["collapse"] == 0


# The mixture


def families_of(draws: CurveDraws, shifts: tuple[float, ...] = (0.0,)) -> dict[tuple[str, float], int]:
    """Count draws of each family by the ceiling that only it has."""
    found = {
        (name, shift): int(np.isclose(draws.ceiling, CEILINGS[name] + shift, atol=1e-9).sum())
        for name in FAMILIES
        for shift in (shifts if name != "sigmoid" else (0.0,))
    }
    assert sum(found.values()) == len(draws.ceiling)
    return found


def test_families_are_met_as_often_as_their_weights_say() -> None:
    hazard, size = Hazard(0.3, 0.1), 3_000
    weighed = hand_weighed(EVIDENCE)
    weights = family_weights(weighed, hazard, WIDE)
    for (name, _), count in families_of(mixed(weighed, hazard=hazard, size=size)).items():
        assert abs(count - size * weights[name]) <= 1 + 1e-9, name


def test_draws_of_a_family_are_its_own_curve() -> None:
    draws = mixed(hand_weighed(EVIDENCE), hazard=Hazard(1e-9, 1e-9))
    only = {
        "burr": (0.7, 0.0),
        "power_law": (1.5, 0.0),
        "sigmoid": (1.0, 0.0),
    }
    for name, (tail, _) in only.items():
        at = np.isclose(draws.ceiling, CEILINGS[name], atol=1e-9)
        assert np.median(draws.tail[at]) == pytest.approx(tail, rel=0.02), name
    assert (draws.exponent[np.isclose(draws.ceiling, CEILINGS["power_law"])] == 1).all()
    moving = mixed(hand_weighed({"second_rise": 40.0, "collapse": 40.0}), hazard=Hazard(0.1, 0.1))
    for name, sign in (("second_rise", 1), ("collapse", -1)):
        at = np.isclose(moving.ceiling, CEILINGS[name], atol=1e-9)
        assert np.median(moving.move[at]) == pytest.approx(sign * 0.2, rel=0.02)
        assert (moving.second_midpoint[at] == 0.5 * UPTO * 9.0**0.25).all()


def test_no_hazard_and_no_evidence_give_smooth_curves_only() -> None:
    size = 4_000
    draws = mixed(hand_weighed(), size=size, sd=0.0)
    assert (draws.move == 0).all()
    counts = families_of(draws)
    for name in FAMILIES:
        assert abs(counts[name, 0.0] - size * SMOOTH.get(name, 0.0)) <= 1 + 1e-9
    far = np.array([0.1, 1.0, 1e3]) * UPTO
    of_smooth = CurveDraws(
        **{
            name: getattr(draws, name)
            for name in ("floor", "ceiling", "exponent", "midpoint", "noise", "drift", "tail")
        },
        fitted_upto=UPTO,
    )
    np.testing.assert_array_equal(draws.curve(far), of_smooth.curve(far))


def test_the_draws_of_the_fit_stand_for_the_sigmoid() -> None:
    single = sigmoids(sd=0.01)
    draws = average(single, [hand_weighed({"sigmoid": 50.0})], NEVER, WIDE, 0.01, np.random.default_rng(1))
    for name in ("floor", "ceiling", "exponent", "midpoint", "noise", "drift"):
        np.testing.assert_array_equal(getattr(draws, name), getattr(single, name))
    compute = np.geomspace(10, 1e5, 9)
    np.testing.assert_allclose(draws.curve(compute), single.curve(compute), rtol=1e-12)


def test_mixing_leaves_the_draws_of_the_fit_as_they_are() -> None:
    single = sigmoids()
    before = {name: getattr(single, name).copy() for name in ("floor", "ceiling", "exponent", "drift")}
    average(single, [hand_weighed(EVIDENCE)], Hazard(1, 1), WIDE, 0.01, np.random.default_rng(1))
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(single, name), value)


def test_a_recipe_mixes_its_runs_evenly_whatever_their_evidence() -> None:
    size = 3_000
    one = hand_weighed({name: 5.0 + EVIDENCE.get(name, 0.0) for name in FAMILIES})
    two = hand_weighed({"burr": 9.0}, shift=0.01)
    hazard = Hazard(0.3, 0.1)
    counts = families_of(mixed(one, two, hazard=hazard, size=size), (0.0, 0.01))
    expected: dict[tuple[str, float], float] = {}
    for weighed, shift in ((one, 0.0), (two, 0.01)):
        for name, weight in family_weights(weighed, hazard, WIDE).items():
            key = (name, 0.0 if name == "sigmoid" else shift)
            expected[key] = expected.get(key, 0.0) + size * weight / 2
    for key, count in counts.items():
        assert abs(count - expected[key]) <= 2 + 1e-9, key


# Beyond the data


def test_later_moves_fall_beyond_the_window_as_the_hazard_says() -> None:
    size, hazard = 20_000, Hazard(0.15, 0.05)
    draws = mixed(hand_weighed({"sigmoid": 60.0}), hazard=hazard, size=size)
    away = np.log10(draws.second_midpoint / UPTO) - WIDE.log_second_midpoint[1] / np.log(10)
    assert (away >= -1e-12).all()
    for decades in (0.3, 1.0, 3.0, 8.0):
        p = -np.expm1(-hazard.total * decades)
        near = away <= decades
        assert abs(near.mean() - p) < 4.5 * np.sqrt(p * (1 - p) / size), decades
        rises = draws.move[near] > 0
        assert abs(rises.mean() - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / near.sum())
    assert (np.abs(draws.move) > 0).all()
    assert (draws.move <= 1 - draws.ceiling).all()
    assert (draws.move >= -draws.ceiling).all()


@pytest.mark.parametrize(("hazard", "sign"), [(Hazard(0.3, 0), 1), (Hazard(0, 0.3), -1)])
def test_a_kind_that_is_not_expected_does_not_happen(hazard: Hazard, sign: int) -> None:
    draws = mixed(hand_weighed({"sigmoid": 60.0}), hazard=hazard)
    assert (sign * draws.move > 0).all()


def test_a_moved_curve_does_not_move_again() -> None:
    draws = mixed(hand_weighed({"second_rise": 60.0}), hazard=Hazard(5, 5))
    assert (draws.second_midpoint == 0.5 * UPTO * 9.0**0.25).all()


def test_the_band_widens_with_distance_and_with_the_hazard() -> None:
    compute = UPTO * np.array([1.0, 10.0, 100.0, 1e3])
    widths = []
    for rate in (0.0, 0.02, 0.05, 0.2):
        draws = mixed(hand_weighed({"sigmoid": 3.0}), hazard=Hazard(rate, rate), size=8_000, drift=0.001)
        curve = draws.curve(compute)
        widths.append(np.quantile(curve, 0.95, axis=0) - np.quantile(curve, 0.05, axis=0))
    table = np.array(widths)
    # Until nearly all have moved, distance and hazard widen the 90 % band.
    assert (np.diff(table[1:], axis=1) >= 0).all(), table
    assert (np.diff(table[:, 1:], axis=0) >= 0).all(), table
    assert table[-1, -1] > 5 * table[0, -1]


def test_the_same_random_numbers_give_the_same_draws() -> None:
    one, two, other = (mixed(hand_weighed(EVIDENCE), hazard=Hazard(), seed=s) for s in (4, 4, 5))
    for name in ("ceiling", "move", "second_midpoint", "drift", "tail"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert (one.second_midpoint != other.second_midpoint).any()


# Forecasts of a fit


def weighed_fit(**options: object) -> Fit:
    """Two runs of one recipe and one of another, with evidence that is written down."""
    runs = hand_runs({"a0": "a", "a1": "a", "b0": "b"})
    fit = fit_by_hand(runs, **options)
    weighed = {
        "a0": hand_weighed({"burr": 30.0}),
        "a1": hand_weighed({"second_rise": 30.0}),
        "b0": hand_weighed({"sigmoid": 30.0}),
    }
    fit.__dict__["weighed"] = weighed
    return fit


AT = [4_000.0, 16_000.0, 1_000_000.0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_run_differs_from_the_fitted_ones_whatever_the_family(family: str) -> None:
    fit = fit_by_hand(hand_runs(["a"]), ceiling_sd=1e-4)
    for name, sd in (("gain", 0.4), ("log_exponent", 0.1), ("log_midpoint", 0.1)):
        fit.draws[f"{name}_within_sd"][:] = sd
    fit.__dict__["weighed"] = {"a": hand_weighed({family: 200.0})}
    spread = {}
    for level in ("run", "recipe", "new_run"):
        draws = averaged_draws(fit, level, "a", Hazard(1e-9, 1e-9))
        gain = (draws.ceiling - draws.floor) / (1 - draws.floor)
        spread[level] = np.std(np.log(gain / (1 - gain)))
    assert spread["run"] < 0.1
    assert spread["recipe"] < 0.1
    # 600 draws: standard error of an sd 3 %.
    assert spread["new_run"] == pytest.approx(0.4, rel=0.12)


@pytest.mark.parametrize("level", ["run", "recipe", "new_run"])
@pytest.mark.parametrize("quantity", ["curve", "evaluation"])
def test_a_forecast_does_not_depend_on_what_else_is_asked(level: str, quantity: str) -> None:
    fit = weighed_fit()
    ask = {"level": level, "quantity": quantity, "transitions": "averaged", "hazard": Hazard(0.3, 0.3)}
    together = fit.predict(AT, **ask)
    assert (together["transitions"] == "averaged").all()
    apart = [fit.predict([c], **ask) for c in AT]
    for compute, one in zip(AT, apart, strict=True):
        expected = together[together["compute"] == compute].reset_index(drop=True)
        # A mean over draws is summed in another order.
        for column in ("mean", "sd", "q05", "q50", "q95"):
            np.testing.assert_allclose(one[column], expected[column], rtol=1e-12)
    named = fit.predict(AT, names=[together["name"].iloc[-1]], **ask)
    np.testing.assert_array_equal(named["q95"], together["q95"].tail(3))


def test_a_run_takes_the_families_that_its_own_evidence_favours() -> None:
    fit = weighed_fit()
    a0, a1, b0 = (averaged_draws(fit, "run", name, Hazard()) for name in ("a0", "a1", "b0"))
    assert np.isclose(a0.ceiling, CEILINGS["burr"]).all()
    assert (a1.move > 0).all()
    assert np.isclose(a1.ceiling, CEILINGS["second_rise"]).all()
    np.testing.assert_array_equal(b0.ceiling, fit.draws["ceiling"].sel(run="b0").to_numpy().ravel())
    recipe = averaged_draws(fit, "recipe", "a", Hazard())
    assert np.isclose(recipe.ceiling, CEILINGS["burr"]).mean() == pytest.approx(0.5, abs=2 / 600)
    assert np.isclose(recipe.ceiling, CEILINGS["second_rise"]).mean() == pytest.approx(0.5, abs=2 / 600)


def test_streams_of_random_numbers_differ_between_curves_and_from_the_fit() -> None:
    fit = weighed_fit()
    everything = fit.weighed | dict.fromkeys(fit.weighed, hand_weighed({"sigmoid": 30.0}))
    fit.__dict__["weighed"] = everything
    places = [
        averaged_draws(fit, level, name, Hazard()).second_midpoint
        for level, name in (("run", "a0"), ("run", "a1"), ("recipe", "a"), ("new_run", "a"))
    ]
    assert len({tuple(place[:3]) for place in places}) == len(places)
    other_seed = fit_by_hand(hand_runs({"a0": "a", "a1": "a", "b0": "b"}), seed=5)
    other_seed.__dict__["weighed"] = everything
    assert (averaged_draws(other_seed, "run", "a0", Hazard()).second_midpoint != places[0]).any()


def test_excluded_needs_no_weights_and_is_what_it_was() -> None:
    fit = fit_by_hand(hand_runs({"a0": "a", "a1": "a", "b0": "b"}))
    plain = fit.predict(AT)
    assert (plain["transitions"] == "excluded").all()
    assert "weighed" not in fit.__dict__
    averaged = weighed_fit().predict(AT, transitions="averaged", hazard=NEVER)
    assert list(averaged.columns) == list(plain.columns)
    for column in ("least_squares", "independent", "region", "times_fitted", "times_midpoint"):
        assert averaged[column].equals(plain[column]), column
    b0 = plain["name"] == "b0"
    np.testing.assert_allclose(averaged.loc[b0, "q95"], plain.loc[b0, "q95"], rtol=1e-12)


def test_a_hazard_unsaid_is_the_default() -> None:
    fit = weighed_fit()
    one, two = (
        fit.predict(AT, transitions="averaged", hazard=hazard) for hazard in (None, Hazard(0.05, 0.05))
    )
    assert one.equals(two)


def test_unknown_transitions_are_refused() -> None:
    with pytest.raises(InputError, match=r"transitions.*found.*'included'.*excluded \| averaged"):
        fit_by_hand().predict([16_000], transitions="included")


# What lies ahead


def test_what_is_ahead_is_the_share_of_moves_between_now_and_the_horizon() -> None:
    weights = {"sigmoid": 0.4, "burr": 0.1, "power_law": 0.0, "second_rise": 0.3, "collapse": 0.2}
    hazard = Hazard(0.2, 0.1)
    for begins, horizon, seen in (
        (0.5, 4.0, 0.0),  # both have begun
        (1.5, 1.4, 0.0),  # both begin later than is asked
        (1.5, 1.6, 0.5),
        (1.5, WINDOW_END * 10, 0.5),
    ):
        found = p_ahead(hand_weighed(begins=begins), weights, hazard, WIDE, horizon * UPTO)
        later, error = begun_later(horizon, hazard)
        assert found == pytest.approx(seen + 0.5 * later, abs=4 * error + 2e-3), (begins, horizon)


def begun_later(horizon: float, hazard: Hazard) -> tuple[float, float]:
    """Share, and its error, of moves beyond the window of which a tenth is made between now and a horizon."""
    rng, size = np.random.default_rng(9), 100_000
    middle = WIDE.log_second_midpoint[1] + np.log(10) * rng.exponential(1 / hazard.total, size)
    steepness = WIDE.log_second_exponent
    begins = middle - np.log(9) / np.exp(rng.normal(steepness.mean, steepness.sd, size))
    share = float(((begins > 0) & (begins <= np.log(horizon))).mean())
    return share, float(np.sqrt(share * (1 - share) / size))


def test_what_is_ahead_grows_with_the_horizon_and_with_the_hazard() -> None:
    weighed = hand_weighed(EVIDENCE, begins=1.5)
    horizons = UPTO * np.geomspace(1.01, 1e5, 12)
    table = np.array(
        [
            [
                p_ahead(weighed, family_weights(weighed, hazard, WIDE), hazard, WIDE, float(horizon))
                for horizon in horizons
            ]
            for hazard in (NEVER, Hazard(0.02, 0.02), Hazard(), Hazard(0.3, 0.1), Hazard(1, 1))
        ]
    )
    assert (table[0] == 0).all()
    assert (np.diff(table, axis=1) >= 0).all()
    assert (np.diff(table[:, 2:], axis=0) > 0).all()
    assert table.max() <= 1


def test_what_is_ahead_agrees_with_the_draws_of_the_forecast() -> None:
    """Moves ahead of the data, within the window and beyond it, by where a tenth of them is made."""
    weighed = hand_weighed(EVIDENCE, begins=1.5)
    hazard, size = Hazard(0.3, 0.2), 20_000
    draws = mixed(weighed, hazard=hazard, size=size)
    weights = family_weights(weighed, hazard, WIDE)
    smooth = np.isin(np.round(draws.ceiling, 9), [round(CEILINGS[name], 9) for name in SMOOTH])
    for times in (40.0, 4_000.0):
        begins = draws.second_midpoint * np.exp(-np.log(9) / draws.second_exponent)
        met = np.where(smooth, (begins <= times * UPTO) & (begins > UPTO), True).mean()
        p = p_ahead(weighed, weights, hazard, WIDE, times * UPTO)
        assert abs(met - p) < 4.5 * np.sqrt(p * (1 - p) / size) + 2e-3, times


def test_a_recipe_reaches_as_far_as_its_longest_run() -> None:
    fit = weighed_fit()
    assert averaged_draws(fit, "recipe", "a", Hazard()).fitted_upto == pytest.approx(8_000)
    longer = replace(fit.weighed["a0"], fitted_upto=2 * UPTO)
    assert longer.begun("rise") == 1
