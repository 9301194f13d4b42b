"""The command that writes the page: what lies where afterwards, and what does not."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import InputError
from forecast.fits import Fit
from forecast.outlook.reward import Verifier
from forecast.report import briefing
from forecast.report.briefing import brief
from forecast.report.decision_content import alarms, flag_rows, score_rows
from forecast.runs.table import Metric


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fit_by_hand().save(tmp_path / "fit")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_report_writes_page_numbers_and_figures(command: Command, place: Path) -> None:
    answer = command(
        *("report", "fit", "-o", "page.html", "--quick", "--spend", "8000", "--target", ".6", "--price", "2"),
        *("--verifier", "tpr=.95/200,fpr=.02/300", "--domain", "epochs=4"),
    )
    assert answer.code == 0, answer.err
    page = (place / "page.html").read_text(encoding="utf-8")
    assert "Left out of this page" in page
    assert "The verifier errs" in page
    assert "epochs is planned as 4" in page
    told = json.loads(
        (place / "page-data" / "report.json").read_text(encoding="utf-8"), parse_constant=pytest.fail
    )
    options = pd.read_csv(place / "page-data" / "options.csv")
    assert [row["option"] for row in told["decision"]["options"]] == options["option"].tolist()
    assert {"alarms", "transitions", "backtest", "reward", "comparisons", "outside_map"} <= set(told)
    assert set(told["tables"]) == {path.stem for path in (place / "page-data").glob("*.csv")}
    np.testing.assert_allclose([row["q50"] for row in told["decision"]["options"]], options["q50"])
    for sentence in (text for part in told["sentences"] for text in (part["headline"], *part["details"])):
        assert html.escape(sentence, quote=False) in page
    assert {path.suffix for path in (place / "page-data").iterdir()} == {".json", ".csv", ".png", ".svg"}
    again = command("report", "fit", "-o", "page.html", "--quick")
    assert (again.code, "page.html: exists" in again.err) == (2, True)
    before = (place / "page-data" / "forecast.svg").read_bytes()
    other = command(
        *("report", "fit", "-o", "page.html", "--quick", "--overwrite", "--spend", "8000"),
        *("--target", ".6", "--price", "2"),
    )
    assert other.code == 0
    assert (place / "page-data" / "forecast.svg").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--pdf", "page.html"), "--pdf would replace another output"),
        (("--pdf", "page-data/x.pdf"), "--pdf would replace another output"),
        (("--level", "team"), "unknown level"),
        (("--quantity", "what"), "unknown quantity"),
        (("--stress", "nothing"), "not the result of a stress test"),
        (("--verifier", "tpr=.5,fpr=.9"), "fpr"),
        (("--spend", "1e12"), "more than 1,000 times"),
    ],
)
def test_a_wrong_report_leaves_nothing(
    command: Command, place: Path, words: tuple[str, ...], found: str
) -> None:
    before = sorted(place.iterdir())
    answer = command("report", "fit", "-o", "page.html", *words)
    assert answer.code == 2
    assert found in answer.last
    assert "Traceback" not in answer.err
    assert sorted(place.iterdir()) == before


def test_a_foreign_file_beside_the_page_is_left_alone(command: Command, place: Path) -> None:
    (place / "page-data").mkdir()
    (place / "page-data" / "mine.txt").write_text("mine")
    answer = command("report", "fit", "-o", "page.html", "--quick", "--overwrite")
    assert answer.code == 2
    assert "mine.txt" in answer.last
    assert not (place / "page.html").exists()


def test_a_verifier_corrects_no_reward() -> None:
    fit = fit_by_hand(hand_runs(metric=Metric("r", kind="reward", scale=(-1.0, 1.0))))
    with pytest.raises(InputError, match="found kind reward"):
        brief(fit, spend=[8_000], verifier=Verifier(0.9, 0.1), quick=True)


def hacked(refused: bool) -> Fit:
    """Three runs with a proxy that rises; the value of the last one falls from half of its way on."""
    runs = hand_runs(["alpha", "beta", "gamma"], compute=tuple(np.linspace(500, 8_000, 40)))
    table = runs.table.copy()
    last = (table["run"] == "gamma").to_numpy()
    table.loc[last, "value"] -= np.linspace(-0.5, 0.5, 40).clip(0) * 0.8
    signals = table[["run", "compute"]].assign(
        signal="proxy", value=np.tile(0.4 + 0.4 * np.linspace(0, 1, 40), 3)
    )
    runs = replace(runs, table=table, signals=signals)
    reasons = {"gamma": "collapsed or declining: from .6 to .3"} if refused else {}
    return fit_by_hand(runs, refused=reasons)


@pytest.mark.parametrize("refused", [False, True])
def test_a_hacked_run_is_named_also_where_it_carries_no_forecast(refused: bool) -> None:
    found = brief(hacked(refused), spend=[8_000], quick=True)
    assert list(found.honesty) == ["alpha", "beta", "gamma"]
    assert alarms(found) == ["the proxy rose while the value it stands for fell in gamma"]
    assert set(found.gaps) == {"alpha", "beta", "gamma"}


def test_quick_takes_no_hazard(command: Command, place: Path) -> None:
    answer = command("report", "fit", "-o", "page.html", "--quick", "--hazard", ".5")
    assert answer.code == 2
    assert "a hazard has no effect with --quick" in answer.last
    assert not (place / "page.html").exists()


def test_the_page_forecasts_what_is_bought(command: Command, place: Path) -> None:
    answer = command("report", "fit", "-o", "page.html", "--quick", "--at", "5000,3000")
    assert answer.code == 0, answer.err
    forecast = pd.read_csv(place / "page-data" / "forecast.csv")
    assert sorted(set(forecast["compute"])) == [3_000, 5_000]
    assert not forecast.duplicated(["name", "compute"]).any()


def test_the_last_forecast_is_scored_on_what_was_fitted() -> None:
    runs = hand_runs(compute=tuple(np.linspace(500, 16_000, 32)))
    scores, _ = briefing._scores(fit_by_hand(runs, upto=8_000, start=2_000), None)
    assert scores is not None
    # Half of the fitted compute is seen; what came after the cut was not known when the decision was made.
    assert (scores.forecasts["compute"].min(), scores.forecasts["compute"].max()) == (4_500, 8_000)


def test_methods_that_miss_runs_are_not_ranked() -> None:
    runs = hand_runs(compute=tuple(np.linspace(500, 16_000, 32)))
    scores, _ = briefing._scores(fit_by_hand(runs, upto=None), None)
    assert scores is not None
    table = scores.forecasts
    perfect = table["method"] == "power_law"
    hard = perfect & (table["run"] == "alpha")
    table = table.assign(error=table["error"].mask(perfect, 0.0), crps=table["crps"].mask(perfect, 0.0))
    found = brief(fit_by_hand(), spend=[8_000], quick=True)
    whole = score_rows(replace(found, scores=replace(scores, forecasts=table)))[1]
    assert "Smallest RMSE and CRPS: power law." in whole
    part = score_rows(replace(found, scores=replace(scores, forecasts=table[~hard])))[1]
    assert "CRPS: power law" not in part
    assert "Not ranked, as not all could be fitted: power law." in part


def flag(level: str, run: str, state: str, evaluations: int = 20) -> dict[str, object]:
    kind = "none" if state == "prior_only" else "rise"
    numbers = {"p_ahead": 0.1, "horizon": 4e4, "compute": 1e4, "evaluations": evaluations}
    return {
        "level": level,
        "run": run,
        "state": state,
        "kind": kind,
        "reason": "why",
        "precursors": "",
    } | numbers


def test_an_alarm_of_a_recipe_is_on_the_page_and_runs_that_nobody_could_read_are_not_quiet() -> None:
    found = brief(fit_by_hand(), spend=[8_000], quick=True)
    flags = [flag("run", "a0", "watch"), flag("run", "a1", "prior_only"), flag("run", "b", "prior_only", 3)]
    moved = replace(found, flags=pd.DataFrame([*flags, flag("recipe", "a", "alarm")]))
    assert alarms(moved) == ["a rise is flagged in a, its runs together"]
    rows, quiet = flag_rows(moved)
    assert [(row.name, row.flagged) for row in rows] == [("a, its runs together", True), ("a0", False)]
    assert quiet.startswith("No second move is seen in 1 of 3 runs (1 more: fewer than 8 evaluations")
    assert "within 4 times a run's compute" in quiet


def test_a_target_of_an_error_rate_is_reached_from_above(command: Command, tmp_path: Path) -> None:
    runs = hand_runs(metric=Metric("err", kind="error_rate", scale=(1.0, 0.0)))
    fit_by_hand(runs).save(tmp_path / "errors")
    answer = command(
        *("report", str(tmp_path / "errors"), "-o", str(tmp_path / "page.html")),
        *("--quick", "--spend", "8000", "--target", ".4"),
    )
    assert answer.code == 0, answer.err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "P(≤&nbsp;0.400)" in page
    assert "P(≥" not in page
    assert "better with probability" in page
    assert "higher with probability" not in page
