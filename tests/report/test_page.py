import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import Withheld
from forecast.report.briefing import brief
from forecast.report.figures import fan_chart
from forecast.report.page import write_page
from forecast.report.svg import svg_markup
from forecast.runs.table import Metric

AT = [12_000, 16_000]


class Page(HTMLParser):
    """Collects text, tags, attributes, and complains about tags that do not match."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self, source):
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(source)
        assert not self.open, f"unclosed {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def written(tmp_path):
    def write(fit, **options):
        path = tmp_path / "report.html"
        write_page(path, fit, **({"at": AT} | options))
        source = path.read_text(encoding="utf-8")
        return source, Page(source)

    return write


def test_every_part_is_there(written, hand_fit):
    _, page = written(hand_fit, title="Two runs")
    for part in (
        "Two runs",
        "16 evaluations of 2 runs, from 1,000 to 8,000 GPU-hours",
        "the pass rate that one evaluation would show (1,000 prompts × 16 samples)",
        "90 % interval equal-tailed",
        "least squares",
        "recipes apart",
        "What these intervals do not include",
        "a jump to a new skill, a collapse",
        "do the data determine it?",
        "pass rate on held-out prompts, column “acc”",
        "sum of time_per_step × 0.0222",
        "step-0 evaluation of 2 of 2 runs",
        "R-hat, curves 1.002",
        "points.csv",
        "3 left out: no value",
        hand_fit.provenance["data_sha256"],
        "rlforecast 0.1.0",
        "rlforecast fit RUNS -o FIT --upto 8000",
        "--at 12000,16000",
    ):
        assert part in page.text
    assert page.tags.count("svg") == 1
    assert "NOT RELIABLE" not in page.text


def test_tables_say_what_predict_says(written, hand_fit):
    source, _ = written(hand_fit)
    body = source[source.index("<h3>Forecast") : source.index("<h3>What was fitted")]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", body)
    table = hand_fit.predict(AT, quantity="evaluation")
    assert len(cells) == 7 * len(table)
    for i, (_, row) in enumerate(table.iterrows()):
        assert cells[7 * i] == f"{row['compute']:,.0f}"
        assert cells[7 * i + 1] == f"{row['q50']:.3f}"
        assert cells[7 * i + 2] == f"{row['q05']:.3f} to {row['q95']:.3f}"
        assert cells[7 * i + 3] == f"{row['mean']:.3f}"
        assert cells[7 * i + 4] == f"{row['times_fitted']:.2f}"
        assert cells[7 * i + 5] == f"{row['least_squares']:.3f}"
        assert cells[7 * i + 6].startswith(f"{row['independent']:.3f}")


def test_gap_between_pooled_and_apart_is_flagged(written):
    assert "▲</td>" not in written(fit_by_hand(ceiling_sd=0.002))[0]
    assert "▲</td>" in written(fit_by_hand(ceiling_sd=0.002, independent_shift=0.05))[0]


def test_without_pooling_there_is_no_column_for_it(written):
    _, page = written(fit_by_hand(pooled=()))
    assert "recipes apart" not in page.text
    assert "none, recipes are fitted apart" in page.text


HOSTILE = "<script>alert('x')</script>--><img src=x onerror=alert(1)>&amp;"


def test_hostile_names_stay_text(written):
    runs = hand_runs([HOSTILE, "b", 'flat" onload="x'])
    _, page = written(
        fit_by_hand(runs, refused={'flat" onload="x': "flat: <b>bold</b>"}),
        title=HOSTILE,
        extra=[(HOSTILE, [HOSTILE])],
        command=HOSTILE,
    )
    assert not {"script", "img", "b"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in page.text
    assert "flat: <b>bold</b>" in page.text


def test_hostile_names_stay_text_in_decisions_too(written):
    runs = hand_runs({HOSTILE: HOSTILE, "b": "b"})
    runs = replace(runs, domain={HOSTILE: "1"})
    fit = fit_by_hand(runs)
    briefing = brief(fit, spend=[8_000], target=0.6, domain={HOSTILE: HOSTILE}, quick=True)
    _, page = written(fit, briefing=briefing)
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert f"continue {HOSTILE}" in page.text


def test_nothing_is_loaded_from_elsewhere(written, hand_fit):
    source, page = written(hand_fit)
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "data", "action", "srcset", "poster"):
            assert value.startswith("#"), (name, value)
    assert not {"link", "script", "iframe", "img", "object"} & set(page.tags)
    assert "@import" not in source
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)'\"]*)", source))


def test_failed_diagnostics_withhold_the_page_or_mark_it(written, tmp_path):
    fit = fit_by_hand(passed=False)
    with pytest.raises(Withheld):
        written(fit)
    assert list(tmp_path.iterdir()) == []
    _, page = written(fit, force=True)
    assert page.text.count("NOT RELIABLE") >= 3  # at the top and once per run
    assert "FAILED : R-hat" in page.text or "FAILED: R-hat" in page.text


def test_refused_runs_are_listed_with_the_reason(written):
    _, page = written(fit_by_hand(hand_runs(["a", "b", "c"]), refused={"c": "flat: no measurable rise"}))
    assert "1 of 3 runs was refused" in page.text
    assert "Runs without a curve" in page.text
    assert "flat: no measurable rise" in page.text


def test_caveat_of_the_metric_is_shown(written):
    _, page = written(fit_by_hand(hand_runs(metric=Metric("acc", split="train", scale=(0, 100)))))
    assert "held-out performance may be lower" in page.text
    assert "pass rate on training prompts" in page.text


def test_unidentified_ceiling_is_said(written):
    _, page = written(fit_by_hand(ceiling_sd=0.15, pooled=()))
    assert "not identified" in page.text


def test_page_is_the_same_every_time(written, hand_fit):
    assert written(hand_fit)[0] == written(hand_fit)[0]


def test_ids_of_two_figures_do_not_clash(hand_fit):
    figure = fan_chart(hand_fit, to=16_000)
    one, two = (set(re.findall(r'id="([^"]+)"', svg_markup(figure, salt))) for salt in ("one", "two"))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg_markup(figure, "two")))
    assert used <= two
    # Outlines of letters are the same in both; everything else must not be.
    assert {name for name in used & one if not name.startswith("DejaVuSans-")} == set()


def test_the_size_of_evaluations_is_said_as_declared_or_as_logged(written):
    runs = hand_runs(metric=Metric("acc"))
    _, page = written(fit_by_hand(runs))
    assert "size of an evaluation not declared" in page.text
    _, page = written(fit_by_hand(replace(runs, table=runs.table.assign(trials=4096))))
    assert "4,096 trials per evaluation" in page.text
    sizes = range(100, 100 + len(runs.table))
    _, page = written(fit_by_hand(replace(runs, table=runs.table.assign(trials=sizes))))
    assert f"100 to {sizes[-1]:,} trials per evaluation" in page.text
