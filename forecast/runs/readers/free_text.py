"""Free-text console lines that carry a step: ``pass 1/4 step 49/256 lr 1.8e-06 reward 0.894``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from forecast.runs.readers.columns import metric_like

STEP = "step"
# Counters that stand in for a step on lines that have none.
_OTHER = ("epoch", "episode")
OF = " (of)"
PERCENT = " (percent)"

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf)\b"
# 1,234 and 1.2.3 and 12:30 are no numbers here: thousands are not guessed.
_END = r"(?![\w.]*\w|,\d{3}|:\d\d)"
_WORD = r"(?:(?:global|train(?:ing)?|optimizer)[ _]?)?(?:steps?|iter(?:ation)?|update)"
_UNIT = r"ms|s|sec|min|h|k|K|M|GB|MB"

_STEP_AT = re.compile(rf"(?i)(?<![\w./]){_WORD}(?:\s*[:=#]\s*|\s+|\[)\[?(\d+)(?:\s*/\s*(\d+))?(?![\w.]*\w)")
_OTHER_AT = re.compile(
    r"(?i)(?<![\w./])(epoch|episode)(?:\s*[:=#]\s*|\s+|\[)\[?(\d+)(?:\s*/\s*(\d+))?(?![\w.]*\w)"
)
_PAIR = re.compile(
    r"(?P<key>\|[\w/]+\||[A-Za-z_][\w/.@\-]*(?:\([\w\-.]*\))?|\d+[A-Za-z]\w*(?==))[\"']?"
    r"(?P<sep>\s*[=:]\s*|\s+)"
    r"(?:(?P<list>\[[^\[\]]*\])"
    rf"|(?P<value>{_NUMBER})\s?(?:/\s?(?P<of>\d+)|(?P<percent>%)|(?P<unit>{_UNIT})\b)?{_END}"
    r"|(?<==)(?P<word>[A-Za-z_][\w\-.]*))"
)
_VALUE = rf"\s*[:=]\s*(?P<value>{_NUMBER})\s?(?P<percent>%)?{_END}"
_NAME = r"(?P<key>[A-Za-z][\w /@.\-]*?)"
_NAME_AT_STEP = (
    re.compile(rf"(?i){_NAME}\s*[\[(](?:[A-Z]+ )?[(\[]?{_WORD}\s+(?P<step>\d+)[\])]*{_VALUE}"),
    re.compile(rf"(?i){_NAME}\s+(?:at|after|@)\s+{_WORD}\s+(?P<step>\d+){_VALUE}"),
)
_LABEL = re.compile(
    rf"\s*(?:[(\[][\w ]+[)\]]\s*)?(?P<key>[A-Za-z][\w /@.()\-]{{2,40}}?){_VALUE}\s*(?:$|[(|,←])"
)
_PROSE_STEP = re.compile(r"(?i)\b(total|max|num|warmup|every|per|of)[\s_]*$")
_DOCKER = re.compile(
    r"(?i)^\W*step \d+(/\d+)?\s*:\s*"
    r"(FROM|RUN|COPY|ADD|ENV|WORKDIR|ARG|CMD|ENTRYPOINT|LABEL|EXPOSE|USER|SHELL|VOLUME)\b"
)
_LOGGER = re.compile(
    r"^[\s\[|-]*(?:DEBUG|INFO|WARNING|WARN|ERROR)\b[\s\]:|-]*(?:[\w.]+(?::\w+)*\s*[-:|]+\s+)?"
)
_BEFORE = re.compile(r"(?:^|[|,;:\])])\s*([A-Za-z_]\w*) $")
_COUNTERS = ("step", "iter", "update", *_OTHER)
_SCORES = ("acc", "reward", "score", "pass", "success", "solve", "correct", "exact", "win", "f1")
_LONGEST = 4000
_COVERED = 0.4


def parse_line(line: str) -> dict[str, Any] | None:
    """Return step and metrics of one line, or None if it has no step, no metrics, or is mostly prose."""
    if len(line) > _LONGEST or not _has(line, _COUNTERS):
        return None
    line = _LOGGER.sub("", line).strip()
    name, found = STEP, _STEP_AT.search(line)
    if not found and (found := _OTHER_AT.search(line)):
        name = found[1].lower()
    if not found or _DOCKER.match(line) or _PROSE_STEP.search(line[: found.start()]):
        return None
    *_, count, total = found.groups()
    record: dict[str, Any] = {name: int(count)}
    if total:
        record[name + OF] = int(total)
    covered, rest = found.end() - found.start(), f"{line[: found.start()]} | {line[found.end() :]}"
    if at := next(filter(None, (pattern.search(line) for pattern in _NAME_AT_STEP)), None):
        record[at["key"].strip() + (PERCENT if at["percent"] else "")] = float(at["value"])
        covered, rest = at.end() - at.start(), line[at.end() :]
    for pair in _PAIR.finditer(rest):
        covered += _take(pair, rest, record)
    if len(record) == 1 + bool(total) or covered < _COVERED * len(line):
        return None
    return record


def parse_label(line: str) -> dict[str, Any] | None:
    """Return the value of a line such as ``final-answer accuracy: 79.3%``, which names no step."""
    if not (":" in line or "=" in line) or len(line) > _LONGEST or not _has(line, _SCORES):
        return None
    found = _LABEL.match(_LOGGER.sub("", line))
    if not found or not _has(found["key"], _SCORES):
        return None
    return {found["key"].strip() + (PERCENT if found["percent"] else ""): float(found["value"])}


def step_in(text: str) -> int | None:
    """Return the step that `text` names, if it does."""
    found = _STEP_AT.search(text)
    return int(found[1]) if found else None


def _has(line: str, words: tuple[str, ...]) -> bool:
    """Whether one of `words` is in `line`; far cheaper than a regular expression that ignores case."""
    line = line.lower()
    return any(word in line for word in words)


def _take(pair: re.Match[str], text: str, record: dict[str, Any]) -> int:
    """Put one ``key value`` into `record`; return how many characters it spans."""
    key, explicit = pair["key"], "=" in pair["sep"] or ":" in pair["sep"]
    width = pair.end() - pair.start()
    if pair["word"] is not None:
        record.setdefault(key, pair["word"])
        return width
    # "reward mean=0.9": the word before belongs to the name.
    before = _BEFORE.search(text[: pair.start()]) if explicit else None
    if before and not before[1].isupper():
        key, width = f"{before[1]} {key}", width + len(before[1]) + 1
    if pair["list"] is not None:
        try:
            record.setdefault(key, [float(cell) for cell in pair["list"][1:-1].split(",")])
        except ValueError:
            return 0
        return width
    key += PERCENT if pair["percent"] else f" ({pair['unit']})" if pair["unit"] else ""
    value = float(pair["value"])
    record.setdefault(key, int(value) if pair["value"].lstrip("+-").isdigit() else value)
    if pair["of"]:
        record.setdefault(key + OF, int(pair["of"]))
    return width


def belonging(shapes: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return which shapes (keys of a line) are metrics: the commonest, its kin, and those that name a metric.

    A step counted in prose ("Step 2: x = 5") or by another program shares nothing with them.
    """
    counts = Counter(shapes)
    counting = {name + of for name in (STEP, *_OTHER) for of in ("", OF)}
    named = {shape: n for shape, n in counts.items() if any(map(metric_like, set(shape) - counting))}
    pool = named or {shape: n for shape, n in counts.items() if n > 2}
    if not pool:
        return set()
    main = set(max(pool.items(), key=lambda item: item[1])[0]) - counting
    return {shape for shape in counts if shape in named or main & set(shape)}
