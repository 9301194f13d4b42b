"""The command that writes the page: what lies where afterwards, and what does not."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import InputError
from forecast.outlook.reward import Verifier
from forecast.report.briefing import brief
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
