"""Are settings refused that mean nothing, and written and read without loss?"""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from forecast.errors import InputError
from simulators.minirun.recipes import RECIPES, recipe
from simulators.minirun.settings import Recipe, RunSettings, Size, Verifier, changed


def test_settings_are_changed_from_text():
    found = changed(
        Recipe(),
        {
            "objective": "clipped",
            "learning_rate": "1e-4",
            "rollouts": "4",
            "easy": ".9",
            "clip_high": "0.28",
            "staleness_style": "alternate",
        },
    )
    expected = replace(
        Recipe(),
        objective="clipped",
        learning_rate=1e-4,
        rollouts=4,
        easy=0.9,
        clip_high=0.28,
        staleness_style="alternate",
    )
    assert found == expected
    assert changed(found, {"easy": "none"}).easy is None
    assert changed(found, {}) == found
    assert changed(Verifier(), {"false_positive": "0.05", "exploit": "prefix"}) == Verifier(
        0.05, 0.0, "prefix"
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rat": "1"}, "learning_rat"),
        ({"rollouts": "4.5"}, "rollouts"),
        ({"rollouts": "many"}, "rollouts"),
        ({"rollouts": "0"}, "rollouts"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"learning_rate": "0"}, "learning_rate"),
        ({"learning_rate": "nan"}, "learning_rate"),
        ({"learning_rate": "inf"}, "learning_rate"),
        ({"learning_rate": ""}, "learning_rate"),
        ({"objective": "magic"}, "objective"),
        ({"easy": "often"}, "easy"),
        ({"easy": "1.5"}, "easy"),
        ({"clip_low": "1.5"}, "clip_low"),
        ({"kl": "-1"}, "kl"),
        ({"staleness": "-1"}, "staleness"),
        ({"baseline": "value"}, "scale group with baseline value"),
        ({"rollouts": "1"}, "one rollout"),
        ({"generator_head": "float16"}, "generator_head"),
    ],
)
def test_what_is_no_setting_is_one_error_that_names_it(changes, named):
    with pytest.raises(InputError) as caught:
        changed(Recipe(), changes)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_setting_is_answered_by_those_there_are():
    with pytest.raises(InputError) as caught:
        changed(Verifier(), {"honesty": "1"})
    assert all(field.name in str(caught.value) for field in fields(Verifier))


@pytest.mark.parametrize(
    "how",
    [
        {"rollouts": 1},
        {"rollouts": 1, "baseline": "none", "scale": "none", "objective": "online_dpo"},
        {"rollouts": 1, "baseline": "none", "scale": "none", "zero_variance": "drop"},
        {"rollouts": 1, "prompts": 1, "baseline": "batch", "scale": "none"},
        {"baseline": "none"},
        {"baseline": "batch"},
        {"rollouts": 8.0},
        {"staleness": True},
    ],
)
def test_recipes_without_a_meaning_are_refused(how):
    with pytest.raises(InputError):
        Recipe(**how)


@pytest.mark.parametrize(
    "how",
    [
        {"steps": 0},
        {"points": 0},
        {"heldout": 4},
        {"samples": 0},
        {"pool": 15},
        {"seed": -1},
        {"steps": 2.0},
        {"trunk": "float16"},
    ],
)
def test_runs_that_cannot_be_run_are_refused(how):
    with pytest.raises(InputError):
        RunSettings("addmul", **how)


@pytest.mark.parametrize("how", [(10, 1, 3), (2, 1, 1), (16, 0, 1)])
def test_sizes_that_do_not_divide_are_refused(how):
    with pytest.raises(InputError):
        Size(*how)


@pytest.mark.parametrize("how", [{"false_positive": 1.1}, {"false_negative": -0.1}, {"exploit": "bribe"}])
def test_verifiers_without_a_meaning_are_refused(how):
    with pytest.raises(InputError):
        Verifier(**how)


def test_a_verifier_is_flawed_where_it_can_differ_from_the_truth():
    assert not Verifier().flawed
    assert all(Verifier(**how).flawed for how in ({"false_positive": 0.1}, {"false_negative": 0.1}))
    assert Verifier(exploit="prefix").flawed


@pytest.mark.parametrize("name", RECIPES)
def test_settings_survive_json(name):
    settings = RunSettings(
        "chain", name, recipe(name), seed=3, verifier=Verifier(0.1, 0.2, "prefix"), size=Size(16, 1, 2)
    )
    assert RunSettings.from_plain(json.loads(json.dumps(settings.plain()))) == settings


def test_an_unknown_recipe_is_answered_by_all_there_are():
    with pytest.raises(InputError) as caught:
        recipe("alchemy")
    assert all(name in str(caught.value) for name in RECIPES)


@given(st.integers(1, 2000), st.integers(1, 60))
def test_evaluations_begin_at_zero_end_at_the_last_step_and_are_no_more_than_asked_for(steps, points):
    found = RunSettings("addmul", steps=steps, points=points).evaluated
    assert found == sorted(set(found))
    assert found[0] == 0
    assert found[-1] == steps
    assert len(found) <= points + 1


def test_evaluations_are_spaced_by_their_logarithm():
    found = RunSettings("addmul", steps=10_000, points=5).evaluated
    assert found == [0, 1, 10, 100, 1000, 10_000]
