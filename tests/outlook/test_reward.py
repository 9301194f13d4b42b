"""Honesty of the reward: intervals must cover what simulated runs and verifiers were made with."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.outlook.reward import (
    OverOptimisation,
    Verifier,
    corrected,
    corrected_draws,
    honesty,
    over_optimisation,
    reward_gap,
)
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs


def runs(value: Any, floor: float | None = None, **options: Any) -> Runs:
    metric, trials = options.pop("metric", None), options.pop("trials", None)
    return many({"r": (value, floor, options)}, metric, trials)


Made = tuple[Any, float | None, dict[str, Any]]
"""Values, the one before training, and signals of a run."""


def many(made: dict[str, Made], metric: Metric | None = None, trials: int | None = None) -> Runs:
    """One table of all: it takes longer to make than to look into."""

    def rows(run: str, values: Any) -> list[tuple[str, float, float]]:
        return [(run, 100.0 * k, float(value)) for k, value in enumerate(values, 1)]

    values = [row for run, (value, _, _) in made.items() for row in rows(run, value)]
    signals = [
        (*row, signal)
        for run, (_, _, logged) in made.items()
        for signal, value in logged.items()
        for row in rows(run, value)
    ]
    columns = ["run", "compute", "value"]
    return Runs(
        pd.DataFrame(values, columns=columns).assign(trials=trials),
        metric or Metric("acc"),
        ComputeAxis("gpu_hours"),
        floors={run: Floor(floor) for run, (_, floor, _) in made.items() if floor is not None},
        signals=pd.DataFrame(signals, columns=[*columns, "signal"]),
    )


def standard_error(share: float, number: int) -> float:
    return float(np.sqrt(share * (1 - share) / number))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# The gap


def opening_gap(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Both rise; then the proxy goes on and the true value falls, at a place and a pace drawn."""
    x = np.arange(1, n + 1) / n
    learnt = 1 / (1 + np.exp(-rng.uniform(4, 10) * (x - rng.uniform(0.1, 0.5))))
    opened = 1 / (1 + np.exp(-rng.uniform(4, 10) * (x - rng.uniform(0.4, 1.0))))
    height = rng.uniform(0.2, 0.6)
    true = 0.05 + height * (learnt - rng.uniform(0, 0.8) * opened * learnt)
    return true, 0.15 + height * learnt + rng.uniform(0, 0.2) * opened


@pytest.mark.parametrize("trials", [300, None])
def test_the_interval_of_the_gap_covers_it(trials: int | None) -> None:
    rng = generator()
    made: dict[str, Made] = {}
    gaps = {}
    for run in map(str, range(200)):
        n = int(rng.integers(4, 30))
        true, proxy = opening_gap(rng, n)
        value = rng.binomial(trials, true) / trials if trials else true + rng.normal(0, 0.015, n)
        noisy = np.clip(proxy + rng.normal(0, 0.02, n), 0, 1)
        made[run] = np.clip(value, 0, 1), None, {"proxy": noisy}
        gaps[run] = proxy - true
    table = many(made, trials=trials)
    covered = []
    for run, gap in gaps.items():
        found = reward_gap(table, run)
        assert found is not None
        covered.append(float(((found["low"] <= gap) & (gap <= found["high"])).mean()))
    # The evaluations of one run are not independent: the error is that of the mean over runs.
    error = np.std(covered) / np.sqrt(len(covered))
    assert 0.90 - 3 * error < np.mean(covered) < 0.95 + 3 * error


def test_the_gap_of_runs_on_other_scales_is_a_fraction() -> None:
    proxy = np.linspace(0.3, 0.6, 8)
    plain = reward_gap(runs(np.full(8, 0.25), proxy=proxy), "r")
    percent = reward_gap(runs(np.full(8, 25.0), metric=Metric("acc", scale=(0, 100)), proxy=proxy), "r")
    wrong = reward_gap(
        runs(np.full(8, 0.75), metric=Metric("err", kind="error_rate", scale=(1, 0)), proxy=proxy), "r"
    )
    assert plain is not None
    assert list(plain.columns) == ["compute", "proxy", "true", "gap", "low", "high"]
    np.testing.assert_allclose(plain["gap"], proxy - 0.25, atol=0.01)
    pd.testing.assert_frame_equal(plain, percent)
    pd.testing.assert_frame_equal(plain, wrong)


