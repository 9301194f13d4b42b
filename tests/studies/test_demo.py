import io
import json

import numpy as np
import pandas as pd
import pytest
from fits_by_hand import fit_by_hand
from rich.console import Console

from forecast.errors import InputError, Withheld
from forecast.fits import load
from studies import demo


@pytest.fixture
def quick_fit(monkeypatch):
    """Replace sampling by draws written down."""
    asked = {}

    def quick(runs, **options):
        asked.update(options)
        return fit_by_hand(runs, upto=options["upto"], seed=options["seed"])

    monkeypatch.setattr(demo, "fit", quick)
    return asked


def run(directory, **options):
    console = Console(file=io.StringIO(), width=100)
    written = demo.run_demo(directory, console=console, **options)
    return written, console.file.getvalue()


def test_bundled_runs_are_nine_and_keep_every_point():
    table = pd.read_csv(demo.DATA)
    assert list(table.columns) == ["series", "segment", "gpu_hours", "pass_rate"]
    assert table.groupby("series")["segment"].nunique().eq(2).all()
    assert table["series"].nunique() == 11
    runs = demo.load_runs()
    assert len(runs.names) == 9
    receipt = runs.receipts[0]
    assert receipt.rows_read == len(table)
    assert receipt.rows_kept == len(runs.table)
    assert runs.metric.trials == 16_000


def test_redrawn_points_are_the_same_evaluation_within_the_reading_error():
    table = pd.read_csv(demo.DATA)
    table["run"] = table["series"].replace(demo.SAME_RUN)
    table = table[table["run"] == "ScaleRL"].sort_values("gpu_hours")
    gap = table["gpu_hours"].diff()
    # Nothing lies between "same evaluation" and "next evaluation", so the rule cannot be wrong by a little.
    assert not gap.between(60, 200).any()
    same = gap < demo.SAME_EVALUATION
    assert table["pass_rate"].diff()[same].abs().max() < 0.002
    for _, cluster in table.groupby((~same).cumsum()):
        assert cluster["series"].is_unique


def test_score_by_hand():
    table = pd.DataFrame(
        {
            "name": ["a", "a", "b"],
            "mean": [0.5, 0.5, 0.5],
            "least_squares": [0.5, 0.6, 0.51],
            "independent": [0.5, 0.57, 0.7],
            "q05": 0.4,
            "q25": 0.45,
            "q75": 0.55,
            "q95": 0.6,
            "measured": [0.5, 0.58, 0.7],
            "times_fitted": [1.1, 1.5, 2.0],
        }
    )
    table["inside_90"] = table["measured"].between(table["q05"], table["q95"])
    result = demo.score(table)
    assert (result.evaluations, result.runs, result.inside_90, result.inside_50) == (3, 2, 2, 1)
    assert result.rmse == pytest.approx(np.sqrt((0.08**2 + 0.2**2) / 3))
    assert result.rmse_least_squares == pytest.approx(np.sqrt((0.02**2 + 0.19**2) / 3))
    assert result.rmse_apart == pytest.approx(0.01 / np.sqrt(3))
    assert (result.runs_closer, result.furthest) == (0, 2.0)
    assert "2 of 3 later evaluations (67 %) lie inside their 90 % interval" in result.sentences()[0]


def test_forecast_apart_that_did_not_converge_is_said_not_scored():
    fitted = fit_by_hand(demo.load_runs(), pooled=())
    result = demo.score(demo.forecast_later(fitted))
    assert result.rmse_apart is None
    assert "not known (it did not converge) with recipes fitted apart" in result.sentences()[1]


def test_only_evaluations_that_were_not_fitted_are_scored(quick_fit):
    fitted = demo.fit(demo.load_runs(), upto=demo.UPTO, seed=0)
    table = demo.forecast_later(fitted)
    assert (table["compute"] > demo.UPTO).all()
    later = fitted.runs.table.query("compute > @demo.UPTO")
    assert sorted(zip(table["name"], table["measured"], strict=True)) == sorted(
        zip(later["run"], later["value"], strict=True)
    )


def test_demo_writes_everything_and_says_what_to_open(quick_fit, tmp_path):
    written, said = run(tmp_path / "out", seed=3)
    assert quick_fit["upto"] == 8_000
    assert quick_fit["seed"] == 3
    assert all(path.exists() for path in written)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "forecast.png", "forecast.svg", "forecast.csv", "fit", "demo.json"}
    for name in ("report.html", "forecast.png", "forecast.csv"):
        assert name in said
    result = json.loads((tmp_path / "out" / "demo.json").read_text())
    table = pd.read_csv(tmp_path / "out" / "forecast.csv")
    assert result["evaluations"] == len(table)
    assert result["inside_90"] == table["inside_90"].sum()
    assert f"{result['rmse']:.4f}" in said
    assert f"{result['rmse']:.4f}" in (tmp_path / "out" / "report.html").read_text()
    assert load(tmp_path / "out" / "fit").settings.seed == 3
    assert (tmp_path / "out" / "forecast.png").stat().st_size < 400_000


def test_existing_folder_needs_overwrite_and_must_be_a_demo(quick_fit, tmp_path):
    run(tmp_path / "out")
    with pytest.raises(InputError, match="exists"):
        run(tmp_path / "out")
    run(tmp_path / "out", overwrite=True)
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="other files"):
        run(other, overwrite=True)
    assert (other / "thesis.tex").exists()


def test_failed_diagnostics_write_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "fit", lambda runs, **_: fit_by_hand(runs, passed=False))
    with pytest.raises(Withheld):
        run(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
