"""Flags of second moves: what raises them, what does not, what stays, and what a row says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from fits_by_hand import fit_by_hand
from weighed_by_hand import GRID, changed, curve_runs, hand_weighed, hasty, moved, smooth  # noqa: F401

import forecast as fc
from forecast.errors import InputError
from forecast.fits import Fit
from forecast.inference.priors import PRIORS
from forecast.inference.weighing import MOVES
from forecast.outlook.averaged import window_decades
from forecast.outlook.hazard import Hazard
from forecast.outlook.readings import ALARM_LOG_BF, STATES, WATCH_LOG_BF, Reading, cut_offs
from forecast.outlook.strata import StratumFlag
from forecast.outlook.transitions import Flag, Watched, latched, states, transitions
from forecast.runs.table import ComputeAxis, Metric, Runs
from simulators.evaluations import Evaluations
from simulators.transitions import Transition
from simulators.worlds import World, draw_world

CONTRACT = [
    "run",
    "state",
    "kind",
    "p_onset",
    "p_ahead",
    "log_bf_rise",
    "log_bf_collapse",
    "cusum",
    "stratum",
    "reason",
]
DECADES = window_decades(PRIORS["wide"])
HAZARD = Hazard()

# Latching, with readings that are written down


def hand_reading(n: int, rise: float = -1.0, collapse: float = -1.0, slow: float | None = None) -> Reading:
    factors = {"rise": rise, "collapse": collapse}
    return Reading(
        compute=100.0 * n,
        evaluations=n,
        log_bf=factors,
        log_bf_se=dict.fromkeys(MOVES, 0.1),
        log_bf_guarded=factors if slow is None else dict.fromkeys(MOVES, slow),
        begun=dict.fromkeys(MOVES, 1.0),
    )


def series(rise: list[float] | None = None, collapse: list[float] | None = None) -> list[Reading]:
    length = len(rise or collapse or [])
    rise, collapse = rise or [-1.0] * length, collapse or [-1.0] * length
    return [hand_reading(8 + i, r, c) for i, (r, c) in enumerate(zip(rise, collapse, strict=True))]


def flag_of(readings: list[Reading], strata: list[tuple[float, StratumFlag]] | None = None) -> Flag:
    return Flag("a", readings, None, 0.0, strata or [], [])


def test_the_highest_state_stays_with_where_it_was_first_reached() -> None:
    found = latched(flag_of(series([-1.0, 1.5, 4.0, 9.0, 1.5, -1.0])), HAZARD, DECADES)
    assert (found.state, found.kind, found.since, found.by) == ("alarm", "rise", 1_000.0, "curve")
    found = latched(flag_of(series([-1.0, 1.5, 2.0, -1.0])), HAZARD, DECADES)
    assert (found.state, found.kind, found.since) == ("watch", "rise", 900.0)
    found = latched(flag_of(series([-1.0, 0.5, -2.0])), HAZARD, DECADES)
    assert (found.state, found.kind) == ("prior_only", "none")
    assert np.isnan(found.since)
    assert latched(flag_of([]), HAZARD, DECADES).state == "prior_only"


def test_a_watch_stays_only_if_two_evaluations_in_a_row_say_so() -> None:
    for factors, state in (
        ([-1.0, 1.5, -1.0], "prior_only"),
        ([-1.0, 1.5, -1.0, 1.5], "watch"),  # now
        ([-1.0, 1.5, 1.5, -1.0], "watch"),
        ([-1.0, 1.5, 4.0, -1.0], "alarm"),
    ):
        assert latched(flag_of(series(factors)), HAZARD, DECADES).state == state


def test_an_alarm_never_falls_as_readings_are_added() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        readings = series(list(rng.normal(0.5, 2, 12)), list(rng.normal(0.5, 2, 12)))
        found = [latched(flag_of(readings[:n]), HAZARD, DECADES) for n in range(1, 13)]
        for before, after in pairwise(found):
            if before.state == "alarm":
                assert after.state == "alarm"
                assert (before.kind, before.since) == (after.kind, after.since)


def test_a_collapse_is_an_alarm_only_at_the_second_suspicious_evaluation() -> None:
    once = [own["collapse"] for own in states(series(collapse=[-1.0, 20.0, -1.0, 20.0]), HAZARD, DECADES)]
    assert once == ["prior_only", "watch", "prior_only", "watch"]
    twice = [
        own["collapse"] for own in states(series(collapse=[-1.0, 20.0, 20.0, 1.5, 20.0]), HAZARD, DECADES)
    ]
    assert twice == ["prior_only", "watch", "alarm", "watch", "alarm"]
    warned = [own["collapse"] for own in states(series(collapse=[1.5, 20.0]), HAZARD, DECADES)]
    assert warned == ["watch", "alarm"]
    rises = [own["rise"] for own in states(series([20.0, -1.0, 20.0]), HAZARD, DECADES)]
    assert rises == ["alarm", "prior_only", "alarm"]


def stratum(state: str) -> StratumFlag:
    return StratumFlag(state, "hard", 500.0, 6.0, "prompts of class 'hard' moved")


def test_prompt_classes_raise_a_flag_by_themselves_and_it_stays() -> None:
    quiet = series([-1.0] * 4)
    strata = [(900.0, stratum("watch")), (1_000.0, stratum("alarm")), (1_100.0, stratum("prior_only"))]
    found = latched(flag_of(quiet, strata), HAZARD, DECADES)
    assert (found.state, found.kind, found.since, found.by) == ("alarm", "rise", 1_000.0, "strata")
    curve_first = latched(flag_of(series([-1.0, 9.0, 9.0, 9.0]), strata), HAZARD, DECADES)
    assert (curve_first.by, curve_first.since) == ("curve", 900.0)
    assert latched(flag_of(quiet, strata[-1:]), HAZARD, DECADES).state == "prior_only"


# One experiment

RISE, FALL = moved(0.25, 9_000.0), moved(-0.35, 9_000.0)
SPIKE = smooth() - 0.25 * (np.arange(12) == 9)


@cache
def experiment() -> pd.DataFrame:
    curves = {
        "rises": RISE,
        "falls": FALL,
        "smooth": smooth(),
        "spike": SPIKE,
        "short": smooth()[:7],
        "one": smooth()[:1],
    }
    return transitions(curve_runs(curves, seed=2), seed=1).set_index("run", drop=False)


def test_a_rise_and_a_collapse_under_way_are_alarms_of_their_kind() -> None:
    table = experiment()
    for run, kind, other in (("rises", "rise", "collapse"), ("falls", "collapse", "rise")):
        row = table.loc[run]
        assert (row["state"], row["kind"], row["now"]) == ("alarm", kind, "alarm")
        assert row["p_onset"] > 0.9
        assert row[f"log_bf_{kind}"] > ALARM_LOG_BF > WATCH_LOG_BF > row[f"log_bf_{other}"]
        assert 8_000 <= row["since"] <= 11_000
        assert row["p_ahead"] < 0.05
        assert {"rise": "second rise", "collapse": "collapse"}[kind] in row["reason"]
    assert table.loc["rises", "cusum"] > 3
    assert table.loc["falls", "cusum"] < -3


def test_a_smooth_run_has_no_flag_and_says_that_the_hazard_speaks() -> None:
    row = experiment().loc["smooth"]
    assert (row["state"], row["kind"], row["now"], row["stratum"]) == ("prior_only", "none", "prior_only", "")
    assert np.isnan(row["since"])
    assert row["p_onset"] < 0.1
    assert row["reason"].startswith("No sign of a second move in 12 evaluations")
    assert "hazard" in row["reason"]


def test_one_bad_evaluation_is_no_collapse() -> None:
    row = experiment().loc["spike"]
    assert (row["state"], row["kind"]) != ("alarm", "collapse")
    assert row["now"] == "prior_only"
    # Seen from the evaluation itself: the last one of the log.
    row = transitions(curve_runs({"a": SPIKE[:10]}, seed=2), seed=1).iloc[0]
    assert row["log_bf_collapse"] > WATCH_LOG_BF
    assert (row["state"], row["kind"], row["now"]) == ("watch", "collapse", "watch")


@pytest.mark.parametrize("run", ["short", "one"])
def test_few_evaluations_leave_the_prior_and_say_so(run: str) -> None:
    row = experiment().loc[run]
    assert (row["state"], row["kind"]) == ("prior_only", "none")
    assert np.isnan(row[["p_onset", "log_bf_rise", "log_bf_collapse", "cusum"]].astype(float)).all()
    assert row["reason"].startswith(f"Only {row['evaluations']} evaluations, at least 8")
    assert row["p_ahead"] == pytest.approx(sum(HAZARD.within(np.log10(4)).values()))


def test_rows_keep_the_contract() -> None:
    table = experiment()
    assert set(CONTRACT) <= set(table.columns)
    assert set(table["run"]) == {"rises", "falls", "smooth", "spike", "short", "one"}
    assert (table["level"] == "run").all()
    assert set(table["state"]) <= set(STATES)
    assert set(table["kind"]) <= {"none", "rise", "collapse"}
    enough = table[table["evaluations"] >= 8]
    numbers = ["p_onset", "p_ahead", "log_bf_rise", "log_bf_collapse", "cusum", "compute", "horizon"]
    numbers += ["log_bf_rise_se", "log_bf_collapse_se"]
    assert np.isfinite(enough[numbers]).all(axis=None)
    assert enough[["p_onset", "p_ahead"]].stack().between(0, 1).all()
    assert (table["horizon"] == 4 * table["compute"]).all()
    assert (table["unit"] == "gpu_hours").all()
    assert (table["hazard"] == "rise=0.05,collapse=0.05").all()
    assert table["reason"].str.endswith(".").all()
    assert (
        not table.drop(columns=["p_onset", "since", "cusum"])
        .filter(regex="^(?!log_bf)")
        .isna()
        .any(axis=None)
    )


def test_it_is_at_hand_under_the_name_of_the_package() -> None:
    assert fc.transitions is transitions


# What stays


def test_a_flag_stays_after_the_move_is_over() -> None:
    """The run fell and came back: at the end one smooth curve through a few bad evaluations explains it best."""
    compute = np.linspace(1_000.0, 14_000.0, 14)
    dip = 0.3 * ((np.arange(14) >= 9) & (np.arange(14) < 12))
    runs = curve_runs({"a": smooth(compute) - dip}, compute=compute, seed=3)
    row = transitions(runs, seed=1).iloc[0]
    assert (row["state"], row["kind"], row["now"]) == ("alarm", "collapse", "prior_only")
    assert row["since"] == pytest.approx(11_000.0)
    assert "the flag stays" in row["reason"]
    early = transitions(runs.window(upto=11_000.0), seed=1).iloc[0]
    assert (early["state"], early["kind"], early["now"]) == ("alarm", "collapse", "alarm")
    assert early["since"] == pytest.approx(11_000.0)


@pytest.mark.usefixtures("hasty")
def test_a_reading_does_not_change_when_later_evaluations_do() -> None:
    runs = curve_runs({"a": RISE, "b": smooth()}, seed=2)
    others = changed(changed(runs, "a", [0.1, 0.9], 2), "b", [0.9, 0.1], 2)
    one, two = (Watched(each, seed=1).flags() for each in (runs, others))
    for name in ("a", "b"):
        before = [[each for each in flags[name].readings if each.evaluations <= 10] for flags in (one, two)]
        assert [each.evaluations for each in before[0]] == [8, 9, 10]
        assert repr(before[0]) == repr(before[1])
        assert repr(one[name].readings[-1]) != repr(two[name].readings[-1])


@pytest.mark.usefixtures("hasty")
def test_a_run_is_read_as_it_would_be_by_itself() -> None:
    both = transitions(curve_runs({"a": RISE, "b": smooth()}, seed=2), seed=1).set_index("run")
    alone = transitions(curve_runs({"a": RISE}, seed=2), seed=1).set_index("run")
    for column in ("state", "log_bf_rise", "cusum", "p_ahead", "since"):
        assert both.loc["a", column] == alone.loc["a", column], column
    other_seed = transitions(curve_runs({"a": RISE}, seed=2), seed=2).iloc[0]
    assert other_seed["log_bf_rise"] != alone.loc["a", "log_bf_rise"]


# Horizon and hazard


@pytest.mark.usefixtures("hasty")
def test_what_is_ahead_grows_with_the_horizon_and_the_hazard() -> None:
    watched = Watched(curve_runs({"a": smooth(), "short": smooth()[:5]}, seed=2))

    def ahead(horizon: float | None, rate: float) -> np.ndarray:
        return watched.table(horizon=horizon, hazard=Hazard(rate, rate))["p_ahead"].to_numpy()

    at = np.array([ahead(c, 0.1) for c in (12_001.0, 20_000.0, 48_000.0, 1e6, 1e9)])
    assert (np.diff(at, axis=0) > 0).all()
    rates = np.array([ahead(1e6, rate) for rate in (0.0, 0.01, 0.1, 1.0)])
    assert (rates[0] == 0).all()
    assert (np.diff(rates, axis=0) > 0).all()
    assert ahead(None, 0.1)[0] == ahead(48_000.0, 0.1)[0]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("horizon", [0.0, -5.0, 11_000.0, float("nan"), float("inf")])
def test_a_horizon_that_lies_behind_is_refused(horizon: float) -> None:
    with pytest.raises(InputError, match=r"horizon.*12000"):
        transitions(
            curve_runs({"a": smooth()[:8], "b": smooth()[[*range(7), -1]]}, compute=GRID[[*range(7), -1]]),
            horizon=horizon,
        )


def test_a_horizon_at_the_last_evaluation_is_refused(hasty: None) -> None:  # noqa: F811
    with pytest.raises(InputError, match="horizon"):
        transitions(
            curve_runs({"a": smooth()[[*range(7), -1]]}, compute=GRID[[*range(7), -1]]), horizon=12_000.0
        )


def test_a_horizon_that_lies_behind_a_short_run_is_refused_too() -> None:
    with pytest.raises(InputError, match="horizon"):
        transitions(curve_runs({"a": smooth()[:5]}), horizon=3_000.0)


@pytest.mark.usefixtures("hasty")
def test_a_hazard_changes_probabilities_and_not_the_evidence() -> None:
    watched = Watched(curve_runs({"a": moved(0.06, 10_000.0)}, seed=2))
    tables = [
        watched.table(horizon=None, hazard=Hazard(rate, rate)).iloc[0] for rate in (0.0, 0.02, 0.5, 5.0)
    ]
    assert len({row["log_bf_rise"] for row in tables}) == 1
    p = [row["p_onset"] for row in tables]
    assert p == sorted(p)
    assert p[0] == 0
    state = [STATES.index(row["state"]) for row in tables]
    assert state == sorted(state)


# Recipes


@pytest.mark.usefixtures("hasty")
def test_a_recipe_adds_up_the_evidence_of_its_runs() -> None:
    seeds = {f"s{i}": "twice" for i in range(3)}
    curves = {name: moved(0.12, 10_000.0) for name in seeds} | {"lone": smooth()}
    table = transitions(curve_runs(curves, recipes=seeds, seed=6), seed=1)
    assert list(table["level"]) == ["run"] * 4 + ["recipe"]
    own, recipe = table[table["run"].isin(seeds)], table.iloc[-1]
    assert recipe["run"] == "twice"
    for kind in MOVES:
        assert recipe[f"log_bf_{kind}"] == pytest.approx(own[f"log_bf_{kind}"].sum())
        assert recipe[f"log_bf_{kind}_se"] == pytest.approx(np.sqrt((own[f"log_bf_{kind}_se"] ** 2).sum()))
    assert recipe["evaluations"] == 36
    assert recipe["p_onset"] > own["p_onset"].max()
    assert STATES.index(recipe["state"]) >= own["state"].map(STATES.index).max()
    assert recipe["kind"] == "rise"
    assert "3 runs" in recipe["reason"]


def recipe_row(readings: dict[str, list[Reading]]) -> tuple[pd.DataFrame, pd.Series]:
    """Table of runs of one recipe whose readings are written down."""
    runs = curve_runs({name: smooth() for name in readings}, recipes=dict.fromkeys(readings, "both"))
    watched = Watched(runs)
    flags = {name: Flag(name, own, hand_weighed(), 0.0, [], []) for name, own in readings.items()}
    watched.flags = lambda report=None: flags  # type: ignore[method-assign]
    table = watched.table(horizon=1e5, hazard=HAZARD)
    return table, table.iloc[-1]


def test_a_recipe_is_flagged_by_evidence_that_no_run_has_alone() -> None:
    table, recipe = recipe_row({name: series([-1.0, 2.0]) for name in "abc"})
    assert set(table["state"][:-1]) == {"watch"}
    assert (recipe["state"], recipe["kind"], recipe["now"]) == ("alarm", "rise", "alarm")
    table, recipe = recipe_row({"a": series([-1.0, 2.0]), "b": series([-1.0, -3.0])})
    assert (recipe["state"], recipe["kind"]) == ("prior_only", "none")


def test_what_most_runs_of_a_recipe_have_shown_stays_with_it() -> None:
    over = series([-1.0, 9.0, -2.0])
    _, recipe = recipe_row({"a": over, "b": over, "c": series([-1.0, -1.0, -1.0])})
    assert (recipe["state"], recipe["kind"], recipe["now"], recipe["since"]) == (
        "alarm",
        "rise",
        "prior_only",
        900.0,
    )
    _, recipe = recipe_row({"a": over, "b": series([-1.0] * 3)})
    assert recipe["state"] == "prior_only"


def test_a_collapse_of_every_run_is_one_of_the_recipe() -> None:
    fell = series(collapse=[-1.0, 20.0, 20.0])
    table, recipe = recipe_row({"a": fell, "b": fell})
    assert (recipe["state"], recipe["kind"]) == ("alarm", "collapse")
    assert set(table["now"][:-1]) == {"alarm"}


def test_a_recipe_all_of_whose_runs_are_collapsing_is_an_alarm_today() -> None:
    fell = series(collapse=[-1.0, 20.0, 20.0])
    _, recipe = recipe_row({"a": fell, "b": fell})
    assert recipe["now"] == "alarm"


# Prompt classes


def classes(late: float) -> Runs:
    """A hard class that begins to be solved after the other had levelled off; the mean hardly shows it."""
    compute = np.geomspace(300.0, 30_000.0, 14)
    easy = np.asarray(smooth(compute, ceiling=0.8))
    hard = 0.01 + late * (compute > 8_000)
    rng = np.random.default_rng(4)
    parts = []
    for name, rate, trials in (("easy", easy, 15_000), ("hard", hard, 1_000)):
        value = rng.binomial(trials, rate) / trials
        parts.append(
            pd.DataFrame({"run": "a", "compute": compute, "value": value, "trials": trials, "stratum": name})
        )
    whole = (parts[0]["value"] * 15 + parts[1]["value"]) / 16
    parts.append(pd.DataFrame({"run": "a", "compute": compute, "value": whole, "trials": 16_000}))
    return Runs(pd.concat(parts), Metric("pass_rate"), ComputeAxis("gpu_hours"))


@pytest.mark.usefixtures("hasty")
def test_prompt_classes_raise_the_flag_where_the_mean_does_not() -> None:
    row = transitions(classes(0.3), seed=1).iloc[0]
    assert row["log_bf_rise"] < ALARM_LOG_BF
    assert (row["state"], row["kind"], row["stratum"]) == ("alarm", "rise", "alarm")
    assert "'hard'" in row["reason"]
    assert row["since"] > 8_000
    quiet = transitions(classes(0.0), seed=1).iloc[0]
    assert (quiet["state"], quiet["stratum"]) == ("prior_only", "prior_only")


# Fits


@pytest.mark.usefixtures("hasty")
def test_a_fit_is_looked_at_in_its_range_and_with_its_settings() -> None:
    runs = curve_runs({"a": RISE, "b": smooth()}, seed=2)
    fit = fit_by_hand(runs, upto=9_000.0, pooled=(), seed=5)
    table = transitions(fit).set_index("run")
    assert set(table["compute"]) == {9_000.0}
    assert set(table["evaluations"]) == {9}
    for name in ("a", "b"):
        assert table.loc[name, "log_bf_rise"] == fit.weighed[name].log_bayes_factor("rise")
    other = transitions(fit_by_hand(runs, upto=9_000.0, pooled=(), seed=6)).set_index("run")
    assert other.loc["a", "log_bf_rise"] != table.loc["a", "log_bf_rise"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("forced", [False, True])
def test_runs_that_carry_no_forecast_are_flagged_too(forced: bool) -> None:
    runs = curve_runs({"fell": FALL[:10], "a": smooth()[:10], "few": smooth()[:3]}, seed=2)
    refused = {"fell": "collapsed", "few": "too few evaluations"}
    fit = fit_by_hand(runs, upto=None, pooled=(), refused=refused, forced=forced)
    table = transitions(fit).set_index("run")
    assert set(table.index) == {"fell", "a", "few"}
    assert (table.loc["fell", "state"], table.loc["fell", "kind"]) == ("alarm", "collapse")
    assert table.loc["few", "state"] == "prior_only"


def test_a_fit_that_did_not_converge_is_flagged_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fit: Fit = fit_by_hand(curve_runs({"a": smooth()[:5]}), upto=None, pooled=(), passed=False)
    assert transitions(fit).iloc[0]["state"] == "prior_only"


@pytest.mark.usefixtures("hasty")
def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[str, int, int]] = []
    runs = curve_runs({"a": smooth()[:10], "b": smooth()[:9]})
    transitions(runs, report=lambda *step: told.append(step))
    total = len(cut_offs(10)) + len(cut_offs(9))
    assert [done for _, done, _ in told] == list(range(1, total + 1))
    assert {of for _, _, of in told} == {total}


# Worlds


def worlds(kind: str | None, done: float, seeds: range, size: tuple[float, float] | None = None) -> World:
    """One experiment with a recipe for every seed."""
    return draw_world(
        len(seeds),
        1,
        rng=np.random.default_rng([seeds.start, len(seeds)]),
        transition=None if kind is None else Transition(kind, share=1.0, done=done, steepness=8.0, size=size),
        evaluations=Evaluations(points=14, start=0.0),
    )


@pytest.mark.slow
def test_worlds_with_a_move_under_way_are_flagged_and_smooth_ones_are_not() -> None:
    runs = range(6)
    tables = {
        "rise": transitions(worlds("rise", 0.6, runs, (0.5, 0.7)).runs),
        "collapse": transitions(worlds("collapse", 0.6, runs, (0.5, 0.7)).runs),
        "none": transitions(worlds(None, 0.0, runs).runs),
    }
    for kind in MOVES:
        table = tables[kind]
        # A move of half the room, more than half made, is hard to miss, but one evaluation is little of it.
        assert ((table["state"] != "prior_only") & (table["kind"] == kind)).sum() >= 5, table
        assert (table[f"log_bf_{kind}"] > ALARM_LOG_BF).sum() >= 4, table
    assert (tables["none"]["state"] == "alarm").sum() == 0, tables["none"]
    assert (tables["none"]["state"] == "watch").sum() <= 2, tables["none"]
    assert tables["none"]["p_onset"].max() < 0.3


def test_the_fits_prior_is_used_for_the_last_reading_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of the fit stand for the last one; what was read before knows nothing of other recipes."""
    fit = fit_by_hand(curve_runs({"a": smooth()[:9]}), upto=None, pooled=())
    weighed = replace(hand_weighed({"second_rise": 0.9}), fitted_upto=9_000.0)
    fit.__dict__["weighed"] = {"a": weighed}
    row = transitions(fit).iloc[0]
    assert row["log_bf_rise"] == weighed.log_bayes_factor("rise")
    flags = Watched(fit.runs, fit=fit).flags()
    assert flags["a"].readings[-1].log_bf["rise"] == weighed.log_bayes_factor("rise")
    assert [one.evaluations for one in flags["a"].readings] == [8, 9]


def test_a_run_that_never_solves_anything_has_no_second_move() -> None:
    """Near 0 the likelihood is sharper than counts allow: a collapse has to show in the evaluations."""
    zeros = {"a": np.zeros(10)}
    row = transitions(curve_runs(zeros, sd=0.0, floor=0.0), seed=1).iloc[0]
    assert (row["state"], row["now"]) == ("prior_only", "prior_only")


def test_one_steep_rise_with_a_slow_tail_is_no_alarm() -> None:
    grid = np.arange(1.0, 15.0)
    curve = 0.58 - 0.57 * (1 + (grid / 3.0) ** 6) ** -0.4
    row = transitions(curve_runs({"a": curve}, compute=1000 * grid, floor=0.01), seed=1).iloc[0]
    assert row["state"] != "alarm"
