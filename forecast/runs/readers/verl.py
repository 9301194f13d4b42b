"""Console lines of verl: ``step:12 - critic/score/mean:0.5 - ...`` and its validation dictionaries."""

from __future__ import annotations

import re
from typing import Any

from forecast.runs.readers.literals import parse_dict

_LINE = re.compile(r"^[\s\"']*(?:[\w.:\[\]() -]{0,60}\s)?step:(\d+) - (?=\S+:)")
_VALUE = re.compile(r"(?:[\w.]+\()?([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf))\b")
_VALIDATION = re.compile(r"^[\s\"'(]*(Initial|Final) validation metrics:\s*(?=\{|\S*$)", re.IGNORECASE)
_TALL = 400


def parse_step_line(line: str) -> dict[str, Any] | None:
    """Return the metrics of one ``step:N - key:value - ...`` line, or None if it is none."""
    found = _LINE.match(line)
    if not found:
        return None
    record: dict[str, Any] = {"step": int(found[1])}
    for pair in line[found.end() :].split(" - "):
        # A key may hold colons and brackets ("critic/lr(1e-4)"); the last colon ends it.
        key, _, text = pair.rpartition(":")
        if not key:
            continue
        try:
            record[key.strip()] = float(text)
        except ValueError:
            value = _VALUE.match(text.strip())
            record[key.strip()] = float(value[1]) if value else text.strip()
    return record if len(record) > 1 else None


class Validation:
    """Collector of ``Initial|Final validation metrics: {...}``, which pprint may wrap over several lines."""

    def __init__(self) -> None:
        """Start outside a dictionary."""
        self._kind = ""
        self._text: list[str] = []

    @property
    def open(self) -> bool:
        """Whether a dictionary has begun but not ended."""
        return bool(self._kind)

    def feed(self, line: str) -> tuple[str, dict[str, Any]] | None:
        """Take one line; return ("initial" or "final", metrics) when a dictionary is complete."""
        if not self._kind:
            found = _VALIDATION.search(line)
            if not found:
                return None
            self._kind, line = found[1].lower(), line[found.end() :]
            self._text = [line.rstrip().rstrip("\"')")] if "}" not in line else [line]
        else:
            # pprint breaks a long string into quoted pieces.
            self._text.append(line.strip().strip("\"')"))
        text = "".join(self._text)
        if "}" in text:
            kind, self._kind = self._kind, ""
            record = parse_dict(text[text.find("{") : text.rfind("}") + 1])
            return (kind, record) if record else None
        if len(self._text) > _TALL:
            self._kind = ""
        return None


def align_keys(record: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Name validation metrics as the step lines do: old versions print ``val/`` there only."""
    return {f"val/{k}" if k not in known and f"val/{k}" in known else k: v for k, v in record.items()}
