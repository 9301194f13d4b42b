"""A commented ``runs.toml`` to start from."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

from forecast.errors import InputError, printable
from forecast.runs import axes
from forecast.runs.inspection import CandidateY, Inspection, SourceView, declared

_SEED = re.compile(r"[_\-/]*(?:seed|s)[_\-]?(\d{1,6})$", re.IGNORECASE)


_WHOLE_STEP = re.compile(r"(step_time|time_per_step|iter_time|time(_s)?/(step|total)$)")
_EVALUATION = re.compile(r"(test|eval|valid)")


def starting_spec(inspection: Inspection, folder: str | Path | None = None) -> str:
    """Write a ``runs.toml`` that `read_runs` can read, with the guesses marked for a person to check.

    Parameters
    ----------
    inspection : Inspection
        From `inspect_paths`.
    folder : path, optional
        Folder the spec will lie in; paths below it are written relative to it, others as absolute paths.

    Raises
    ------
    InputError
        If no source can be read by any candidate.
    """
    readable = [s for s in inspection.sources if s.runs and s.format != "run table"]
    if not readable:
        problems = [s.problem for s in inspection.sources if s.problem]
        raise InputError(
            "no starting spec can be written",
            found=problems[0] if problems else "run tables only, which need none",
        )
    metric = Counter(s.metric for s in readable).most_common(1)[0][0]
    unit = Counter(s.unit for s in readable if s.metric == metric).most_common(1)[0][0]
    mine = [s for s in readable if s.metric == metric and s.unit == unit]
    others = [s for s in inspection.sources if s not in mine]
    lines = ["# Starting point written by `rlforecast inspect`. Everything here was guessed: check it.", ""]
    lines += _metric_section(mine) + _compute_section(mine, str(unit))
    for source in mine:
        lines += _run_section(source, Path(folder) if folder is not None else None)
    if others:
        lines += ["", "# Left out:"]
        lines += [f"#   {s.source}: {s.problem or 'other metric or compute unit'}" for s in others]
    return "\n".join(lines) + "\n"


def _metric_section(mine: list[SourceView]) -> list[str]:
    parts = [y for s in mine for y in s.y if y.name == s.metric]
    chosen = parts[0]
    low, high = min(y.low for y in parts), max(y.high for y in parts)
    scale = chosen.scale if all(y.scale == chosen.scale for y in parts) else None
    same = CandidateY(chosen.name, chosen.kind, chosen.split, scale, 0, low, high, 0.0, 0.0, chosen.why_not)
    if {y.scale for y in parts} == {(0.0, 1.0), (0.0, 100.0)}:
        same.scale = (0.0, 100.0)
    section = declared(same)
    others = sorted({y.name for s in mine for y in s.y} - {chosen.name})
    lines = ["[metric]", f"column = {_toml(section['column'])}"]
    if others:
        lines.append(f"# other candidates: {', '.join(others[:12])}")
    if chosen.why_not:
        lines.append(f"# CAUTION: {chosen.why_not}; a forecast of it is no forecast of a held-out pass rate")
    lines += [f"kind = {_toml(section['kind'])}", f"split = {_toml(section['split'])}"]
    lines += [
        f"scale = [{section['scale'][0]:g}, {section['scale'][1]:g}]   # logged values that mean 0 and 1"
    ]
    strata = {s.stratum for s in mine} - {None}
    lines += [f"stratum = {_toml(str(s))}" for s in strata]
    wide = sorted({c for s in mine for c in s.wide})
    lines += [f"wide = {json.dumps(wide)}   # one column per run"] if wide else []
    return [
        *lines,
        "# prompts = 1000            # size of one evaluation: gives its binomial noise",
        "# samples_per_prompt = 16",
        "",
    ]


def _compute_section(mine: list[SourceView], unit: str) -> list[str]:
    lines = ["[compute]"]
    columns = {x.name for s in mine for x in s.x if x.unit == unit and x.nature in ("cumulative", "resets")}
    if unit == "steps":
        steps = {s.step for s in mine}
        column = steps.pop() if len(steps) == 1 else None
        column = axes.RECORD if steps == set() and column is None else column
        lines += [f"column = {_toml(column)}"] if column else []
        lines += ['unit = "steps"', "# Steps are no compute: two recipes can differ in cost per step."]
    else:
        lines += [f"column = {_toml(min(columns))}", f"unit = {_toml(unit)}"]
    costs = sorted({x.name for s in mine for x in s.x if x.nature == "per step"})
    if costs:
        whole = [name for name in costs if _WHOLE_STEP.search(name)]
        parts = whole[:1] or [name for name in costs if not _EVALUATION.search(name)]
        lines += [
            "# For GPU-hours, put these lines in place of those above (seconds per step x GPUs / 3600):",
            f"# column = {json.dumps(parts)}"
            + ("" if whole else "   # the parts of a step; leave out what is no training"),
            "# cumulate = true",
            f"# times = {1 / 3600:.6g}   # for one GPU",
            '# unit = "gpu_hours"',
        ]
    return [
        *lines,
        "# price_per_unit = 2.5",
        "",
        "# What the forecast takes for granted; `budget` and `report` list what a plan changes.",
        "# [domain]",
        "# context_length = 8192",
        '# verifier = "math-verify 0.8"',
        "# epochs = 1",
        "# prompts_per_batch = 512",
        "# rollouts_per_prompt = 16",
        "",
    ]


def _run_section(source: SourceView, folder: Path | None) -> list[str]:
    lines = ["[[run]]", f"path = {_toml(_path(source.source, folder))}"]
    if source.split_by:
        lines += [
            f"split_by = {json.dumps(source.split_by)}",
            f"# runs: {', '.join(r.name for r in source.runs[:8])}"
            + (f" and {len(source.runs) - 8} more" if len(source.runs) > 8 else ""),
        ]
    elif not source.wide:
        seed = _SEED.search(source.name)
        recipe = source.name[: seed.start()] if seed and seed.start() else source.name
        lines += [f"name = {_toml(source.name)}", f"recipe = {_toml(recipe)}"]
        lines += [f"seed = {int(seed[1])}"] if seed and seed.start() else []
    lines += ['# model = "..."   # where base models differ: such runs are not pooled']
    lines += [f"# {warning}" for warning in source.warnings if warning.startswith("restarts")]
    return [*lines, ""]


def _path(source: str, folder: Path | None) -> str:
    if printable(source) != source:
        raise InputError(
            "a runs.toml cannot hold a file name that is no UTF-8", where=source, fix="rename the file"
        )
    if folder is None:
        return source
    relative = os.path.relpath(source, folder)
    return relative if not relative.startswith("..") else str(Path(source).absolute())


def _toml(text: str) -> str:
    # JSON strings are TOML basic strings, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
