"""Are the true curves of a world those of the families, drawn from the ranges that were asked for?"""

from __future__ import annotations

import numpy as np
import pytest

from forecast.curves import burr, power_law, sigmoid
from forecast.errors import InputError
from simulators.evaluations import Evaluations
from simulators.truth import Curves
from simulators.worlds import World, draw_world

COMPUTE = np.geomspace(1.0, 1e6, 30)
FEW = Evaluations(points=3, start=0.0)
ALIKE = {"ceiling": 0.0, "exponent": 0.0, "midpoint": 0.0}


def many(curves: Curves, recipes: int = 400, seeds: int = 1, models: int = 1, seed: int = 1) -> World:
    return draw_world(
        recipes, seeds, models=models, curves=curves, evaluations=FEW, rng=np.random.default_rng(seed)
    )


def test_power_law_is_that_of_the_curves() -> None:
    world = many(Curves(family="power_law"), recipes=5)
    for row in world.truth.itertuples():
        expected = power_law(COMPUTE, row.floor, row.ceiling, row.exponent, row.midpoint)
        np.testing.assert_array_equal(world.curve(row.run, COMPUTE), expected)
    assert world.truth["family"].eq("power_law").all()
    assert world.truth["tail"].isna().all()


def test_burr_has_a_tail_per_recipe_within_its_range() -> None:
    world = many(Curves(family="burr", tail=(0.2, 0.8)), recipes=200, seeds=2)
    truth = world.truth
    for row in truth[:5].itertuples():
        expected = burr(COMPUTE, row.floor, row.ceiling, row.exponent, row.midpoint, row.tail)
        np.testing.assert_array_equal(world.curve(row.run, COMPUTE), expected)
    assert truth.groupby("recipe")["tail"].nunique().eq(1).all()
    assert truth["tail"].between(0.2, 0.8).all()
    middle = np.log(truth["tail"]).mean()  # log-uniform over log 4, 200 recipes
    assert middle == pytest.approx(np.log(0.4), abs=4 * np.log(4) / np.sqrt(12 * 200))


def test_evaluations_follow_the_curve_of_their_family() -> None:
    world = draw_world(
        30, 1, curves=Curves(family="power_law"), evaluations=Evaluations(), rng=np.random.default_rng(2)
    )
    table = world.runs.table
    off = np.concatenate(
        [rows["value"] - world.curve(run, rows["compute"]) for run, rows in table.groupby("run")]
    )
    # sd .0075 per evaluation of wander and binomial; neighbours correlated by up to .9.
    assert np.abs(off).max() < 0.06
    assert off.mean() == pytest.approx(0, abs=4 * 0.0075 * np.sqrt(10 / len(off)))


@pytest.mark.parametrize("ceiling", [(0.25, 0.40), (0.85, 0.95)])
def test_ceilings_and_exponents_lie_where_they_were_asked_for(ceiling: tuple[float, float]) -> None:
    truth = many(Curves(ceiling=ceiling, exponent=1.2, exponent_sd=0.1, seed_sd=ALIKE)).truth
    assert truth["ceiling"].between(*ceiling).all()
    width = ceiling[1] - ceiling[0]
    assert truth["ceiling"].mean() == pytest.approx(np.mean(ceiling), abs=4 * width / np.sqrt(12 * 400))
    assert (truth["floor"] / truth["ceiling"]).between(0.15, 0.60).all()
    exponents = np.log(truth["exponent"])
    assert exponents.mean() == pytest.approx(np.log(1.2), abs=4 * 0.1 / np.sqrt(400))
    assert exponents.std() == pytest.approx(0.1, rel=4 / np.sqrt(800))


def test_each_model_has_one_floor_and_shifts_every_ceiling_alike() -> None:
    world = many(Curves(seed_sd=ALIKE, model_shift=(-0.1, 0.1)), recipes=5, seeds=2, models=3)
    truth = world.truth
    assert len(truth) == 30
    assert world.runs.names == list(truth["run"])
    assert truth["run"].iloc[0] == "model1_recipe1_s0"
    assert (truth["run"].str.startswith(truth["recipe"].iloc[0])).sum() == 2
    assert all(
        recipe.startswith(model) for recipe, model in zip(truth["recipe"], truth["model"], strict=True)
    )
    assert truth["recipe"].nunique() == 15  # a recipe on another model is a group of its own
    models = world.runs.table.groupby("run")["model"].first()
    assert models.tolist() == truth["model"].tolist()

    floors = truth.groupby("model")["floor"].unique()
    assert floors.map(len).eq(1).all()
    shares = floors.map(lambda floor: floor[0]) / truth.groupby("model")["ceiling"].min()
    assert shares.between(0.15, 0.60).all()
    assert np.ptp(shares.round(9)) > 0.01
    assert (truth["floor"] < truth["ceiling"]).all()
    tops = truth["ceiling"].to_numpy().reshape(3, 10)
    for one, other in ((0, 1), (0, 2)):
        assert np.ptp(tops[one] - tops[other]) == pytest.approx(0, abs=1e-12)
        assert 0 < abs(tops[one, 0] - tops[other, 0]) <= 0.2
    for name in ("exponent", "midpoint"):
        values = truth[name].to_numpy().reshape(3, 10)
        assert (values == values[0]).all()


def test_a_shift_beyond_the_scale_leaves_floors_below_ceilings_within_it() -> None:
    for shift in ((-0.9, -0.8), (0.8, 0.9)):
        truth = many(Curves(model_shift=shift), recipes=20, models=2).truth
        assert ((truth["floor"] >= 0) & (truth["floor"] < truth["ceiling"])).all()
        assert truth["ceiling"].le(1).all()


def test_creep_adds_its_slope_per_e_fold_and_never_leaves_the_scale() -> None:
    world = many(Curves(creep_sd=0.01))
    truth = world.truth
    assert truth["creep"].std() == pytest.approx(0.01, rel=4 / np.sqrt(800))
    assert truth["creep"].mean() == pytest.approx(0, abs=4 * 0.01 / np.sqrt(400))
    row = truth.iloc[truth["creep"].abs().argmin() + 1]
    still = sigmoid(COMPUTE, row["floor"], row["ceiling"], row["exponent"], row["midpoint"])
    far = 1e6 * row["midpoint"] * np.array([1.0, np.e])
    assert np.diff(world.curve(row["run"], far))[0] == pytest.approx(row["creep"], rel=1e-3)
    early = row["midpoint"] / 1_000 > COMPUTE
    assert world.curve(row["run"], COMPUTE)[early] == pytest.approx(still[early], abs=1e-4)
    fast = many(Curves(creep_sd=0.5), recipes=50)
    levels = np.concatenate([fast.curve(run, COMPUTE) for run in fast.truth["run"]])
    assert (levels.min(), levels.max()) == (0, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"family": "gompertz"},
        {"family": "second_rise"},
        {"ceiling": (0.9, 0.5)},
        {"ceiling": (0.5, 1.2)},
        {"ceiling": (0.5, np.nan)},
        {"ceiling": (0.0, 0.5)},
        {"ceiling": (0.5,)},
        {"floor_share": (-0.1, 0.5)},
        {"midpoint_share": (0.0, 0.5)},
        {"exponent": 0.1},
        {"tail": (0.0, 1.0)},
        {"seed_sd": {"floor": 0.1}},
        {"seed_sd": {"ceiling": -0.1}},
        {"creep_sd": -0.01},
    ],
)
def test_impossible_curves_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match="found"):
        Curves(**wrong)


def test_a_world_needs_a_model() -> None:
    with pytest.raises(InputError, match="models"):
        draw_world(models=0, rng=np.random.default_rng(0))
