"""Tables as plain JSON types, every digit kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One dict per row; numbers that are not finite, and what is missing, are None.

    ``DataFrame.to_json`` counts decimals, which leaves nothing of a gain per token.
    """
    return [{str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, str | bool | int):
        return value
    number = float(value) if isinstance(value, float) else float("nan")
    return number if abs(number) < float("inf") else None