def test_few_trials_and_few_evaluations_make_it_wide() -> None:
    proxy, value = np.full(20, 0.7), np.full(20, 0.5)

    def width(n: int, trials: int | None) -> float:
        found = reward_gap(runs(value[:n], trials=trials, proxy=proxy[:n]), "r")
        assert found is not None
        return float((found["high"] - found["low"]).iloc[-1])

    assert width(20, None) < width(20, 1000) < width(20, 30) < width(3, 30)
    assert width(3, 30) < 2


def test_perfect_values_still_have_an_error() -> None:
    found = reward_gap(runs(np.ones(6), trials=20, proxy=np.ones(6)), "r")
    assert found is not None
    assert (found["low"] < -0.005).all()
    assert (found["high"] > 0.005).all()


def test_no_gap_without_a_proxy_at_three_evaluations() -> None:
    assert reward_gap(runs(np.full(9, 0.5)), "r") is None
    assert reward_gap(runs(np.full(9, 0.5), proxy=[0.5, 0.5]), "r") is None
    assert reward_gap(runs(np.full(9, 0.5), proxy=[0.5, 0.5, 0.6]), "r") is not None


# Over-optimisation


def law(d: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return d * (alpha - beta * np.log(d))


def at_distances(
    curve: Any, furthest: float, n: int, rng: np.random.Generator, correlation: float = 0.0, sd: float = 0.01
) -> Made:
    """A run whose KL grows evenly and whose errors have that correlation; the first is that before training."""
    d = furthest * np.sqrt(np.arange(1, n + 1) / n)
    error = np.empty(n + 1)
    error[0] = rng.normal(0, sd)
    for k in range(n):
        error[k + 1] = correlation * error[k] + rng.normal(0, sd * np.sqrt(1 - correlation**2))
    return 0.2 + curve(d) + error[1:], 0.2 + error[0], {"kl": d**2}


def over(*made: Made) -> list[OverOptimisation]:
    table = many({str(k): each for k, each in enumerate(made)})
    found = [over_optimisation(table, str(k), generator(k)) for k in range(len(made))]
    assert None not in found
    return found  # type: ignore[return-value]


@pytest.mark.parametrize(("n", "correlation"), [(12, 0.0), (30, 0.5)])
def test_intervals_of_the_law_cover_what_made_the_run(n: int, correlation: float) -> None:
    rng, alpha, beta, number = generator(1), 0.3, 0.12, 150
    truth = {"alpha": alpha, "beta": beta, "peak": np.exp(alpha / beta - 1)}
    hits = dict.fromkeys(truth, 0)
    made = [at_distances(lambda d: law(d, alpha, beta), 6.0, n, rng, correlation) for _ in range(number)]
    for found in over(*made):
        for name, value in truth.items():
            low, high = getattr(found, f"{name}_interval")
            hits[name] += low <= value <= high
    error = standard_error(0.9, number)
    for name, count in hits.items():
        assert 0.90 - 3 * error < count / number, name
    # Correlations up to 0.95 are allowed for: intervals are somewhat too long where there is none.
    assert hits["alpha"] / number < 0.97 + 2 * error


def test_a_run_far_past_the_peak_and_one_short_of_it() -> None:
    past, short = over(
        *(at_distances(lambda d: law(d, 0.3, 0.12), furthest, 20, generator()) for furthest in (9.0, 2.5))
    )
    assert past.verdict == "past the peak"
    assert past.past > 0.99
    assert past.peak == pytest.approx(np.exp(1.5), rel=0.1)
    assert past.latest == pytest.approx(9)
    assert "over-optimisation: past the peak; " in past.sentence
    assert "90 % interval" in past.sentence
    assert short.verdict == "not past the peak"
    assert short.past < 0.01


MONOTONE = {
    "straight": lambda d: 0.08 * d,
    "flat": lambda d: 0 * d,
    "saturating": lambda d: 0.5 * (1 - np.exp(-2 * d)),
    "sigmoid": lambda d: 0.5 / (1 + np.exp(-3 * (d - 2))),
}


@pytest.mark.parametrize("name", MONOTONE)
def test_a_curve_that_never_falls_is_not_called_past_its_peak(name: str) -> None:
    rng = generator(2)
    made = [at_distances(MONOTONE[name], 6.0, 15, rng, 0.3) for _ in range(40)]
    verdicts = [found.verdict for found in over(*made)]
    assert verdicts.count("past the peak") <= 2
    # A 90 % interval of a beta of 0 is above 0 in 5 % of runs.
    assert verdicts.count("not decided") >= 0.95 * 40 - 3 * 40 * standard_error(0.95, 40)


def test_a_factor_in_the_kl_changes_no_verdict() -> None:
    made = at_distances(lambda d: law(d, 0.3, 0.12), 8.0, 20, generator(3))
    one, other = over(made, (*made[:2], {"kl": made[2]["kl"] / 400}))
    assert one.verdict == other.verdict
    assert other.past == pytest.approx(one.past, abs=0.01)
    assert other.peak == pytest.approx(one.peak / 20, rel=0.02)


def test_without_a_floor_the_start_is_fitted() -> None:
    d = np.linspace(0.3, 9, 25)
    value = 0.2 + law(d, 0.3, 0.12) + generator(4).normal(0, 0.01, 25)
    found = over_optimisation(runs(value, kl=d**2), "r", generator())
    assert found is not None
    assert found.verdict == "past the peak"
    assert found.alpha_interval[0] < 0.3 < found.alpha_interval[1]


def test_no_law_without_a_kl_that_moves() -> None:
    value = np.linspace(0.2, 0.5, 9)
    assert over_optimisation(runs(value), "r", generator()) is None
    assert over_optimisation(runs(value, kl=np.arange(1.0, 6.0)), "r", generator()) is None
    assert over_optimisation(runs(value, kl=[0, 0, 0, -0.01, 1, 2, 3, 4, 5]), "r", generator()) is None
    assert over_optimisation(runs(value, kl=np.full(9, 2.0)), "r", generator()) is None
    assert over_optimisation(runs(value, kl=np.arange(9.0)), "r", generator()) is not None


def test_the_same_seed_gives_the_same() -> None:
    made = many({"r": at_distances(lambda d: law(d, 0.3, 0.12), 6.0, 12, generator(5))})
    one, other = (over_optimisation(made, "r", generator(7)) for _ in range(2))
    for field in fields(OverOptimisation):
        assert getattr(one, field.name) == getattr(other, field.name)


# The verifier


def test_correction_inverts_what_the_verifier_does() -> None:
    rng = generator()
    true = rng.uniform(size=(200, 3))
    fpr = rng.uniform(0, 0.5, (200, 1))
    tpr = fpr + rng.uniform(0.05, 1, (200, 1)) * (1 - fpr)
    np.testing.assert_allclose(corrected(fpr + (tpr - fpr) * true, tpr, fpr), true, atol=1e-12)
    np.testing.assert_array_equal(corrected([0, 0.02, 0.95, 1], 0.95, 0.02), [0, 0, 1, 1])
    np.testing.assert_array_equal(corrected(true, 1.0, 0.0), true)


def test_the_interval_of_the_true_rate_covers_it_with_the_uncertainty_of_both_rates() -> None:
    rng, number, draws = generator(), 600, 500
    true, tpr, fpr, right, wrong, answers = 0.3, 0.9, 0.1, 80, 60, 1000
    covered = {"counts": 0, "exact": 0}
    for _ in range(number):
        accepted = rng.binomial(answers, fpr + (tpr - fpr) * true)
        observed = rng.beta(accepted + 0.5, answers - accepted + 0.5, draws)
        rates = rng.binomial(right, tpr) / right, rng.binomial(wrong, fpr) / wrong
        for name, verifier in (("counts", Verifier(*rates, right, wrong)), ("exact", Verifier(*rates))):
            low, high = np.quantile(corrected_draws(observed, verifier, rng), [0.05, 0.95])
            covered[name] += low <= true <= high
    assert covered["counts"] / number == pytest.approx(0.9, abs=3 * standard_error(0.9, number))
    # What was measured on a few answers is not exact: taken so, the intervals are far too short.
    assert covered["exact"] / number < 0.7


def test_one_draw_has_one_pair_of_rates_for_all_its_values() -> None:
    observed = np.full((50, 4, 2), 0.4)
    found = corrected_draws(observed, Verifier(0.9, 0.1, 40, 40), generator())
    assert found.shape == observed.shape
    assert (found == found[:, :1, :1]).all()
    assert len(np.unique(found[:, 0, 0])) == 50


def test_draws_of_the_rates_are_in_order_and_exact_without_counts() -> None:
    tpr, fpr = Verifier(0.6, 0.5, 3, 3).draws(500, generator())
    assert (fpr < tpr).all()
    tpr, fpr = Verifier(0.95, 0.02, n_wrong=300).draws(400, generator())
    assert (tpr == 0.95).all()
    assert fpr.mean() == pytest.approx(6.5 / 301, abs=4 * fpr.std() / 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tpr=.95,fpr=.02", Verifier(0.95, 0.02)),
        (" fpr = 2e-2 / 300 , tpr = 0.95/200 ", Verifier(0.95, 0.02, 200, 300)),
        ("tpr=1,fpr=0/50", Verifier(1.0, 0.0, None, 50)),
    ],
)
def test_a_verifier_is_read_and_written(text: str, expected: Verifier) -> None:
    assert Verifier.parse(text) == expected
    assert Verifier.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "0.9", "tpr=.9", "fpr=.1", "tpr=.9,tpr=.8", "tpr=.9,fpr=", "tpr=.9,fpr=low", "tpr=.9;fpr=.1"),
        *("tpr=.9/,fpr=.1", "tpr=.9/0,fpr=.1", "tpr=.9/1.5,fpr=.1", "tpr=.1,fpr=.9", "tpr=.5,fpr=.5"),
        *("tpr=1.1,fpr=.1", "tpr=.9,fpr=-.1", "tpr=nan,fpr=.1", "tpr=.9/-3,fpr=.1", "tpr=.9,fpr=.1,ppv=1"),
    ],
)
def test_what_is_no_verifier_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        Verifier.parse(text)


