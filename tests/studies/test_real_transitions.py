"""Flags on real curves: what curves truly did, classes as strata, first flags, and what text and figure say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command

import forecast.outlook.transitions as flags
from forecast.errors import InputError
from forecast.outlook.readings import MINIMUM, Reading
from forecast.outlook.strata import StratumFlag
from forecast.outlook.transitions import Flag, Watched
from forecast.runs.table import ComputeAxis, Metric, Runs
from studies import real_transitions as study
from studies.executor import Task
from studies.real_transitions import (
    SMOOTH,
    Panel,
    class_sizes,
    delay_figure,
    figure,
    flag_row,
    markdown,
    moved,
    reaches_tenth,
    read_mini,
    read_public,
    stable_shares,
    tasks,
    verdict,
    watch,
    work,
)

SHARED = Path(__file__).parents[3] / "shared"
STEPS = np.array([0, *range(1, 11), *range(12, 40, 2)])
"""Step 0 and 24 evaluations."""


def rise(compute: np.ndarray, middle: float, exponent: float) -> np.ndarray:
    return 1 / (1 + (middle / compute) ** exponent)


def test_a_plain_rule_says_what_curves_did() -> None:
    compute = np.arange(1.0, 101.0)
    smooth = moved(compute, 0.1 + 0.6 * rise(compute, 10, 1.5))
    assert np.isnan(smooth.fall)
    assert np.isnan(smooth.rise)
    second = moved(compute, 0.1 + 0.3 * rise(compute, 4, 3) + 0.5 * rise(compute, 60, 16))
    assert second.rise == pytest.approx(0.5, abs=0.05)
    assert 48 < second.rise_at < 56  # a tenth is made at 60 / 9 ** (1 / 16)
    assert not second.first
    late = moved(compute, 0.02 + 0.9 * rise(compute, 60, 16))
    assert late.first
    falls = moved(compute, 0.8 - 0.6 * rise(compute, 50, 20))
    assert falls.fall == pytest.approx(0.6, abs=0.02)
    assert 43 < falls.fall_at < 47  # 50 / 9 ** (1 / 20)
    dip = moved(compute, 0.8 - 0.6 * np.exp(-(((compute - 50) / 8) ** 2)))
    assert dip.fall == pytest.approx(0.6, abs=0.02)
    noise = 0.5 + 0.1 * np.random.default_rng(0).standard_normal(100)
    assert np.isnan([moved(compute, noise).fall, moved(compute, noise).rise]).all()
    assert np.isnan(moved(compute[:5], compute[:5]).fall)


def test_a_class_has_risen_when_it_is_at_a_tenth_of_its_last_level() -> None:
    compute = np.array([0.0, 10.0, 20.0, 30.0])
    assert reaches_tenth(compute, np.array([0.0, 0.0, 0.2, 0.8])) == pytest.approx(14.0)
    assert reaches_tenth(compute, np.array([0.2, 0.2, 0.2, 0.8])) == 0.0
    assert np.isnan(reaches_tenth(compute, np.array([0.0, 0.0, 0.01, 0.02])))


def test_class_sizes_are_whole_prompts() -> None:
    rates = np.random.default_rng(0).random((12, 2)).round(3)
    whole = (rates @ [113, 143] / 256).round(4)
    assert class_sizes(rates, whole, 256).tolist() == [113, 143]
    with pytest.raises(InputError, match="do not add up"):
        class_sizes(rates, whole + 0.05 * np.sin(np.arange(12)), 256)


def write(folder: Path, recipe: str, easy: np.ndarray, hard: np.ndarray) -> None:
    rates = np.stack([easy, hard], axis=1).round(3)
    table = {
        "run": f"{recipe}_s0",
        "seed": 0,
        "recipe": recipe,
        "step": STEPS,
        "gen_flops": 2e8 * STEPS,
        "train_flops": 3e8 * STEPS,
        "eval_pass_rate": (rates @ [96, 160] / 256).round(4),
        "eval_cls0": rates[:, 0],
        "eval_cls1": rates[:, 1],
    }
    pd.DataFrame(table).to_csv(folder / f"{recipe}_s0.csv", index=False)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    rng = np.random.default_rng(1)
    easy = 0.3 + 0.5 * rise(np.maximum(STEPS, 1e-9), 3, 1.5)
    noise = 0.01 * rng.standard_normal((3, len(STEPS)))
    write(folder, "addmul_base", easy + noise[0], 0.5 * easy + noise[1])
    write(folder, "addmul_lr1e-3", easy * np.where(STEPS > 12, 0.4, 1.0), 0.5 * easy + noise[2])
    write(folder, "carry_base", easy, np.where(STEPS >= 20, 0.8, 0.02))
    return folder


def test_classes_become_strata(curves: Path) -> None:
    sets = read_mini(curves)
    carry = sets["carry"].table
    assert set(carry["stratum"].dropna()) == {"cls0", "cls1"}
    assert carry.groupby("stratum")["trials"].unique().map(list).to_dict() == {"cls0": [384], "cls1": [640]}
    hard = carry[carry["stratum"] == "cls1"]
    assert len(hard) == len(STEPS) - 1  # step 0 is the floor
    assert hard["value"].tolist() == [0.02] * 14 + [0.8] * 10
    assert hard["compute"].tolist() == sets["carry"].overall()["compute"].tolist()


def reading(compute: float, rise: float = 0.0, collapse: float = 0.0, slow: float | None = None) -> Reading:
    log_bf = {"rise": rise, "collapse": collapse}
    return Reading(
        compute,
        MINIMUM,
        log_bf,
        dict.fromkeys(log_bf, 0.1),
        {kind: value if slow is None else slow for kind, value in log_bf.items()},
        dict.fromkeys(log_bf, 0.9),
    )


def a_run(values: list[float]) -> Runs:
    table = pd.DataFrame({"run": "a", "compute": np.arange(1.0, len(values) + 1), "value": values})
    return Runs(table, Metric("accuracy"), ComputeAxis("steps"))


def test_first_flags_and_the_latched_state_of_curve_and_classes() -> None:
    quiet = StratumFlag("prior_only", "", np.nan, 0.0, "")
    alarm = StratumFlag("alarm", "hard", 8.0, 9.0, "")
    readings = [reading(8 * (1 + 1e-15), 1.5), reading(9.0, 5.0), reading(10.0, 0.2)]
    found = flag_row(a_run([0.5] * 10), Flag("a", readings, None, 0.0, [(7.0, quiet), (8.0, alarm)], []))
    assert (found["curve_watch"], found["curve_alarm"], found["strata_watch"], found["strata_alarm"]) == (
        8,
        9,
        8,
        8,
    )
    assert (found["curve_watch_kind"], found["curve_alarm_kind"]) == ("rise", "rise")
    assert (found["state"], found["since"], found["by"]) == ("alarm", 8, "strata")
    assert (found["curve_state"], found["curve_since"]) == ("alarm", 9)
    assert (found["most_rise"], found["log_bf_rise"]) == (5.0, 0.2)
    none = flag_row(a_run([0.5] * 4), Flag("a", [], None, np.nan, [], []))
    assert none["state"] == "prior_only"
    assert np.isnan([none["curve_watch"], none["strata_alarm"], none["most_rise"]]).all()


def test_every_evaluation_from_the_eighth_is_read(curves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = study.mini_runs.read(curves)["stable"]

    def read(self: Watched, name: str, table: pd.DataFrame, n: int) -> Reading | Flag:
        one = reading(float(table["compute"].iloc[n - 1]))
        return one if n < len(table) else Flag(name, [one], None, 0.0, [], [])

    monkeypatch.setattr(flags.Watched, "_read", read)
    at = runs.overall()["compute"].tolist()
    assert [one.compute for one in watch(runs, "addmul_base_s0", everywhere=True).readings] == at[
        MINIMUM - 1 :
    ]
    assert len(watch(runs, "addmul_base_s0").readings) < len(at) - MINIMUM + 1


def test_long_public_logs_are_thinned_and_keep_their_last_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    log = study.public_logs.LOGS[0]
    monkeypatch.setattr(study.public_logs, "read", lambda *_: iter([("", a_run([0.1] * 130))]))
    ((_, runs),) = read_public(log, Path())
    assert runs.table["compute"].tolist() == list(np.arange(1.0, 131.0)[::-3][::-1])


ROW = {
    "part": "public",
    "group": "trl-console-rho-sweep",
    "run": "a",
    "unit": "steps",
    "evaluations": 40,
    "first_read": 8.0,
    "rise": np.nan,
    "rise_at": np.nan,
    "fall": np.nan,
    "fall_at": np.nan,
    "first": False,
    "rise_left": 10,
    "collapse_left": 10,
    "state": "prior_only",
    "kind": "none",
    "since": np.nan,
    "by": "curve",
    "start": 0.1,
    "highest": 0.5,
    "end": 0.5,
    "mark": np.nan,
    "mark_next": np.nan,
    **{f"{channel}_{level}": np.nan for channel in ("curve", "strata") for level in ("watch", "alarm")},
    **{f"curve_{level}_kind": "" for level in ("watch", "alarm")},
    **{
        f"{what}_{kind}": 0.0
        for what in ("log_bf", "most", "guarded", "most_guarded")
        for kind in ("rise", "collapse")
    },
}
ALARM = {"state": "alarm", "kind": "collapse", "since": 20.0, "curve_watch": 18.0, "curve_alarm": 20.0}
ALARM |= {"curve_watch_kind": "collapse", "curve_alarm_kind": "collapse"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "no flag due"),
        (ALARM, "FALSE ALARM (collapse)"),
        (ALARM | {"fall": 0.5, "fall_at": 16.0}, "alarm at 1.25 x its beginning"),
        (ALARM | {"rise": 0.5, "rise_at": 16.0}, "alarm of a collapse, which did not come"),
        ({"rise": 0.5, "rise_at": 16.0, "first": True}, "first rise: one steep curve, no flag due"),
        ({"fall": 0.5, "fall_at": 4.0}, "MISSED collapse: begins before the eighth evaluation"),
        (
            {"fall": 0.5, "fall_at": 4.0, "first_read": np.nan, "evaluations": 7},
            "MISSED collapse: 7 evaluations, too few to be read",
        ),
        (
            {"fall": 0.5, "fall_at": 16.0, "most_collapse": 4.0, "guarded_collapse": 1.0},
            "MISSED collapse: log Bayes factor at most 4.0, but slow noise or one steep rise explains it (1.0)",
        ),
        (
            {"rise": 0.5, "rise_at": 16.0, "most_rise": 0.4, "rise_left": 2},
            "MISSED rise: log Bayes factor at most 0.4; 2 evaluations since it began",
        ),
    ],
)
def test_verdicts_name_what_went_wrong(given: dict[str, object], expected: str) -> None:
    assert verdict(pd.Series(ROW | given)) == expected


@pytest.fixture
def rows() -> pd.DataFrame:
    carry = {"part": "mini", "group": "carry", "mark": 15.0, "mark_next": 20.0, "kind": "rise"}
    return pd.DataFrame(
        [
            ROW | ALARM | carry | {"run": "carry_0", "strata_alarm": 15.0},
            ROW | ALARM | carry | {"run": "carry_1", "curve_alarm": 7.0},
            ROW | ALARM | {"part": "mini", "group": "unstable", "run": "high", "mark": 16.0, "fall": 0.3},
            ROW | {"part": "mini", "group": "stable", "run": "s0", "most_rise": 3.5},
            ROW | {"part": "mini", "group": "stable", "run": "s1", "log_bf_rise": -1.0},
            ROW | {"part": "skills", "group": SMOOTH, "run": "w0"},
            ROW | ALARM | {"part": "skills", "group": "hacked", "run": "w1", "mark": 16.0},
            ROW | ALARM | {"run": "falls", "fall": 0.5, "fall_at": 16.0},
            ROW | {"group": "verl-ppo-gsm8k-baselines", "run": "still"},
        ]
    )


def test_the_text_counts_flags_and_holds_them_to_what_was_asked(rows: pd.DataFrame) -> None:
    assert stable_shares(rows[rows["part"] == "mini"])["ever"] == 0.5
    text = markdown(rows)
    assert "| carry_0 | 15 | 1.20 | 1.33 | - | 1.00 | 1.33 | alarm, rise (curve) |" in text
    assert "alarm by the evaluation after C10 >= 1.00: holds (1.000)" in text
    assert "curve alone: share with an alarm before half of C10 <= 0.00: does not hold (0.500)" in text
    assert "at any evaluation <= 0.10: does not hold (0.500)" in text
    assert "share that ends as an alarm of a collapse >= 1.00: holds (1.000)" in text
    assert "| hacked | 1 | 1 | 0 | 1 | 0 | 0 | 1.25 (1.25-1.25) | - | 1.25 (1.25-1.25) | 0 |" in text
    assert "alarm, collapse | alarm at 1.25 x its beginning |" in text
    assert "| verl-ppo-gsm8k-baselines | yes | 1 | 1 | 0 | 0 | 0 |" in text


def test_the_figure_marks_flags(rows: pd.DataFrame) -> None:
    compute = np.arange(1.0, 41.0)
    panels = [Panel(row["run"], "steps", compute, compute / 80, row) for _, row in rows.iloc[:4].iterrows()]
    drawn = figure(panels)
    assert [axes.get_title() for axes in drawn.axes if axes.get_visible()] == [
        "carry_0",
        "carry_1",
        "high",
        "s0",
    ]
    assert len(drawn.axes[0].lines) == 5  # curve, watch, alarm, alarm of the classes, where the move begins


def test_a_skills_world_gives_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulators.skills.drawing as drawing

    monkeypatch.setattr(drawing, "_log_uniform", lambda rng, low, high: low)  # the shortest run
    monkeypatch.setattr(study, "EVALUATIONS", 9)
    task = Task("one", {"part": "skills", "set": SMOOTH, "world": 0, "seed": 0})
    row = work(task).iloc[0]
    assert row[["part", "group", "evaluations"]].tolist() == ["skills", SMOOTH, 9]
    assert np.isfinite(row["log_bf_rise"])


def test_a_run_of_a_tiny_transformer_gives_a_row(curves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Flag("carry_base_s0", [reading(1e10)], None, 0.0, [], [])
    monkeypatch.setattr(study, "watch", lambda *_, **__: quiet)
    task = Task(
        "one", {"part": "mini", "curves": str(curves), "set": "carry", "run": "carry_base_s0", "seed": 0}
    )
    row = work(task).iloc[0]
    assert row[["mark", "mark_next"]].tolist() == [1e10, 1.1e10]  # steps 20 and 22
    assert row["rise"] > 0.3


def test_the_command_is_there_and_asks_for_all_logs(tmp_path: Path, curves: Path, command: Command) -> None:
    result = command("study", "real-transitions", str(curves), str(tmp_path), "-o", str(tmp_path / "out"))
    assert result.code == 2
    assert "logs are missing" in result.err


@pytest.mark.skipif(not (SHARED / "minirun").is_dir(), reason="needs ../shared, the recorded curves and logs")
def test_recorded_curves_have_whole_classes_and_a_task_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = read_mini(SHARED / "minirun" / "curves")
    sizes = {
        key: runs.table.groupby("stratum")["trials"].first().to_numpy(dtype=int) // 4
        for key, runs in sets.items()
    }
    assert sizes["carry"].tolist() == [113, 143]
    assert sizes["stable"].tolist() == sizes["unstable"].tolist() == [46, 77, 62, 71]
    monkeypatch.setattr(study, "MOVING", ("verifier-reward-multi-seed",))
    made = tasks(SHARED / "minirun" / "curves", SHARED / "logs", 2, 0)
    assert len({task.key for task in made}) == len(made)
    assert sum(task["part"] == "mini" for task in made) == 31


def test_worlds_without_curves_to_show_are_drawn_by_their_delays(rows: pd.DataFrame) -> None:
    (axes,) = delay_figure(rows[rows["part"] == "skills"]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["hacked"]
    assert axes.lines[0].get_xdata() == pytest.approx([1.25])
