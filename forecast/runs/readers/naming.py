"""A name for the run that a file holds, from where it lies."""

from __future__ import annotations

import re
from pathlib import Path

from forecast.errors import printable

_CHECKPOINT = re.compile(r"(?i)[_\-.]*checkpoint[_-]?\d+$")
_GENERIC = re.compile(
    r"(?i)(^|[_\-.]+)(trainer_state|log_history|step_logs?|metrics|progress|history|console(_output)?|train(ing)?"
    r"|stdout|output|log|logs|results|wandb_history|wandb_export|data)(\.filtered)?$"
)


def run_name(path: Path) -> str:
    """Return the file's stem, or the nearest folder's name where the stem says nothing (``metrics``)."""
    path = path.absolute()
    own = path.name if path.is_dir() else path.stem
    for name in (own, *(folder.name for folder in path.parents)):
        short = _CHECKPOINT.sub("", _GENERIC.sub("", name)).strip("_-. ")
        if short:
            return printable(short)
    return printable(own)


def distinct(names: list[tuple[str, Path]], root: Path) -> list[str]:
    """Make names unique by spelling out the path below `root` where two agree."""
    plain = [name for name, _ in names]
    out = []
    for i, (name, path) in enumerate(names):
        if plain.count(name) > 1:
            name = printable(str(path.relative_to(root))) if path != root else name
        while name in out:
            name = f"{name}#{i + 1}"
        out.append(name)
    return out
