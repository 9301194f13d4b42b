"""TensorBoard event files: every record checked, scalars by step, launches told apart."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME, RawLog
from forecast.runs.readers.naming import run_name
from forecast.runs.receipt import Receipt

STEP = "step"
_FIRST_RECORD = b"brain.Event:"
_BAD = "event record with a wrong checksum"
_CUT = "event record cut off"
_REPEATED = "scalar logged again at the same step (the last one is kept)"


def is_event_file(head: bytes, name: str = "") -> bool:
    """Whether a file that begins with `head` holds TensorBoard events."""
    return _FIRST_RECORD in head[:64] or (b"\x00" in head[:12] and "tfevents" in name)


class _Tag(NamedTuple):
    """What was logged under one tag, in file order; ``row`` is the record's number in the file."""

    step: array[int]
    wall: array[float]
    value: array[float]
    row: array[int]


@dataclass
class _Scalars:
    """Scalars of one event file."""

    path: Path
    tags: dict[str, _Tag] = field(default_factory=dict)
    good: int = 0
    bad: int = 0
    cut: int = 0
    unread: int = 0

    @property
    def steps(self) -> np.ndarray:
        """Distinct steps, ascending."""
        return np.unique(np.concatenate([np.asarray(tag.step) for tag in self.tags.values()]))

    @property
    def start(self) -> float:
        """Wall time of the first scalar."""
        return min((tag.wall[0] for tag in self.tags.values()), default=0.0)

    @property
    def stamp(self) -> str:
        """Creation time in the file's name, or the name."""
        parts = self.path.name.partition("tfevents.")[2].split(".")
        return parts[0] if parts[0].isdigit() else self.path.name

    def starts_anew(self, before: _Scalars) -> bool:
        """Whether this file begins training again instead of going on where `before` was."""
        steps, earlier = self.steps, before.steps
        spacing = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0
        return bool(steps[0] <= max(spacing, earlier[0]) and steps[0] <= earlier[-1])


def read_events(paths: Sequence[Path], source: Path) -> list[RawLog]:
    """Read the event files of one folder (or one file) as one run per launch.

    A file that goes on where an earlier one stopped, or was resumed from a checkpoint before that, belongs to
    the same run (`LAUNCH` tells its rows apart); a file that starts training again is a run of its own; a
    file with other tags, written at the same time, is another part of the same launch.

    Raises
    ------
    InputError
        If there is no scalar in any of them.
    """
    files = [_read_file(path) for path in paths]
    full = sorted((f for f in files if f.tags), key=lambda f: f.start)
    if not full:
        records = sum(f.good for f in files)
        raise InputError(
            "no scalars in TensorBoard events",
            where=source,
            found=f"{records} sound records and {sum(f.bad + f.cut for f in files)} damaged ones",
            fix="give the folder that holds the scalars",
        )
    groups: list[list[_Scalars]] = []
    for file in full:
        kin = next((g for g in reversed(groups) if not any(set(f.tags) & set(file.tags) for f in g)), None)
        if kin is None and groups and not file.starts_anew(groups[-1][-1]):
            kin = groups[-1]
        if kin is None:
            groups.append([file])
        else:
            kin.append(file)
    logs = [_run(group, source, alone=len(groups) == 1) for group in groups]
    empty = [f for f in files if not f.tags]
    if empty:
        names = ", ".join(f.path.name for f in empty[:5])
        logs[0].receipt.note(f"{len(empty)} event files without scalars skipped: {names}")
    if len(groups) > 1:
        logs[0].receipt.note(
            f"{len(groups)} launches in one TensorBoard folder, each starting again, read as separate runs"
        )
    return logs


def _read_file(path: Path) -> _Scalars:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    found = _Scalars(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror or str(error)) from error
    at, size, number = 0, len(data), 0
    while at < size:
        number += 1
        header = data[at : at + 12]
        if len(header) < 12:
            found.cut += 1
            break
        length, check = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != check:
            # Without a sound length the next record cannot be found.
            found.bad += 1
            found.unread = size - at
            break
        body = data[at + 12 : at + 12 + length]
        tail = data[at + 12 + length : at + 16 + length]
        at += 16 + length
        if len(tail) < 4:
            found.cut += 1
        elif masked_crc32c(body) != struct.unpack("<I", tail)[0]:
            found.bad += 1
        else:
            try:
                event = Event.FromString(body)
            except Exception:  # protobuf's DecodeError has no stable home
                found.bad += 1
                continue
            found.good += 1
            _keep_scalars(event, found.tags, number)
    return found


