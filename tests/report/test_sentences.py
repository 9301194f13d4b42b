"""Does each sentence say what the tables say: number, interval, probability, and never a hole?"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fits_by_hand import fit_by_hand, hand_runs
from weighed_by_hand import hand_weighed

import forecast as fc
from forecast.fits import Fit
from forecast.outlook.budget import Decision, budget
from forecast.outlook.comparison import compare
from forecast.report.sentences import (
    budget_text,
    choice_under_transitions,
    comparison_sentence,
    decision_sentences,
)
from forecast.report.words import (
    MISSING,
    compute_text,
    interval_text,
    money_text,
    probability_text,
    value_text,
)
from forecast.runs.table import ComputeAxis, Metric

PLAIN = Metric("acc", prompts=1000, samples_per_prompt=16)
PERCENT = Metric("acc", scale=(0.0, 100.0), prompts=1000, samples_per_prompt=16)
ERRORS = Metric("err", kind="error_rate", scale=(1.0, 0.0), prompts=1000, samples_per_prompt=16)
HOLES = re.compile(r"\b(nan|None(?! of)|inf|NaN|NaT)\b")


def texts(decision: Decision) -> list[str]:
    return [text for head, rest in decision_sentences(decision) for text in (head, *rest)]


@cache
def fit_of(metric: Metric) -> Fit:
    return fit_by_hand(hand_runs(metric=metric))


def row_of(decision: Decision, choice: dict[str, Any]) -> pd.Series:
    return decision.options.set_index(["budget", "option"]).loc[(choice["budget"], choice["option"])]


def sound(text: str) -> None:
    assert not HOLES.search(text), text
    assert text.endswith("."), text
    assert "  " not in text, text
    assert "×10⁰" not in text, text
    assert "\n" not in text, text


# Numbers


@pytest.mark.parametrize(
    ("probability", "said"),
    [
        (0.0, "< .01"),
        (0.00499, "< .01"),
        (0.005, ".01"),
        (0.0051, ".01"),
        (0.5, ".50"),
        (0.804, ".80"),
        (0.9949, ".99"),
        (0.995, "> .99"),
        (1.0, "> .99"),
        (np.nan, MISSING),
    ],
)
def test_probabilities_are_never_0_or_1(probability: float, said: str) -> None:
    found = probability_text(probability)
    # 0.005 is rounded to even by Python; it is no claim that nothing happens.
    assert found == said or (probability == 0.005 and found == ".01")


def test_probabilities_rise_as_they_are_written() -> None:
    numbers = [
        float(probability_text(p).removeprefix("< ").removeprefix("> ")) for p in np.linspace(0, 1, 2001)
    ]
    assert (np.diff(numbers) >= 0).all()
    assert min(numbers) > 0
    assert max(numbers) < 1


def test_no_compute_is_a_zero() -> None:
    assert compute_text(0.0) == "0"


# Decisions


@pytest.mark.parametrize("measure", ["at", "spend", "money"])
@pytest.mark.parametrize("metric", [PLAIN, PERCENT, ERRORS], ids=["plain", "percent", "errors"])
@pytest.mark.parametrize("aim", [None, 0.45, 0.6, 0.95])
def test_every_decision_has_sentences_without_holes(measure: str, metric: Metric, aim: float | None) -> None:
    fit = fit_of(metric)
    target = None if aim is None else metric.from_fraction(aim)
    price = 2.5 if measure == "money" else None
    # Budgets that are close and not decided; and a worth at which nothing pays for itself.
    for size, worth in itertools.product((9_000, 40_000), (None, 100.0)):
        decision = budget(
            fit,
            **{measure: [size]},
            target=target,
            price=price,
            worth=worth,
            experiments=worth is None and aim is None,
        )
        ((head, rest),) = decision_sentences(decision)
        (choice,) = decision.choices.to_dict("records")
        for text in (head, *rest):
            sound(text)
        assert head.startswith(f"With {budget_text(decision, size)}")
        assert choice["option"] in head
        assert probability_text(choice["p_best"]) in head
        own = row_of(decision, choice)
        assert "90 %" in rest[0]
        assert value_text(own["q50"], metric) in rest[0]
        assert interval_text(own["q05"], own["q95"], metric) in rest[0]
        if target is not None:
            aimed = [text for text in rest if value_text(target, metric) in text]
            assert any(f"probability {probability_text(own['p_target'])}" in text for text in aimed)


@pytest.mark.parametrize("worth", [100.0, None])
def test_each_budget_has_its_own_value_and_probability(worth: float | None) -> None:
    fit = fit_by_hand()
    decision = budget(fit, spend=[9_000, 40_000], target=0.45, worth=worth, experiments=False)
    for (_, rest), choice in zip(
        decision_sentences(decision), decision.choices.to_dict("records"), strict=True
    ):
        own = row_of(decision, choice)
        assert any(interval_text(own["q05"], own["q95"], PLAIN) in text for text in rest)
        assert any(f"probability {probability_text(own['p_target'])}" in text for text in rest)


@pytest.mark.parametrize(
    ("options", "spend", "verdict"),
    [({"ceiling_sd": 0.001}, 4_000.0, "decided"), ({}, 8_000.0, "close"), ({}, 32_000.0, "not decided")],
)
def test_each_verdict_has_its_headline(options: dict[str, float], spend: float, verdict: str) -> None:
    decision = budget(fit_by_hand(**options), spend=[spend], experiments=False)
    choice = decision.choices.iloc[0]
    assert choice["verdict"] == verdict
    ((head, _),) = decision_sentences(decision)
    assert ("not decided" in head) == (verdict == "not decided")
    assert ("as good as any" in head) == (verdict == "close")
    if verdict != "decided":
        # Who else may be best, how likely, and what the choice loses.
        assert f"{choice['second']} {probability_text(choice['p_second'])}" in head
        loss = value_text(choice["regret"], PLAIN)
        assert f"on average against the best, {loss} (" in head or f"loses {loss} on average" in head
    else:
        assert choice["second"] not in head


def test_a_budget_in_words() -> None:
    fit = fit_by_hand()
    said = [
        budget_text(budget(fit, **{measure: [16_000]}, price=2.5, experiments=False), 16_000)
        for measure in ("at", "spend", "money")
    ]
    assert said[0].startswith("16,000 GPU-hours in all")
    assert said[1].startswith("16,000 more GPU-hours")
    assert money_text(16_000) in said[2]
    assert "money" in said[2]


def test_to_stop_costs_nothing() -> None:
    decision = budget(fit_by_hand(), spend=[8_000], price=2.5, worth=1_000, experiments=False)
    ((head, rest),) = decision_sentences(decision)
    assert "stop with beta" in head
    assert "costs nothing" in rest[0]
    assert len(rest) == 1


def test_what_the_choice_takes() -> None:
    ((head, priced),) = decision_sentences(budget(fit_by_hand(), spend=[8_000], price=2.5, experiments=False))
    assert f"8,000 more GPU-hours ({money_text(20_000)} in money)" in head
    ((_, free),) = decision_sentences(budget(fit_by_hand(), spend=[8_000], experiments=False))
    assert "8,000 more GPU-hours" in priced[0]
    assert "money" not in free[0]
    gains = fit_by_hand()
    row = budget(gains, spend=[8_000], experiments=False).options.set_index("option").loc["continue beta"]
    assert interval_text(row["gain_q05"], row["gain_q95"], PLAIN) in free[0]
    assert value_text(row["gain_q50"], PLAIN, signed=True) in free[0]


def test_a_gain_on_an_error_rate_is_a_fall() -> None:
    decision = budget(fit_by_hand(hand_runs(metric=ERRORS)), spend=[8_000], experiments=False)
    ((_, rest),) = decision_sentences(decision)
    assert "error rate of 0.39" in rest[0]
    assert "−0.02" in rest[0]


def test_a_target_that_another_option_reaches_sooner_is_said() -> None:
    fit = fit_by_hand()
    decision = budget(fit, spend=[8_000], target=0.58, price=2.5, worth=1_000, experiments=False)
    ((_, rest),) = decision_sentences(decision)
    table = decision.options.set_index("option")["p_target"]
    assert f"It reaches 0.580 with probability {probability_text(table['stop with beta'])}" in rest[1]
    assert f"continue beta, {probability_text(table['continue beta'])}" in rest[1]


def test_compute_to_a_target_and_the_chance_that_it_is_never_reached() -> None:
    decision = budget(fit_by_hand(), spend=[8_000], target=0.6, experiments=False)
    ((_, rest),) = decision_sentences(decision)
    row = decision.targets.set_index("option").loc["continue beta"]
    said = next(text for text in rest if text.startswith("Compute to 0.600"))
    for number in ("q05", "q50", "q95"):
        assert compute_text(row[number]) in said
    assert f"not by 80,000 GPU-hours with probability {probability_text(row['p_never'])}" in said
    never = budget(fit_by_hand(), spend=[8_000], target=0.95, experiments=False)
    ((_, rest),) = decision_sentences(never)
    assert any("not by 80,000 GPU-hours with probability > .99" in text for text in rest)
    assert MISSING not in " ".join(rest)


def test_whether_to_look_first() -> None:
    decision = budget(fit_by_hand(), spend=[8_000, 32_000], price=2.5)
    (_, no), (_, yes) = decision_sentences(decision)
    assert no[-1].startswith("Look first? None of 15 experiments")
    assert "20 %" in no[-1]
    best = decision.experiment(32_000)
    assert best is not None
    assert yes[-1].startswith(f"Look first: {best['options']}")
    for number in (
        compute_text(best["extra"]),
        f"probability {probability_text(best['p_change'])}",
        f"{value_text(best['gain'], PLAIN, decimals=1)} ± {value_text(best['gain_se'], PLAIN, decimals=1)}",
        money_text(best["cost"]),
    ):
        assert number in yes[-1]
    unknown = replace(decision, experiments=decision.experiments.assign(verdict="not computed"))
    assert "15 of 15 could not be computed" in decision_sentences(unknown)[0][1][-1]


def test_a_great_many_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forecast.outlook.budget.MOST_BEYOND", np.inf)
    axis = ComputeAxis("flops", price_per_unit=2e-18)
    decision = budget(fit_by_hand(hand_runs(axis=axis)), spend=[1e21], target=0.59)
    for text in texts(decision):
        sound(text)
    head, first, *_ = texts(decision)
    assert head.startswith("With 10²¹ more FLOPs")
    assert "10²¹ more FLOPs" in first or "costs nothing" in first
    assert not re.search(r"\d{9}|e\+", " ".join(texts(decision)))


@pytest.mark.parametrize("seed", range(2))
def test_odd_numbers_leave_no_holes(seed: int) -> None:
    # Any option may lead, by anything, with or without a price, at any size.
    rng = np.random.default_rng(seed)
    decision = budget(fit_by_hand(), spend=[8_000], target=0.6, price=2.5)
    for metric, option, size in itertools.product(
        (PLAIN, PERCENT, ERRORS, Metric("r", kind="reward", scale=(-1.0, 1.0))),
        decision.options["option"],
        (1e-3, 7.0, 123_456.7, 1e21),
    ):
        values = np.sort(rng.uniform(*sorted(metric.scale), size=7))
        columns = dict(zip(["q05", "q10", "q25", "q50", "q75", "q90", "q95"], values, strict=True))
        priced = rng.random() < 0.5
        odd = replace(
            decision,
            metric=metric,
            unit=str(rng.choice(["gpu_hours", "flops", "tokens", "rollouts", "steps"])),
            target=float(rng.uniform(*sorted(metric.scale))),
            options=decision.options.assign(
                **columns,
                budget=size,
                extra=size * (decision.options["action"] != "stop"),
                cost=rng.choice([0.0, 1e-3, 1e21]) if priced else np.nan,
                p_target=rng.choice([0.0, 1.0, 0.5], len(decision.options)),
            ),
            choices=decision.choices.assign(
                budget=size,
                option=option,
                p_best=rng.choice([0.0, 1.0, 0.5]),
                p_second=rng.choice([0.0, 0.5]),
                regret=rng.choice([0.0, 1e-9, 0.1]),
                verdict=rng.choice(["decided", "close", "not decided"]),
            ),
            targets=decision.targets.assign(
                q05=np.nan, q50=np.nan, q95=np.nan, extra_q50=np.nan, cost_q50=np.nan, p_never=1.0
            )
            if rng.random() < 0.5
            else decision.targets,
            experiments=decision.experiments.assign(
                budget=size, cost=np.nan, p_change=1.0, verdict=rng.choice(["worth it", "not computed"])
            ),
        )
        for text in texts(odd):
            assert not HOLES.search(text), text
            assert MISSING not in text, text


# Transitions


def averaged(fit: Fit, monkeypatch: pytest.MonkeyPatch, shift: dict[str, float], **asked: Any) -> Decision:
    """The same with curves that may move; runs by themselves have levelled off higher or lower."""
    weighed = {name: hand_weighed(shift=shift.get(name, 0.0)) for name in fit.runs.names}
    monkeypatch.setattr("forecast.outlook.evidence.weigh_fit", lambda fit: weighed)
    return budget(fit, transitions="averaged", experiments=False, **asked)


def test_what_becomes_of_the_choice_under_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_by_hand()
    asked: dict[str, Any] = {"spend": [8_000, 32_000], "target": 0.6}
    plain = budget(fit, experiments=False, **asked)
    moving = averaged(fit, monkeypatch, {}, hazard=fc.Hazard(0.1, 0.02), **asked)
    said = choice_under_transitions(plain, moving)
    assert len(said) == 2
    for text, choice in zip(said, plain.choices.to_dict("records"), strict=True):
        sound(text)
        own = row_of(moving, choice)
        assert "rise=0.1,collapse=0.02" in text
        assert interval_text(own["q05"], own["q95"], PLAIN) in text
        assert f"probability {probability_text(own['p_target'])}" in text
        leads = moving.choices.set_index("budget").loc[choice["budget"], "option"]
        assert leads in text
        assert ("still loses least" in text) == (leads == choice["option"])


def test_to_stop_is_to_keep_the_same_run_under_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_by_hand()
    asked: dict[str, Any] = {"spend": [8_000], "worth": 10.0}
    plain = budget(fit, experiments=False, **asked)
    moving = averaged(fit, monkeypatch, {"alpha": 0.3, "beta": -0.15}, **asked)
    assert plain.choices["option"].tolist() == ["stop with beta"]
    (text,) = choice_under_transitions(plain, moving)
    sound(text)
    assert "stop with beta comes to" in text


# Comparisons


def pair(**changes: Any) -> pd.Series:
    row = {
        "first": "one",
        "second": "two",
        "difference_q05": 0.021,
        "difference_q50": 0.034,
        "difference_q95": 0.047,
        "p_higher": 0.97,
        "p_within": 0.11,
        "margin": 0.02,
        "speed_q05": 1.25,
        "speed_q50": 1.5,
        "speed_q95": 2.0,
        "p_faster": 0.96,
        "verdict": "not decided",
        "warning": "",
        "left_out": "",
    }
    return pd.Series(row | changes)


def test_a_higher_ceiling_with_its_probability() -> None:
    said = comparison_sentence(pair(verdict="raises the ceiling"), PLAIN)
    sound(said)
    assert "two raises the ceiling" in said
    assert "one" in said
    assert "+0.034 (90 % interval 0.021 to 0.047)" in said
    assert "probability .97" in said


def test_a_lower_ceiling_with_its_probability() -> None:
    row = pair(
        difference_q05=-0.047,
        difference_q50=-0.034,
        difference_q95=-0.021,
        p_higher=0.03,
        verdict="lowers the ceiling",
    )
    said = comparison_sentence(row, PLAIN)
    sound(said)
    assert "probability .97" in said
    # Said of either: the better one first, or the second with its sign.
    up = "one raises the ceiling over two: +0.034 (90 % interval 0.021 to 0.047)"
    down = "two lowers the ceiling of one: −0.034 (90 % interval −0.047 to −0.021)"
    assert up in said or down in said


def test_only_faster_with_its_factor() -> None:
    said = comparison_sentence(pair(verdict="only faster", p_within=0.86), PLAIN)
    sound(said)
    assert "two is only faster than one" in said
    assert "within 0.02 of the scale with probability .86" in said
    assert re.search(r"1\.50 (times its compute )?\(90 % interval 1\.25 to 2\.00\)", said)
    assert "half of the gain" in said
    assert "probability .96" in said


def test_only_slower_with_its_factor() -> None:
    row = pair(
        verdict="only slower", p_within=0.86, speed_q05=0.5, speed_q50=0.625, speed_q95=0.8, p_faster=0.02
    )
    said = comparison_sentence(row, PLAIN)
    sound(said)
    assert "probability .98" in said
    # Turned round, one is 1 / .625 times as fast as two; not turned, two takes .62 of it.
    assert re.search(
        r"1\.60 .*\(90 % interval 1\.25 to 2\.00\)|0\.62 .*\(90 % interval 0\.50 to 0\.80\)", said
    )
    if "1.60" in said:
        assert "one is only faster than two" in said
        assert "two needs 1.60 times" in said


def test_what_is_not_decided_says_all_it_knows() -> None:
    said = comparison_sentence(pair(p_faster=0.9), PLAIN)
    sound(said)
    for words in (
        "two against one: not decided",
        "+0.034 (90 % interval 0.021 to 0.047)",
        "higher with probability .97",
        "probability .11",
        "1.50 (90 % interval 1.25 to 2.00)",
    ):
        assert words in said


@pytest.mark.parametrize("metric", [PLAIN, PERCENT, ERRORS], ids=["plain", "percent", "errors"])
def test_real_comparisons_in_words(metric: Metric) -> None:
    for sd in (0.001, 0.01):
        fit = fit_by_hand(hand_runs(("a", "b", "c", "d"), metric=metric), ceiling_sd=sd)
        for _, row in compare(fit).iterrows():
            said = comparison_sentence(row, metric)
            sound(said)
            assert row["first"] in said
            assert row["second"] in said


def test_on_an_error_rate_the_raised_ceiling_is_a_lower_error() -> None:
    fit = fit_by_hand(hand_runs(("a", "b", "c", "d"), metric=ERRORS), ceiling_sd=0.001)
    row = compare(fit).set_index(["first", "second"], drop=False).loc[("a", "d")]
    assert row["verdict"] == "raises the ceiling"
    said = comparison_sentence(row, ERRORS)
    assert "d raises the ceiling" in said
    low, high = sorted((row["difference_q05"], row["difference_q95"]))
    assert high < 0
    assert interval_text(low, high, ERRORS) in said


def test_what_cannot_be_relied_on_says_so_first() -> None:
    said = comparison_sentence(pair(warning="NOT RELIABLE, two collapsed"), PLAIN)
    assert said.startswith("NOT RELIABLE: two against one")


@pytest.mark.parametrize(("p_faster", "words"), [(0.96, "two is faster"), (0.03, "two is slower")])
def test_a_speed_that_is_decided_is_not_hidden_by_ceilings_that_are_not(p_faster: float, words: str) -> None:
    said = comparison_sentence(pair(p_faster=p_faster), PLAIN)
    sound(said)
    assert f"two against one: ceilings not decided, but {words}, probability .9" in said


def test_seeds_that_collapsed_are_said_in_every_sentence_of_their_recipe() -> None:
    names = {"a0": "a", "z0": "z", "z1": "z"}  # the later recipe ends higher
    fit = fit_by_hand(hand_runs(names), refused={"z1": "collapsed or declining: from .8 to 0"})
    words = "1 of 2 runs of z is not in these numbers (collapsed or declining)"
    ((_, details),) = decision_sentences(budget(fit, spend=[8_000], names=["z"], experiments=False))
    assert any(words in text for text in details)
    whole = fit_by_hand(hand_runs(names))
    ((_, details),) = decision_sentences(budget(whole, spend=[8_000], names=["z"], experiments=False))
    assert not any("not in these numbers" in text for text in details)
    assert words in comparison_sentence(compare(fit).iloc[0], PLAIN)


def test_no_speed_is_no_hole() -> None:
    # Where one curve's ceiling lies below the other's floor there is no level that both reach.
    said = comparison_sentence(pair(speed_q05=np.nan, speed_q50=np.nan, speed_q95=np.nan), PLAIN)
    sound(said)


def test_the_margin_is_the_one_asked_for() -> None:
    table = compare(fit_by_hand(), margin=0.05)
    assert "within 0.05 of the scale" in comparison_sentence(table.iloc[0], PLAIN)


def test_runs_that_are_past_the_budget_are_counted() -> None:
    runs = hand_runs({"a": "a", "b": "b"})
    table = runs.table[~((runs.table["run"] == "a") & (runs.table["compute"] > 5_000))]
    fit = fit_by_hand(replace(runs, table=table))
    ((_, details),) = decision_sentences(budget(fit, at=[6_000], experiments=False))
    assert "1 run has used as much already, and is not among the options." in details
    ((_, details),) = decision_sentences(budget(fit, at=[9_000], experiments=False))
    assert not any("used as much already" in text for text in details)


def test_a_look_that_comes_on_top_says_that_it_is_not_deducted() -> None:
    fit = fit_by_hand(ceiling_sd=0.05, noise=1e-6, seed=2)
    words = "on top of the budget not deducted"
    said = {}
    for measure, worth in (("at", None), ("at", 1e9), ("spend", None)):
        decision = budget(fit, **{measure: [40_000]}, worth=worth)
        assert decision.experiment(40_000) is not None
        ((_, details),) = decision_sentences(decision)
        said[measure, worth] = any("Look first: " in text and words in text for text in details)
    assert said == {("at", None): True, ("at", 1e9): False, ("spend", None): False}


def test_a_budget_too_small_for_experiments_says_nothing_of_them() -> None:
    tiny, large = decision_sentences(budget(fit_by_hand(), spend=[1, 30_000]))
    assert not any("Look first" in text for text in tiny[1])
    assert any("Look first" in text for text in large[1])
