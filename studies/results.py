"""What a study leaves behind: a table, a figure and a text, each of which says how it was made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecast.errors import InputError
from forecast.files import replacing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ENDINGS = (".parquet", ".png", ".md")
_DPI = 150


def parts_folder(folder: str | Path, name: str) -> Path:
    """Return where the finished tasks of study `name` are kept until its results are written."""
    return Path(folder) / f"{name}.parts"


def check_results(folder: str | Path, name: str, *, overwrite: bool = False) -> None:
    """Fail before the work if the results of study `name` cannot be written into `folder`.

    Raises
    ------
    InputError
        If `folder` is a file, or holds results of this study that may not be replaced.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError("output folder is a file", where=folder, fix="choose another -o")
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise InputError("cannot write there", where=place, fix="choose another -o")
    there = [path for path in _paths(folder, name) if path.exists()]
    if there and not overwrite:
        raise InputError(
            "exists",
            where=there[0],
            fix="overwrite it (--overwrite, overwrite=True) or choose another -o",
        )


def write_results(
    folder: str | Path,
    name: str,
    table: pd.DataFrame,
    figure: Figure,
    markdown: str,
    settings: Mapping[str, Any],
    *,
    title: str,
    command: str,
    seed: int,
    packages: Sequence[str] | None = None,
    data_sha256: str | None = None,
) -> list[Path]:
    """Write ``NAME.parquet``, ``NAME.png`` and ``NAME.md``, then delete what was kept of the study's tasks.

    The files hold no dates: the same study on the same versions gives the same bytes.

    Parameters
    ----------
    folder : path
        Made if missing.
    name : str
        Of the study.
    table : pandas.DataFrame
        Its Parquet file carries all that follows as JSON under ``rlforecast`` in the schema's metadata; see
        `read_provenance`.
    figure : matplotlib.figure.Figure
    markdown : str
        The table for people, and what is said about it.
    settings : mapping
        What the results depend on, as JSON types.
    title : str
        What the results are, in half a line.
    command : str
        What makes them again.
    seed : int
    packages : sequence of str, optional
        Packages whose versions are noted. Default: as `studies.executor.run_tasks`.
    data_sha256 : str, optional
        Hash of the data that went in.

    Returns
    -------
    list of Path

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from studies.execution.manifest import remove
    from studies.execution.tasks import PACKAGES, package_versions

    versions = package_versions(tuple(packages or PACKAGES))
    provenance = {
        "study": name,
        "title": title,
        "command": command,
        "seed": seed,
        "settings": dict(settings),
        "versions": versions,
        "data_sha256": data_sha256,
    }
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    metadata = (arrow.schema.metadata or {}) | {b"rlforecast": json.dumps(provenance).encode()}
    heading = (
        f"{title}. Command: `{command}`, seed {seed}, {', '.join(f'{n} {v}' for n, v in versions.items())}."
    )
    paths = _paths(Path(folder), name)
    # All are whole before the first appears; they are renamed last to first.
    with replacing(paths[0]) as data, replacing(paths[1]) as image, replacing(paths[2]) as text:
        pq.write_table(arrow.replace_schema_metadata(metadata), data)
        figure.savefig(image, format="png", dpi=_DPI, metadata={"Software": None})
        text.write_text(f"{heading}\n\n{markdown.strip()}\n", encoding="utf-8")
    # Another process may have taken the study up meanwhile: it cleans up after itself.
    with suppress(InputError):
        remove(parts_folder(folder, name))
    return paths


def read_provenance(path: str | Path) -> dict[str, Any]:
    """Return what a study's Parquet file says about how it was made.

    Raises
    ------
    InputError
        If it is no such file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return json.loads((pq.read_schema(path).metadata or {})[b"rlforecast"])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise InputError("not the table of a study", where=path, found=error) from error


def _paths(folder: Path, name: str) -> list[Path]:
    return [folder / f"{name}{ending}" for ending in _ENDINGS]
