"""Sample, check, try once more: without a sampler."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr

from forecast.inference import sampling
from forecast.inference.diagnostics import Check
from forecast.inference.hierarchical import EFFORT, ESCALATED
from forecast.inference.sampling import sample_checked


@pytest.mark.parametrize(
    ("outcomes", "used"),
    [
        ([True], EFFORT),
        ([False, True], ESCALATED),
        ([None, True], ESCALATED),
        ([False, False], ESCALATED),
    ],
)
def test_a_failed_check_is_tried_once_more_with_more_care(
    monkeypatch: pytest.MonkeyPatch, hand_fit: Any, outcomes: list[bool | None], used: object
) -> None:
    asked: list[dict[str, Any]] = []
    lines: list[tuple[str, int, int]] = []

    def sample(*args: Any, progress: Any, **kwargs: Any) -> xr.DataTree:
        asked.append(kwargs)
        progress(5, 10, 0)
        return xr.DataTree()

    def check(tree: xr.DataTree) -> list[Check]:
        return [Check("R-hat", outcomes[len(asked) - 1], None, None, "")]

    monkeypatch.setattr(sampling, "compile_model", lambda runs, recipes: None)
    monkeypatch.setattr(sampling, "sample", sample)
    monkeypatch.setattr(sampling, "check_sampling", check)
    result = sample_checked(
        hand_fit.observations, None, (), seed=7, stage="sampling", report=lambda *line: lines.append(line)
    )
    assert len(asked) == len(outcomes)
    assert result.effort == used
    assert result.checks[0].passed is outcomes[-1]
    assert len({each["seed"] for each in asked}) == len(asked)
    assert lines[0][1:] == (0, 0)
    assert [line[0].startswith("sampling") for line in lines[1:]] == [True] * len(asked)
    assert ESCALATED.target_accept > EFFORT.target_accept
    assert ESCALATED.draws > EFFORT.draws
