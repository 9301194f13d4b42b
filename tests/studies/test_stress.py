"""The stress test: every scenario's truth, worlds that keep the past, decisions, the table, the command, the page."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import InputError
from forecast.fits import Fit, fit
from forecast.outlook.hazard import Hazard
from forecast.report.page import write_page
from forecast.runs.table import ComputeAxis, Metric
from simulators.worlds import sigmoid_world
from studies import stress as stress_module
from studies.results import read_provenance
from studies.stress import Stress, chosen_runs, stress_test
from studies.stress_decisions import Decision, default_worth
from studies.stress_scenarios import NO_MOVE, SCENARIOS, parse_scenario, parse_scenarios, progress
from studies.stress_text import markdown, sentences
from studies.stress_worlds import draw_world, later_evaluations, outlook, runs_with

COMPUTE = np.array([0.2, 0.7, 1.0, 1.3, 1.6, 2.5, 4.0, 1e9])
CURVE, CEILING = np.full(len(COMPUTE), 0.5), 0.5
LATER = COMPUTE > 1


def course(name: str, seed: int = 0):
    return SCENARIOS[name].course(COMPUTE, CURVE, CEILING, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def tiny_fit() -> Fit:
    world = sigmoid_world(1, 1, points=14, start=300.0, spacing="log", rng=np.random.default_rng(2))
    runs = replace(world.runs, compute=ComputeAxis("gpu_hours", price_per_unit=2.0))
    return fit(runs, engine="particle", seed=1)


@pytest.fixture(scope="module")
def tiny(tiny_fit: Fit) -> Stress:
    return stress_test(tiny_fit, worlds=30, watched=0)


@pytest.fixture(scope="module")
def tiny_folder(tiny_fit: Fit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stress") / "fit"
    tiny_fit.save(folder)
    return folder


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_changes_before_now(name: str) -> None:
    found = course(name)
    assert found.true.shape == found.seen.shape == COMPUTE.shape
    np.testing.assert_allclose(found.true[~LATER], 0.5, atol=1e-12)
    np.testing.assert_allclose(found.seen[~LATER], 0.5, atol=1e-12)
    assert ((found.true >= 0) & (found.true <= 1)).all()
    np.testing.assert_array_equal(found.true, course(name).true)  # the same generator, the same course


def test_a_move_is_half_made_at_its_midpoint() -> None:
    assert progress([0.5, 1.0, 1.6, 1e20], 1.6, 4.0) == pytest.approx([0, 0, 0.5, 1])
    assert progress([1.05], 1.05, 0.5) == pytest.approx([0.5])
    assert (np.diff(progress(np.geomspace(0.5, 100, 300), 1.1, 1.0)) >= 0).all()


@pytest.mark.parametrize(
    ("name", "kind", "end"),
    [
        ("smooth", NO_MOVE, 0.5),
        ("late_rise", "rise", 0.5 + 0.4 * 0.5),
        ("staircase", "rise", 0.5 + 3 * 0.12 * 0.5),
        ("collapse", "collapse", 0.25),
        ("reward_hacking", NO_MOVE, 0.3),
        ("slow_drift", NO_MOVE, 0.5),
        ("ceiling_creep", NO_MOVE, 1.0),
    ],
)
def test_truth_in_the_end(name: str, kind: str, end: float) -> None:
    found = course(name)
    assert found.kind == kind
    assert found.true[-1] == pytest.approx(end, abs=1e-3)


def test_what_each_scenario_does_on_the_way() -> None:
    assert course("late_rise").true[4] == pytest.approx(0.6)  # half of it at 1.6
    assert course("collapse").true[4] == pytest.approx(0.375)
    assert course("ceiling_creep").true[6] == pytest.approx(0.5 + 0.03 * np.log(4))
    np.testing.assert_array_equal(course("reward_hacking").seen, CURVE)
    steps = SCENARIOS["staircase"].course(
        np.linspace(1, 4, 200), np.full(200, 0.5), CEILING, np.random.default_rng(0)
    )
    speed = np.diff(steps.true)
    assert ((speed[1:-1] > speed[:-2]) & (speed[1:-1] > speed[2:])).sum() == 3
    sd, correlation = SCENARIOS["slow_drift"].noise(0.01, 0.3, np.random.default_rng(0))
    assert sd == pytest.approx(0.03)
    assert 0.9 <= correlation <= 0.97


def test_a_change_of_recipe_goes_either_way_and_only_from_there_on() -> None:
    found = [course("recipe_change", seed) for seed in range(40)]
    assert {one.kind for one in found} == {"rise", "collapse"}
    for one in found:
        assert one.true[3] == pytest.approx(0.5)  # at 1.3
        assert (one.true[-1] > 0.5) == (one.kind == "rise")
        assert 0.05 - 1e-9 <= abs(one.true[-1] - 0.5) <= 0.2 + 1e-9


def test_scenarios_as_text() -> None:
    name, scenario = parse_scenario("late_rise:height=.3,at=2")
    assert name == "late_rise"
    assert scenario == replace(SCENARIOS["late_rise"], height=0.3, at=2.0)
    assert parse_scenarios([]) == SCENARIOS
    assert list(parse_scenarios(["collapse", "smooth"])) == ["collapse", "smooth"]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["meteor"], "unknown scenario"),
        (["smooth:height=1"], "unknown size of scenario smooth"),
        (["late_rise:depth=1"], "unknown size"),
        (["late_rise:at=x"], "is no number"),
        (["late_rise:at=.9"], "after what the run has used"),
        (["late_rise:at=nan"], "after what the run has used"),
        (["collapse:depth=1.5"], "out of range"),
        (["smooth", "smooth"], "named twice"),
    ],
)
def test_wrong_scenarios(texts: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_scenarios(texts)


def test_evaluations_go_on_at_their_own_spacing() -> None:
    compute, gap = later_evaluations(np.arange(1.0, 11.0), 20.0, 12)
    np.testing.assert_allclose(compute, np.arange(11.0, 21.0))
    assert gap == pytest.approx(1)
    compute, gap = later_evaluations(np.arange(1.0, 31.0), 120.0, 12)
    assert len(compute) == 12
    assert gap == pytest.approx(7.5)
    compute, gap = later_evaluations(2.0 ** np.arange(8), 4 * 128, 12)
    np.testing.assert_allclose(compute, [256, 512])
    assert gap == pytest.approx(1)
    compute, _ = later_evaluations([1.0, 2.0, 3.0], 3.1, 12)
    assert compute.tolist() == [3.1]


def test_worlds_keep_the_past_and_share_their_noise(tiny_fit: Fit) -> None:
    run = tiny_fit.observations.runs[0]
    own = outlook(tiny_fit, run, Hazard(), horizon=64_000.0, evaluations=6)
    smooth, hacked, risen = (
        draw_world(own, SCENARIOS[name], name, 3, 0) for name in ("smooth", "reward_hacking", "late_rise")
    )
    np.testing.assert_array_equal(smooth.seen, hacked.seen)
    assert (hacked.true < smooth.true).all()
    assert np.isnan(smooth.onset)
    assert own.now < risen.onset < 1.6 * own.now
    table = runs_with(own, risen).table
    pd.testing.assert_frame_equal(table.head(14)[["compute", "value"]], own.past.table[["compute", "value"]])
    np.testing.assert_allclose(table["compute"].iloc[14:], own.compute)
    again = draw_world(own, SCENARIOS["late_rise"], "late_rise", 3, 0)
    np.testing.assert_array_equal(risen.seen, again.seen)


def test_the_band_is_the_printed_one(tiny_fit: Fit) -> None:
    run = tiny_fit.observations.runs[0]
    own = outlook(tiny_fit, run, Hazard(), horizon=64_000.0, evaluations=6)
    for (quantity, transitions), band in own.bands.items():
        printed = tiny_fit.predict([64_000.0], quantity=quantity, transitions=transitions).iloc[0]
        np.testing.assert_allclose(band[1:4], printed[["q05", "q50", "q95"]].to_numpy(dtype=float))


def test_smooth_worlds_lie_in_the_band_about_as_often_as_it_says(tiny_fit: Fit) -> None:
    found = stress_test(tiny_fit, scenarios=parse_scenarios(["smooth"]), worlds=400, watched=0)
    row = found.table.iloc[0]
    for quantity in ("curve", "evaluation"):
        assert row[f"{quantity}_90_excluded"] == pytest.approx(0.90, abs=0.05)
        assert row[f"{quantity}_90_averaged"] >= 0.85
    assert row["width_90_averaged"] >= row["width_90_excluded"]


def test_what_the_table_says_of_each_scenario(tiny: Stress) -> None:
    rows = tiny.table.set_index("scenario")
    assert list(rows.index) == list(SCENARIOS)
    assert (rows["worlds"] == 30).all()
    assert (rows["watched"] == 0).all()
    assert rows["detected"].isna().all()
    assert rows.loc["reward_hacking", "curve_90_excluded"] < 0.2
    assert (
        rows.loc["reward_hacking", "evaluation_90_excluded"] == rows.loc["smooth", "evaluation_90_excluded"]
    )
    assert rows.loc["collapse", "bias_excluded"] > 0 > rows.loc["late_rise", "bias_excluded"]
    assert rows.loc["collapse", "wrong_excluded"] == 1
    assert rows.loc["late_rise", "wrong_excluded"] == 0
    fall = -tiny.worlds.loc[tiny.worlds["scenario"] == "collapse", "gain"].mean()
    expected = fall + tiny.runs["worth"].iloc[0]
    assert rows.loc["collapse", "regret_excluded"] == pytest.approx(expected)


def test_flags_are_looked_for_and_stop_the_run(tiny_fit: Fit) -> None:
    found = stress_test(
        tiny_fit, scenarios=parse_scenarios(["collapse", "smooth"]), worlds=2, watched=1, evaluations=4
    )
    rows = found.table.set_index("scenario")
    assert (rows["watched"] == 1).all()
    assert rows.loc["collapse", "detected"] == 1
    assert rows.loc["collapse", "delay"] > 0.8
    assert rows.loc["smooth", "false_alarm"] in (0, 1)
    assert 0 < rows.loc["collapse", "compute_saved"] < found.runs["horizon"].iloc[0]
    assert rows.loc["collapse", "money_saved"] == 2 * rows.loc["collapse", "compute_saved"]
    assert "in money" in " ".join(sentences(found, tiny_fit.runs))


def test_decisions() -> None:
    pays = Decision(gain=0.03, worth=0.02)
    assert pays.pays
    assert pays.wrong([0.02, 0.01, -0.3]).tolist() == [False, True, True]
    np.testing.assert_allclose(pays.regret([0.05, 0.01, -0.3]), [0, 0.01, 0.32])
    stops = Decision(gain=0.01, worth=0.02)
    assert not stops.pays
    np.testing.assert_allclose(stops.regret([0.05, 0.01]), [0.03, 0])
    assert Decision(0.02, 0.02).pays
    assert default_worth([0.0, 0.04, 0.1]) == pytest.approx(0.02)
    assert default_worth([-0.1]) == 0


def test_errors_of_shares_count_runs_as_clusters() -> None:
    same = pd.DataFrame({"run": np.repeat(["a", "b"], 50), "x": np.repeat([0.0, 1.0], 50)})
    assert stress_module._share(same, "x") == pytest.approx({"x": 0.5, "x_se": 0.5})
    mixed = pd.DataFrame({"run": np.repeat(["a", "b"], 50), "x": np.tile([0.0, 1.0], 50)})
    assert stress_module._share(mixed, "x")["x_se"] == pytest.approx(0.05)
    assert np.isnan(stress_module._share(mixed.head(0), "x")["x"])


def test_many_runs_are_thinned_out_evenly() -> None:
    names = [f"r{k}" for k in range(11)]
    assert chosen_runs(names) == ["r0", "r2", "r4", "r6", "r8", "r10"]
    assert chosen_runs(names[:3]) == names[:3]


def test_values_are_on_the_metrics_scale() -> None:
    tables = {}
    for scale in ((0.0, 1.0), (100.0, 0.0)):
        made = fit_by_hand(hand_runs(["alpha"], metric=Metric("m", scale=scale, prompts=1000)), pooled=())
        tables[scale] = _without_averaging(made)
    plain, errors = (table.set_index("scenario") for table in tables.values())
    for column in ("width_90_excluded", "regret_excluded"):
        np.testing.assert_allclose(errors[column], 100 * plain[column], rtol=1e-6)
    np.testing.assert_allclose(errors["bias_excluded"], -100 * plain["bias_excluded"], atol=1e-6)
    np.testing.assert_allclose(errors["wrong_excluded"], plain["wrong_excluded"])


def _without_averaging(made: Fit) -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        from forecast.outlook import averaged
        from forecast.outlook.fitted_curves import curve_draws

        patch.setattr(
            averaged, "averaged_draws", lambda fit, level, name, hazard: curve_draws(fit, level, name)
        )
        return stress_test(made, worlds=5, watched=0).table


def test_text_says_what_cannot_be_shown(tiny: Stress, tiny_fit: Fit) -> None:
    text = markdown(tiny, tiny_fit.runs)
    assert "nothing in the log can show it" in " ".join(text.split())
    for name, scenario in SCENARIOS.items():
        assert f"- `{name}`: {scenario.what}" in text
        assert all(field.name in text for field in fields(scenario))


def test_the_command_and_the_page(tiny_fit: Fit, tiny_folder: Path, command: Command) -> None:
    options = ["--worlds", 2, "--watched", 1, "--evaluations", 2, "--scenario", "smooth"]
    answer = command("stress", tiny_folder, *options, "--scenario", "collapse:depth=.6", "--format", "json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert [row["scenario"] for row in told["scenarios"]] == ["smooth", "collapse"]
    assert [row["worlds"] for row in told["scenarios"]] == [2, 2]
    assert "readings of simulated logs" in answer.err
    folder = tiny_folder.with_name("fit-stress")
    assert sorted(path.name for path in folder.iterdir()) == ["stress.md", "stress.parquet", "stress.png"]
    made = read_provenance(folder / "stress.parquet")
    assert made["settings"]["scenarios"]["collapse"]["depth"] == 0.6
    assert "--scenario collapse:depth=.6" in made["command"]
    assert len(made["data_sha256"]) == 64

    answer = command("stress", tiny_folder, *options)
    assert answer.code == 2
    assert "exists" in answer.last
    answer = command("stress", tiny_folder, *options, "--watched", 0, "--overwrite")
    assert answer.code == 0
    assert "smooth" in answer.out
    assert "readings" not in answer.err

    page = tiny_folder.with_name("page.html")
    answer = command("report", tiny_folder, "--stress", folder, "-o", page)
    assert answer.code == 0, answer.err
    text = page.read_text(encoding="utf-8")
    assert "data:image/png;base64," in text
    assert "If something happens next" in text

    answer = command("report", tiny_folder, "--stress", tiny_folder, "-o", page, "--overwrite")
    assert answer.code == 2
    assert "not the result of a stress test" in answer.last
    at = [32_000.0]
    with pytest.raises(InputError, match="another fit: its data differ"):
        write_page(page, fit_by_hand(), at=at, stress=folder)
    other = replace(tiny_fit, settings=replace(tiny_fit.settings, seed=9))
    with pytest.raises(InputError, match="another fit of these data"):
        write_page(page, other, at=at, stress=folder)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--scenario", "meteor"], "unknown scenario"),
        (["--horizon", "10"], "must lie beyond the last fitted evaluation"),
        (["--horizon", "nan"], "must lie beyond the last fitted evaluation"),
        (["--worth", "nan"], "finite number"),
        (["--worth", "-.1"], "finite number"),
        (["--hazard", "rise=x"], "hazard is no number"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], says: str, tiny_folder: Path, tmp_path: Path, command: Command
) -> None:
    answer = command("stress", tiny_folder, "-o", tmp_path / "out", *options)
    assert answer.code == 2
    assert says in answer.last
    assert not (tmp_path / "out").exists()
