"""What counts as a record in JSON, and what the well-known headers and summaries look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONFIG_LINE = 'configuration line ({"type": "config"})'
SUMMARY = "final summary (train_runtime), not a training record"
NOT_OBJECT = "row is not a JSON object"
NOT_JSON = "line is not JSON"
CUT_OFF = "last line is cut off"
_CONFIG_TYPES = ("config", "configuration", "header", "meta", "metadata", "args", "hparams")
_COUNTERS = ("step", "_step", "global_step", "iteration", "iter", "epoch", "update")
_TRL_KEYS = ("learning_rate", "grad_norm", "epoch", "loss")


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number (a Boolean is none)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_config(record: Mapping[str, Any]) -> bool:
    """Whether a record describes the run instead of measuring it."""
    return record.get("type") in _CONFIG_TYPES


def is_summary(record: Mapping[str, Any]) -> bool:
    """Whether a record is the summary that Hugging Face trainers log at the end."""
    return "train_runtime" in record and "reward" not in record


def is_trl(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like an entry of a Hugging Face ``log_history``."""
    return is_summary(record) or sum(key in record for key in _TRL_KEYS) >= 2 or "eval_runtime" in record


def has_step(record: Mapping[str, Any]) -> bool:
    """Whether a record says when in training it was written, and measures something besides."""
    counted = any(is_number(value) and key.rpartition("/")[2] in _COUNTERS for key, value in record.items())
    return counted and sum(map(is_number, record.values())) > 1