def test_rates_the_wrong_way_round_come_with_a_fix() -> None:
    with pytest.raises(InputError, match=r"tpr 0.02, fpr 0.95, expected 0 <= fpr < tpr <= 1\. Give shares"):
        Verifier(0.02, 0.95)


# In words


def test_hacking_raises_the_alarm_and_the_gap_has_its_interval() -> None:
    rng = generator()
    x = np.linspace(0, 1, 40)
    value = np.where(x < 0.4, x, 0.4 - 0.6 * (x - 0.4)) + rng.normal(0, 0.01, 40)
    proxy = 0.2 + 0.7 * x + rng.normal(0, 0.01, 40)
    d = 9 * np.sqrt(x + 0.01)
    gap, alarm, peak = honesty(runs(np.clip(value, 0, 1), proxy=proxy, kl=d**2), "r")
    assert gap.startswith("proxy 0.9")
    assert "held-out value 0.0" in gap
    assert "is 0.86 (90 % interval 0.8" in gap
    assert alarm.startswith("ALARM: the proxy rose while the held-out value fell: ")
    assert "moving apart since" in alarm
    assert "gpu_hours" in alarm
    assert peak.startswith("over-optimisation: ")


def test_an_honest_run_raises_none() -> None:
    value = np.linspace(0.2, 0.6, 20)
    (line,) = honesty(runs(value, proxy=value + 0.05), "r")
    assert "is 0.05 (90 % interval" in line
    (line,) = honesty(runs(value, metric=Metric("acc", split="train"), proxy=value), "r")
    assert "training-prompt value 0.60" in line


