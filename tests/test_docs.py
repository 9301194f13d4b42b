"""Is every example of docs/logs.md read as it says?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forecast.runs.read import read_runs
from forecast.runs.spec import ComputeSpec, MetricSpec, RunSpec

PAGE = (Path(__file__).parents[1] / "docs" / "logs.md").read_text()
EXAMPLES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
OPTIONS: dict[str, dict[str, Any]] = {
    "long.csv": {"run": "series"},
    "wide.csv": {"wide": True},
    "prompts.json": {"stratum": "prompt"},
    "trl.log": {"compute": "record", "compute_unit": "steps"},
    "free.log": {"scale": (0, 100)},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_read(tmp_path: Path, name: str) -> None:
    for other in ("run.jsonl", name):
        (tmp_path / other).write_text(EXAMPLES[other])
    runs = read_runs(tmp_path / name, **OPTIONS.get(name, {}))
    rows = runs.overall()
    assert len(rows) in (2, 3, 6)
    assert rows["value"].is_monotonic_increasing or name == "wide.csv"
    assert runs.receipts[0].rows_kept >= len(rows)


def test_a_step_0_evaluation_is_the_floor(tmp_path: Path) -> None:
    (tmp_path / "verl.log").write_text(EXAMPLES["verl.log"])
    assert read_runs(tmp_path / "verl.log").floors["verl"].value == 0.25


@pytest.mark.parametrize(
    ("section", "model"), [("[metric]", MetricSpec), ("[compute]", ComputeSpec), ("[[run]]", RunSpec)]
)
def test_the_reference_lists_every_key(section: str, model: Any) -> None:
    part = PAGE.split(f"### `{section}`")[1].split("\n#")[0]
    first_cells = "\n".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(model.model_fields)
