"""The page in a real browser: what a static look at the HTML cannot tell."""

from __future__ import annotations

import html
import json
import re
import subprocess

import pytest
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import InputError
from forecast.report import pdf
from forecast.report.briefing import brief
from forecast.report.page import write_page

RECIPES = {
    f"{recipe}-s{seed}": recipe for recipe in ("cispo", "dapo", "grpo", "rloo", "gspo") for seed in (0, 1)
}


def browser() -> str:
    try:
        return pdf.find_browser()
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with every section, of five recipes with two seeds each."""
    runs = hand_runs(RECIPES)
    fit = fit_by_hand(runs)
    briefing = brief(fit, spend=[8_000, 32_000], target=0.6, price=2.5, domain={"epochs": "4"})
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, fit, at=[16_000, 40_000], briefing=briefing)
    return path


def chromium(*arguments: str, profile) -> subprocess.CompletedProcess:
    return subprocess.run(
        [
            browser(),
            *("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"),
            *(
                "--disable-component-update",
                "--disable-background-networking",
                "--disable-sync",
                "--no-first-run",
            ),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def measured(page, width: int, tmp_path) -> dict:
    """Lay the page out in a frame of that width and measure it there; frames may be narrower than windows."""
    frame = tmp_path / f"frame{width}.html"
    source = html.escape(page.read_text(encoding="utf-8"), quote=True)
    frame.write_text(
        f"""<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="f" style="width:{width}px;height:800px;border:0" scrolling="no" srcdoc="{source}"></iframe><pre id="out"></pre>
<script>addEventListener("load", () => {{
  const page = document.getElementById("f").contentDocument, root = page.documentElement;
  const seen = [...page.querySelectorAll("svg, img")].map((one) => one.getBoundingClientRect());
  document.getElementById("out").textContent = JSON.stringify({{
    width: root.clientWidth, scroll: root.scrollWidth, height: root.scrollHeight,
    figures: seen.filter((box) => box.width > 100 && box.height > 100).length,
    requests: page.defaultView.performance.getEntriesByType("resource").map((one) => one.name)}});
}});</script>""",
        encoding="utf-8",
    )
    dom = chromium(
        "--dump-dom", "--virtual-time-budget=10000", frame.as_uri(), profile=tmp_path / "profile"
    ).stdout
    return json.loads(html.unescape(re.search(r'<pre id="out">(.*?)</pre>', dom, re.DOTALL)[1]))


def complaints(page, tmp_path) -> tuple[list[str], list[str]]:
    """Lines of the console, and addresses asked for by the page (the browser has some of its own)."""
    log = tmp_path / "net.json"
    result = chromium(
        *("--enable-logging=stderr", "--log-level=0", f"--log-net-log={log}"),
        *("--dump-dom", page.as_uri()),
        profile=tmp_path / "profile",
    )
    said = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    asked = []
    for event in json.loads(log.read_text(encoding="utf-8"))["events"]:
        told = event.get("params", {})
        if (
            str(told.get("url", "")).startswith("http")
            and told.get("initiator", "not an origin") != "not an origin"
        ):
            asked.append(told["url"])
    return said, asked


def test_page_loads_without_complaints_or_requests(page, tmp_path):
    assert complaints(page, tmp_path) == ([], [])


def test_complaints_and_requests_would_be_seen(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://127.0.0.1:9/x.png"><script>console.error("oh"); nothing()</script>')
    said, asked = complaints(bad, tmp_path)
    assert len(said) >= 2
    assert "http://127.0.0.1:9/x.png" in asked


@pytest.mark.parametrize("width", [360, 768, 1366])
def test_page_never_scrolls_sideways(page, width, tmp_path):
    found = measured(page, width, tmp_path)
    assert found["width"] == width
    assert found["scroll"] <= width
    assert found["figures"] == 2  # fan chart; ceilings against midpoints
    assert found["requests"] == []


@pytest.mark.parametrize("paper", ["A4", "letter"])
def test_five_recipes_print_on_four_pages(page, paper, tmp_path):
    browser()
    target, sized = tmp_path / "report.pdf", tmp_path / "sized.html"
    source = page.read_text(encoding="utf-8")
    sized.write_text(
        source.replace("</head>", f"<style>@page {{ size: {paper} }}</style></head>"), encoding="utf-8"
    )
    pdf.print_pdf(sized, target)
    printed = target.read_bytes()
    assert printed.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4


def test_a_browser_that_fails_leaves_no_file(page, tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "find_browser", lambda: "/bin/false")
    with pytest.raises(InputError, match="did not print"):
        pdf.print_pdf(page, tmp_path / "report.pdf")
    assert list(tmp_path.iterdir()) == []


def test_without_a_browser_the_fix_is_named(monkeypatch):
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="apt-get install chromium"):
        pdf.find_browser()
