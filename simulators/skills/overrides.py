"""Settings by name and text: ``recipe.rollouts=16``, ``verifier.reward_model.members=4``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from forecast.errors import InputError


def override(settings: Any, texts: Mapping[str, str]) -> Any:
    """Replace settings.

    Parameters
    ----------
    settings : dataclass
    texts : mapping
        Name, dotted where it lies within another group, to the value as text; ``none`` unsets it, commas separate
        several numbers.

    Returns
    -------
    dataclass
        Of the same type.

    Raises
    ------
    InputError
        If there is no setting of that name, or it cannot have that value.
    """
    groups: dict[str, dict[str, str]] = {}
    changes: dict[str, Any] = {}
    hints = get_type_hints(type(settings))
    for name, text in texts.items():
        head, dot, rest = name.partition(".")
        if head not in hints:
            raise InputError("no such setting", found=head, expected=" | ".join(hints))
        if dot:
            groups.setdefault(head, {})[rest] = text
        elif _group(hints[head]) is not None and not (text == "none" and _optional(hints[head])):
            inside = " | ".join(field.name for field in fields(_group(hints[head])))
            raise InputError("names a group of settings", where=head, found=text, expected=f"{head}.{inside}")
        else:
            changes[head] = _value(head, text, hints[head])
    for head, inner in groups.items():
        group = _group(hints[head])
        if group is None:
            raise InputError("has no settings of its own", where=head, found=", ".join(inner))
        if head in changes:
            raise InputError("is unset and set", where=head, found=", ".join(inner), fix="keep one of them")
        # An optional group that is not there yet starts from its defaults.
        changes[head] = override(getattr(settings, head) or group(), inner)
    # All at once: some are checked together.
    return replace(settings, **changes)


def _group(hint: Any) -> Any:
    """Dataclass of a setting that holds others."""
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    return next((kind for kind in kinds if is_dataclass(kind)), None)


def _optional(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _value(name: str, text: str, hint: Any) -> Any:
    several = "tuple" in str(hint)
    value: Any = text
    if text == "none" and _optional(hint):
        value = None
    elif several:
        value = tuple(part for part in text.split(",") if part)
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"]).removeprefix("Input should be ")
        raise InputError(
            f"{name} cannot be that",
            found=text,
            expected="LOWEST,HIGHEST" if several and reason == "Field required" else reason,
        ) from error
