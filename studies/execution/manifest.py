"""What has been done of a study: a folder with one Parquet file per finished task.

A file appears under its final name only when it is whole, so a study may be killed at any moment. ``manifest.json``
says what the files belong to; ``.lock`` keeps a second process out and is let go by the system when its holder dies.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from forecast.errors import InputError
from forecast.files import LOCK, locked, replacing
from studies.execution.errors import TaskFailed
from studies.execution.tasks import KEY_COLUMN, Outcome, Task, canonical, differences

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 1
_NAME = "manifest.json"
_OURS = ("*.parquet", "*.error.txt", ".*.tmp")


class Manifest:
    """The finished tasks of one study; to be used while the folder is `locked`.

    Parameters
    ----------
    folder : path
    identity : mapping
        ``study``, ``settings`` and ``versions``: parts written under another identity are not mixed with these.
    tasks : sequence of Task
    overwrite : bool
        Delete such parts instead of refusing them.

    Attributes
    ----------
    tables : dict of str to pyarrow.Table
        By key, for those of `tasks` that have finished. A part that cannot be read counts as not done.

    Raises
    ------
    InputError
        If the folder holds parts of another study, or of this one with other settings, versions or parameters.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], tasks: Sequence[Task], *, overwrite: bool = False
    ) -> None:
        self.folder = folder
        self._fingerprint = hashlib.sha256(canonical(identity).encode()).hexdigest()
        self._document = {
            "format": _FORMAT,
            "fingerprint": self._fingerprint,
            **json.loads(canonical(identity)),
        }
        self._schema = pa.schema([])
        self.tables: dict[str, pa.Table] = {}
        if not (folder / _NAME).exists() and any(folder.glob("*.parquet")):
            # Somebody else's files, which overwriting must not delete.
            raise InputError(
                "not a folder of finished tasks",
                where=folder,
                found=f"no {_NAME}",
                fix="choose another -o",
            )
        _delete(folder, ".*.tmp", "*.error.txt")
        try:
            known = self._check_identity()
            self._load(tasks)
        except InputError:
            if not overwrite:
                raise
            # Parts go first: killed in between, what is left is still one study.
            self.tables.clear()
            _delete(folder, *_OURS)
            known = False
        if not known:
            with replacing(folder / _NAME) as temporary:
                temporary.write_text(json.dumps(self._document, indent=2) + "\n", encoding="utf-8")

    def _check_identity(self) -> bool:
        """Whether the folder is of this study; False if it is new."""
        path = self.folder / _NAME
        if not path.exists():
            return False
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            then, now = differences(_flat(saved), _flat(self._document))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InputError("damaged", where=path, found=error, fix=_FIX) from error
        if canonical(saved) != canonical(self._document):
            raise InputError(
                "an unfinished study with other settings or versions is here",
                where=self.folder,
                found=then or "another fingerprint",
                expected=now or self._fingerprint,
                fix=_FIX,
            )
        return True

    def _load(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            path = self._path(task)
            try:
                table = pq.read_table(path, page_checksum_verification=True)
                about = json.loads(table.schema.metadata[b"rlforecast"])
                parameters = about["parameters"] if about["fingerprint"] == self._fingerprint else None
            except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
                continue
            if about["task"] != task.key or parameters is None:
                continue
            if canonical(parameters) != canonical(task.parameters):
                then, now = differences(parameters, task.parameters)
                raise InputError(
                    f"task {task.key} was done with other parameters",
                    where=self.folder,
                    found=then,
                    expected=now,
                    fix=_FIX,
                )
            table = table.replace_schema_metadata(None)
            self._schema = self._joined(table)
            self.tables[task.key] = table

    def keep(self, outcome: Outcome) -> None:
        """Write the result of a task.

        Raises
        ------
        TaskFailed
            If the task raised, or gives columns that cannot stand below those of the others.
        InputError
            If the folder cannot be written to.
        """
        task, table = outcome.task, outcome.table
        if table is None:
            path = self._path(task).with_suffix(".error.txt")
            with replacing(path) as temporary:
                temporary.write_text(outcome.traceback, encoding="utf-8", errors="backslashreplace")
            raise TaskFailed(
                f"task {task.key} failed: {outcome.error.rstrip('.')}. Its traceback is in {path}; finished tasks are kept"
            )
        about = {"task": task.key, "parameters": task.parameters, "fingerprint": self._fingerprint}
        try:
            schema = self._joined(table)
        except pa.ArrowException as error:
            raise TaskFailed(
                f"task {task.key} gives other types of columns than the tasks before: {error}"
            ) from error
        with replacing(self._path(task)) as temporary:
            pq.write_table(
                table.replace_schema_metadata({"rlforecast": canonical(about)}),
                temporary,
                write_page_checksum=True,
            )
        self._schema = schema
        self.tables[task.key] = table

    def _joined(self, table: pa.Table) -> pa.Schema:
        return pa.unify_schemas([self._schema, table.schema], promote_options="permissive")

    def result(self, tasks: Sequence[Task]) -> pd.DataFrame:
        """Return the rows of all tasks in the order of `tasks`, whatever order they finished in."""
        parts = [pa.table({KEY_COLUMN: pa.array([], pa.string())})]
        for task in tasks:
            table = self.tables[task.key]
            parts.append(table.add_column(0, KEY_COLUMN, pa.array([task.key] * len(table), pa.string())))
        joined = pa.concat_tables(parts, promote_options="permissive")
        schema = pa.schema(
            [
                field.with_type(pa.float64()) if pa.types.is_null(field.type) else field
                for field in joined.schema
            ]
        )
        return joined.cast(schema).to_pandas()

    def _path(self, task: Task) -> Path:
        # A key may be long, hold a slash, or differ from another in case alone.
        readable = re.sub(r"[^\w.=+-]+", "_", task.key, flags=re.ASCII).lstrip(".")[:80]
        return self.folder / f"{readable}-{hashlib.sha256(task.key.encode()).hexdigest()[:8]}.parquet"


_FIX = "use the same settings to go on, choose another -o, or start over (--overwrite, overwrite=True)"


def remove(folder: Path) -> None:
    """Delete the parts of a study whose results have been written; files of others stay.

    Raises
    ------
    InputError
        If another process works on it.
    """
    if not folder.is_dir():
        return
    with locked(folder, "this study"):
        _delete(folder, *_OURS, _NAME, LOCK)
        with suppress(OSError):
            folder.rmdir()


def _delete(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: identity[name] for name in ("format", "study")}
    return kept | dict(identity["settings"]) | dict(identity["versions"])
