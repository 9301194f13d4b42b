"""Python dictionaries printed into a log, parsed without evaluating anything."""

from __future__ import annotations

import ast
import json
import math
from typing import Any

_NAMES: dict[str, Any] = {
    "nan": math.nan,
    "NaN": math.nan,
    "inf": math.inf,
    "Infinity": math.inf,
    "null": None,
    "true": True,
    "false": False,
}
# np.float64(0.5), tensor(0.5, device='cuda:0'), ...: the first argument is the value.
_WRAPPERS = (
    "float16",
    "float32",
    "float64",
    "int32",
    "int64",
    "bfloat16",
    "tensor",
    "array",
    "str_",
    "bool_",
)


def parse_dict(text: str) -> dict[str, Any] | None:
    """Return the dictionary that `text` spells in Python or JSON, or None."""
    try:
        if "'" not in text:
            record = json.loads(text)
            return record if isinstance(record, dict) else None
        if '"' not in text and "\\" not in text:
            record = json.loads(text.replace("'", '"'))
            return record if isinstance(record, dict) else None
    except (ValueError, RecursionError):
        pass
    try:
        record = _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return record if isinstance(record, dict) else None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _number(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            if any(key is None for key in keys):
                raise ValueError("unpacked mapping")
            return {
                str(_value(key)): _value(v) for key, v in zip(keys, values, strict=True) if key is not None
            }
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if (
            name in _WRAPPERS
        ):
            return _value(first)
    raise ValueError(f"not a literal: {type(node).__name__}")


def _number(node: ast.expr) -> float:
    value = _value(node)
    if not isinstance(value, (int, float)):
        raise ValueError("sign before something that is no number")
    return value
