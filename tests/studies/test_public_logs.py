"""Public logs: what became of every run, on folders in the formats of the collection."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command

from studies.backtest_rows import SKIPPED, backtest_rows, bar, scores, scores_by_run
from studies.executor import Task
from studies.public_logs import (
    LOGS,
    NO_OUTCOME,
    check_root,
    failures,
    figure,
    markdown,
    pooled,
    short_reason,
    summarise,
    work,
)

COLLECTION = Path(__file__).parents[3] / "shared" / "logs"
STEPS = np.arange(0, 260, 10)


def rising(ceiling: float, floor: float = 0.2, midpoint: float = 60.0, seed: int = 0) -> np.ndarray:
    """Evaluations of 1024 prompts at `STEPS`, around a curve of the model's family."""
    share = 1 / (1 + (midpoint / np.maximum(STEPS, 1e-9)) ** 1.8)
    rng = np.random.default_rng(seed)
    return rng.binomial(1024, floor + (ceiling - floor) * share) / 1024


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders of the collection, written as their owners would have."""
    root = tmp_path_factory.mktemp("logs")
    tinyzero = root / "tinyzero-cognitive-countdown"
    tinyzero.mkdir()
    flat = np.where(np.arange(len(STEPS)) % 2, 0.2, 0.21)
    for name, curves in {
        "llama_results.csv": {"base_ppo": rising(0.7), "stuck": flat},
        "qwen_results.csv": {"base_ppo": rising(0.6, seed=1)},
    }.items():
        parts = [pd.DataFrame({"condition": run, "step": STEPS, "accuracy": y}) for run, y in curves.items()]
        pd.concat(parts).to_csv(tinyzero / name, index=False)
    jump = root / "grokking-late-jump-and-collapse"
    jump.mkdir()
    late = np.where(STEPS < 130, 0.1 + STEPS / 2000, 0.95)
    pd.DataFrame({"step": STEPS, "test_accuracy": late}).to_csv(jump / "late.csv", index=False)
    loss = root / "wandb-ui-export-min-max"
    loss.mkdir()
    table = {"Step": STEPS, "a - train/loss": 2.0 - rising(0.7), "a - train/loss__MIN": 2.0 - rising(0.7)}
    pd.DataFrame(table).to_csv(loss / "wandb_export.csv", index=False)
    return root


@pytest.fixture(scope="module")
def rows(root: Path) -> pd.DataFrame:
    folders = [path.name for path in sorted(root.iterdir())]
    parts = [work(Task(name, {"root": str(root), "folder": name, "seed": 0})) for name in folders]
    return pd.concat(parts, ignore_index=True)


def test_every_run_is_scored_or_refused_for_a_reason(rows: pd.DataFrame) -> None:
    own = rows[rows["folder"] == "tinyzero-cognitive-countdown"]
    # Runs of two files that share a name stay two runs.
    assert set(own["run"]) == {"llama_results/base_ppo", "llama_results/stuck", "qwen_results/base_ppo"}
    skipped = own[own["method"] == SKIPPED]
    assert set(skipped["run"]) == {"llama_results/stuck"}
    assert skipped["reason"].str.startswith("flat").all()
    summary = summarise(rows).set_index(["folder", "fitted"])
    half = summary.loc[("tinyzero-cognitive-countdown", "50 %")]
    assert (half["runs"], half["scored"], half["refused"]) == (3, 2, "1 flat")
    later = own[(own["method"] == "rlforecast") & (own["cut"] == "50 %")]
    assert later.groupby("run")["compute"].apply(list).map(lambda x: x == list(STEPS[STEPS > 125])).all()


def test_a_folder_without_an_outcome_is_listed(rows: pd.DataFrame) -> None:
    own = rows[rows["folder"] == "wandb-ui-export-min-max"]
    assert own["method"].tolist() == [NO_OUTCOME]
    assert "1 sources, no column is an outcome" in markdown(rows)


def test_a_late_jump_is_named_among_the_failures(rows: pd.DataFrame) -> None:
    failed = failures(rows).set_index(["folder", "cut"])
    jump = failed.loc[("grokking-late-jump-and-collapse", "50 %")]
    assert jump["run"] == "late"
    assert jump["coverage_95"] < 0.5
    assert jump["bias"] < -0.3
    assert "grokking-late-jump-and-collapse, fitted 50 %: 1 of 1 scored runs: late (" in markdown(rows)
    assert "tinyzero-cognitive-countdown" not in failed.index.get_level_values("folder")


def test_monotone_logs_are_pooled_and_checked(rows: pd.DataFrame) -> None:
    lines = pooled(rows).set_index(["weight", "fitted"])
    assert (lines["scored"] == 2).all()  # neither the jump nor the refused run
    assert lines.loc[("run", "both"), "coverage_95"] > 0.9
    text = markdown(rows)
    assert text.count("holds (") + text.count("does not hold (") == 6
    assert figure(rows).axes


def test_runs_weigh_the_same_however_often_they_were_evaluated() -> None:
    def run(name: str, points: int, error: float) -> pd.DataFrame:
        quantiles = dict.fromkeys(("q025", "q05", "q10", "q25"), 0.3) | dict.fromkeys(("q75", "q90"), 0.5)
        ours = {"q50": 0.4, "q95": 0.5, "q975": 0.5, "error": error, "crps": error, **quantiles}
        grid = dict.fromkeys(ours, np.nan) | {"error": 0.1, "crps": 0.1}
        both = [ours | {"method": "rlforecast"}, grid | {"method": "least_squares"}]
        parts = [pd.DataFrame(both).assign(compute=float(k)) for k in range(points)]
        shared = {"run": name, "cut": "50 %", "observed": 0.4 - error, "log_score": 0.0}
        return pd.concat(parts).assign(**shared)

    table = pd.concat([run("often", 9, 0.0), run("seldom", 1, 0.2)], ignore_index=True)
    assert scores(table)["crps"] == pytest.approx(0.02)
    assert scores(table)["crps_ratio"] == pytest.approx(0.2)
    assert scores(table)["coverage_95"] == pytest.approx(0.9)
    equal = scores_by_run(table)
    assert equal["crps"] == pytest.approx(0.1)
    assert equal["crps_ratio"] == pytest.approx(1.0)
    assert equal["coverage_95"] == pytest.approx(0.5)
    assert equal["rmse"] == pytest.approx(np.sqrt(0.02))


@pytest.mark.parametrize("scale", [(-3.0, 3.0), (0.0, 100.0), (100.0, 0.0)])
def test_scores_do_not_depend_on_the_scale(scale: tuple[float, float]) -> None:
    from forecast.outlook.backtest import backtest
    from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

    def runs(metric: Metric) -> Runs:
        table = pd.DataFrame(
            {"run": "a", "compute": STEPS[1:], "value": metric.from_fraction(rising(0.7)[1:])}
        )
        return Runs(table, metric, ComputeAxis("steps"), {"a": Floor(metric.from_fraction(0.2))})

    plain, other = (
        scores(backtest_rows(backtest(runs(metric), fractions=(0.5,), workers=1)))
        for metric in (Metric("acc"), Metric("acc", scale=scale))
    )
    if scale[0] > scale[1]:
        other["bias"] = -other["bias"]
    assert other == pytest.approx(plain, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        ("flat: no measurable rise (0.1 at the start, 0.1 at the end)", "flat"),
        ("only 2 evaluations in the fitted range, at least 3 are needed", "too few evaluations"),
        ("no evaluation before the cut", "no evaluation before the cut"),
    ],
)
def test_reasons_are_short(reason: str, short: str) -> None:
    assert short_reason(reason) == short


def test_a_bar_says_whether_it_holds() -> None:
    assert bar("ratio", 0.85, most=0.85) == "- ratio <= 0.85: holds (0.850)"
    assert "does not hold (0.900)" in bar("share", 0.9, least=0.92)
    assert "does not hold (-)" in bar("ratio", float("nan"), most=0.85)


def test_missing_folders_are_named(root: Path, tmp_path: Path, command: Command) -> None:
    answer = command("study", "public-logs", root, "-o", tmp_path / "out")
    assert answer.code == 2
    assert "logs are missing, found no curriculum-phases-csv-jsonl-console/metrics.jsonl, " in answer.last
    assert "tinyzero" not in answer.last
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_monotone_logs_are_forecast_as_asked() -> None:
    if not COLLECTION.is_dir():
        pytest.skip("the collection of real logs is not on this machine")
    check_root(COLLECTION)
    parts = [
        work(Task(log.folder, {"root": str(COLLECTION), "folder": log.folder, "seed": 0}))
        for log in LOGS
        if log.monotone
    ]
    lines = pooled(pd.concat(parts, ignore_index=True)).set_index(["weight", "fitted"]).loc["evaluation"]
    assert (lines["runs"] == 28).all()
    assert (lines["crps_ratio"] <= 0.85).all()
    assert (lines["coverage_95"] >= 0.92).all()
