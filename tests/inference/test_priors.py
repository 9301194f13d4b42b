"""Presets, what is pooled, and what depends on the size of an evaluation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from forecast.errors import InputError
from forecast.inference.priors import PRIORS, drift_sd, get_priors, noise_prior, pooled_parameters

ALL = ("ceiling", "exponent", "midpoint")


@pytest.mark.parametrize(
    ("pool", "recipes", "expected"),
    [
        ("auto", 1, ()),
        ("auto", 2, ("ceiling", "exponent")),
        ("auto", 4, ("ceiling", "exponent")),
        ("auto", 5, ALL),
        ("auto", 40, ALL),
        ("none", 9, ()),
        ("all", 2, ALL),
        ("exponent,ceiling", 9, ("ceiling", "exponent")),
        (" midpoint ", 9, ("midpoint",)),
    ],
)
def test_what_recipes_teach_each_other(pool: str, recipes: int, expected: tuple[str, ...]) -> None:
    assert pooled_parameters(pool, recipes) == expected


@pytest.mark.parametrize("pool", ["", "everything", "ceiling,,exponent", "ceiling;exponent", "floor"])
def test_unknown_pooling_is_refused(pool: str) -> None:
    with pytest.raises(InputError, match="--pool") as caught:
        pooled_parameters(pool, 3)
    assert "\n" not in str(caught.value)


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(InputError, match=r"wide \| llm-rl"):
        get_priors("narrow")


@pytest.mark.parametrize("name", PRIORS)
def test_presets_are_named_and_plain_data(name: str) -> None:
    priors = get_priors(name)
    assert priors.name == name
    assert json.loads(json.dumps(priors.to_dict()))["gain"] == {
        "mean": priors.gain.mean,
        "sd": priors.gain.sd,
    }


def test_presets_differ_in_the_ceiling_only_and_mean_what_is_said_of_them() -> None:
    wide, narrow = get_priors("wide").to_dict(), get_priors("llm-rl").to_dict()
    assert {key for key in wide if wide[key] != narrow[key]} == {"name", "gain"}
    rng = np.random.default_rng(0)
    for name, covered in (("wide", 0.95), ("llm-rl", 0.7)):
        gain = get_priors(name).gain
        ceiling = 0.3 + 0.7 * expit(rng.normal(gain.mean, gain.sd, 20_000))
        # From a floor of .3: the wide prior must allow a ceiling of .93 and of .38 within its 95 %.
        low, high = np.quantile(ceiling, [0.025, 0.975])
        assert (low < 0.38 and high > 0.93) == (covered == 0.95)


def test_exponent_prior_is_the_measured_one() -> None:
    prior = get_priors("wide").log_exponent
    low, middle, high = np.exp(prior.mean + prior.sd * np.array([-1.645, 0, 1.645]))
    assert middle == pytest.approx(1.85, abs=0.01)
    assert (low, high) == (pytest.approx(1.04, abs=0.02), pytest.approx(3.29, abs=0.03))


@pytest.mark.parametrize("trials", [1, 500, 9_999, float("inf")])
def test_small_or_unknown_evaluations_drift_and_scatter_more(trials: float) -> None:
    assert noise_prior(trials)[0] > noise_prior(10_000)[0]
    assert noise_prior(trials)[1] > noise_prior(10_000)[1]
    assert drift_sd(trials) > drift_sd(10_000)
