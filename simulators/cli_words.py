"""Names and settings as they are typed: ``KEY=VALUE,...``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from forecast.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def pairs(texts: Sequence[str], where: str) -> dict[str, str]:
    """Settings of texts ``KEY=VALUE``.

    Raises
    ------
    InputError
        If one is no setting, or set twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and name):
            raise InputError("is no setting", where=where, found=repr(text), expected="NAME=VALUE")
        if name in found:
            raise InputError("is set twice", where=f"{where} {name}", found=f"{found[name]} and {value}")
        found[name] = value
    return found


def check_name(name: str, others: Iterable[str], text: str, expected: str) -> None:
    """Refuse a recipe's name that cannot be a file's, or that another recipe has.

    Raises
    ------
    InputError
        Says what `text` was found and what was `expected`.
    """
    if not _NAME.fullmatch(name):
        raise InputError("is no recipe", where="--recipe", found=repr(text), expected=expected)
    # File names are made of these, and some disks do not tell a from A.
    if name.lower() in (known.lower() for known in others):
        raise InputError("two recipes of one name", where="--recipe", found=name)