def test_what_was_not_logged_is_said() -> None:
    assert honesty(runs(np.full(5, 0.5)), "r") == [
        "no proxy was recognised in the log: the reward cannot be cross-checked"
    ]
    assert honesty(runs(np.full(5, 0.5), proxy=[0.5]), "r") == [
        "proxy logged at 1 of the 3 evaluations that a cross-check of the reward needs"
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda made: reward_gap(made, "s"), "no such run, found 's', expected r"),
        (lambda made: honesty(made, "s"), "no such run"),
        (lambda made: over_optimisation(made, "s", generator()), "no such run"),
        (lambda made: over_optimisation(made, "r", 3), r"rng is no generator.*Pass numpy"),
        (lambda _: corrected([0.5, 1.2], 0.9, 0.1), "outside 0-1, found 1.2"),
        (lambda _: corrected(np.nan, 0.9, 0.1), "outside 0-1, found nan"),
        (lambda _: corrected(0.5, [0.9, 0.1], 0.1), "found tpr 0.1, fpr 0.1"),
        (lambda _: corrected_draws(0.5, Verifier(0.9, 0.1), generator()), "an axis of their own"),
        (lambda _: corrected_draws([], Verifier(0.9, 0.1), generator()), "at least 1, found 0"),
        (lambda _: corrected_draws([-0.1], Verifier(0.9, 0.1), generator()), "outside 0-1"),
        (lambda _: Verifier(0.9, 0.1, n_wrong=0), "n_wrong must be a whole number"),
        (lambda _: Verifier(0.9, 0.1).draws(0, generator()), "at least 1, found 0"),
    ],
)
def test_malformed_input_is_refused(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(runs(np.full(9, 0.5)))
