"""Is it said what a plan changes of what the runs had in common, and only that?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import InputError
from forecast.fits import Fit
from forecast.outlook.domain import USUAL, outside_map, parse_domain


def declared(model: dict[str, str] | None = None, **domain: str) -> Fit:
    """A fit whose runs declare all that is usual, but for what is given."""
    runs = hand_runs()
    everything = {key: "as usual" for key in USUAL if key != "model"} | domain
    model = model or {"alpha": "qwen-7b", "beta": "qwen-7b"}
    return fit_by_hand(
        replace(runs, table=runs.table.assign(model=runs.table["run"].map(model)), domain=everything)
    )


def test_what_is_written_is_what_is_planned() -> None:
    assert parse_domain("context_length = 32768, verifier=math verify=2") == {
        "context_length": "32768",
        "verifier": "math verify=2",
    }


@pytest.mark.parametrize("text", ["", "epochs", "epochs=", "=4", "epochs=4,", "epochs=4,epochs=5", " = "])
def test_what_is_no_domain_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        InputError, match=r"domain not understood, found .* expected KEY=VALUE, several"
    ) as error:
        parse_domain(text)
    assert "--domain context_length=32768" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_plan_that_changes_nothing_says_nothing() -> None:
    fit = declared(context_length="8192", verifier="Math-Verify 0.8")
    assert outside_map(fit) == []
    assert outside_map(fit, {}) == []
    same = {"context_length": "8192.0", "verifier": " math-verify 0.8", "model": "Qwen-7B"}
    assert outside_map(fit, same, 80_000.0) == []


def test_each_change_is_a_sentence() -> None:
    fit = declared(context_length="8192")
    assert outside_map(fit, {"context_length": "32768", "model": "qwen-1b"}) == [
        "context length changes from 8192 to 32768: no run here has seen that",
        "model changes from qwen-7b to qwen-1b: no run here has seen that",
    ]


def test_a_change_of_something_undeclared_cannot_be_checked() -> None:
    assert outside_map(declared(), {"temperature": "0.6"}) == [
        "temperature is planned as 0.6; the fitted runs do not declare theirs"
    ]


def test_models_are_those_that_were_fitted() -> None:
    runs = hand_runs(("alpha", "beta", "gamma"))
    table = runs.table.assign(model=runs.table["run"].map({"alpha": "b", "beta": "a", "gamma": "c"}))
    fit = fit_by_hand(replace(runs, table=table), refused={"gamma": "collapsed"})
    (first, *_) = outside_map(fit, {"model": "d"})
    assert first == "model changes from a or b to d: no run here has seen that"


def test_what_some_runs_have_seen_is_not_new_to_all() -> None:
    said = outside_map(declared(context_length="8192 | 16384"), {"context_length": "8192"})
    assert not any("no run here has seen that" in sentence for sentence in said)
    said = outside_map(declared(model={"alpha": "a", "beta": "b"}), {"model": "a"})
    assert not any("no run here has seen that" in sentence for sentence in said)


def test_what_is_usual_and_unsaid_is_listed_once() -> None:
    fit = fit_by_hand(replace(hand_runs(), domain={"epochs": "1"}))
    (line,) = outside_map(fit)
    silent = [key.replace("_", " ") for key in USUAL if key != "epochs"]
    assert line == f"not declared, so not checked: {', '.join(silent)}"
    # What is planned and undeclared has a sentence of its own.
    planned, rest = outside_map(fit, {"verifier": "strict"})
    assert planned == "verifier is planned as strict; the fitted runs do not declare theirs"
    assert "verifier" not in rest


@pytest.mark.parametrize(
    ("furthest", "times"), [(None, None), (80_000.0, None), (96_000.0, "12"), (8e6, "1e+03")]
)
def test_compute_far_beyond_the_data(furthest: float | None, times: str | None) -> None:
    said = outside_map(declared(), None, furthest)
    if times is None:
        assert said == []
    else:
        assert said == [f"compute goes to {times} times what was fitted: nothing here was tested beyond 10"]