def _keep_scalars(event: Any, tags: dict[str, _Tag], number: int) -> None:
    for item in event.summary.value:
        value = _scalar(item)
        if value is None:
            continue
        tag = tags.get(item.tag)
        if tag is None:
            tag = tags[item.tag] = _Tag(array("q"), array("d"), array("d"), array("q"))
        tag.step.append(event.step)
        tag.wall.append(event.wall_time)
        tag.value.append(value)
        tag.row.append(number)


def _scalar(item: Any) -> float | None:
    kind = item.WhichOneof("value")
    if kind == "simple_value":
        return item.simple_value
    if kind != "tensor" or item.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    from tensorboard.util.tensor_util import make_ndarray

    if any(d.size != 1 for d in item.tensor.tensor_shape.dim):
        return None
    cell = make_ndarray(item.tensor)
    return float(cell.item()) if cell.dtype.kind in "fiu" else None


def _run(group: list[_Scalars], source: Path, *, alone: bool) -> RawLog:
    receipt = Receipt(str(source), "tensorboard")
    launches = _launches(group)
    tags = [
        (launch, name, tag)
        for launch, file in zip(launches, group, strict=True)
        for name, tag in file.tags.items()
    ]
    step = np.concatenate([np.asarray(tag.step) for _, _, tag in tags])
    wall = np.concatenate([np.asarray(tag.wall) for _, _, tag in tags])
    row = np.concatenate([np.asarray(tag.row) for _, _, tag in tags])
    keys = np.stack([np.repeat([t[0] for t in tags], [len(t[2].step) for t in tags]), step], axis=1)
    distinct, position = np.unique(keys, axis=0, return_inverse=True)
    position = position.ravel()
    time = np.full(len(distinct), -np.inf)
    np.maximum.at(time, position, wall)
    first = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(first, position, row)
    data: dict[str, np.ndarray] = {STEP: distinct[:, 1]}
    repeated, at = 0, 0
    for _, name, tag in tags:
        places = position[at : at + len(tag.step)]
        at += len(tag.step)
        repeated += len(places) - len(np.unique(places))
        column = data.setdefault(name if name != STEP else "step (tag)", np.full(len(distinct), np.nan))
        column[places] = np.asarray(tag.value)  # numpy keeps the last of repeated places
    data |= {TIME: time, SOURCE_ROW: first}
    if len(set(launches)) > 1:
        data[LAUNCH] = distinct[:, 0]
        receipt.note(f"{len(set(launches))} event files joined: each goes on where an earlier one was")
    bad, cut = sum(f.bad for f in group), sum(f.cut for f in group)
    receipt.drop(_BAD, bad)
    receipt.drop(_CUT, cut)
    receipt.drop(_REPEATED, repeated)
    receipt.rows_read = len(distinct) + bad + cut + repeated
    receipt.note(f"{len(step)} scalars of {len(data) - 3} tags in {len(distinct)} rows, one per step")
    if unread := sum(f.unread for f in group):
        receipt.note(f"{unread} bytes after a damaged record length could not be read")
    path = group[0].path if len(group) == 1 else source
    folder = run_name(group[0].path.parent)
    name = folder if alone else f"{folder}/{group[0].stamp}"
    receipt.source, receipt.runs = str(path), [name]
    return RawLog(path, "tensorboard", name, pd.DataFrame(data), receipt, step=STEP)


def _launches(group: list[_Scalars]) -> list[int]:
    """Number the launches; files whose tags are all new are parts of the launch before."""
    numbers: list[int] = []
    for k, file in enumerate(group):
        part = k > 0 and not any(set(file.tags) & set(g.tags) for g in group[:k])
        numbers.append(numbers[-1] if part else (numbers[-1] + 1 if numbers else 0))
    return numbers
