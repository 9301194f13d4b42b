"""Numbers and axes as a person reads them: the same words in figures and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forecast.runs.table import ComputeAxis, Metric

if TYPE_CHECKING:
    from forecast.fits import Fit

UNIT_NAMES = {
    "gpu_hours": "GPU-hours",
    "flops": "FLOPs",
    "tokens": "tokens",
    "rollouts": "rollouts",
    "steps": "steps",
}
KIND_NAMES = {
    "pass_rate": "pass rate",
    "pass_at_k": "pass@k",
    "accuracy": "accuracy",
    "reward": "reward",
    "preference": "preference rate",
    "error_rate": "error rate",
}
SPLIT_NAMES = {"train": "training prompts", "validation": "held-out prompts", "test": "test prompts"}
LEVEL_NAMES = {"run": "run", "recipe": "recipe", "new_run": "new run of recipe"}
MISSING = "–"
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def unit_name(axis: ComputeAxis) -> str:
    """Return the unit of compute in words."""
    return UNIT_NAMES[axis.unit]


def compute_label(axis: ComputeAxis) -> str:
    """Label of the x-axis."""
    return f"compute ({unit_name(axis)}, log scale)"


def metric_label(metric: Metric) -> str:
    """Label of the y-axis: kind, prompts and scale."""
    return f"{KIND_NAMES[metric.kind]} on {SPLIT_NAMES[metric.split]}{scale_text(metric)}"


def scale_text(metric: Metric) -> str:
    """Return what 0 and 1 are logged as, if that is not 0 and 1."""
    zero, one = metric.scale
    if (zero, one) == (0, 1):
        return ""
    if (zero, one) == (0, 100):
        return " (%)"
    return f" (scale {zero:g} to {one:g})"


def evaluation_size(metric: Metric) -> str:
    """Return the size of one evaluation, as far as it is declared."""
    if metric.prompts is None:
        return ""
    if metric.samples_per_prompt is None:
        return f"{metric.prompts:,} prompts"
    return f"{metric.prompts:,} prompts × {metric.samples_per_prompt:,} samples"


def quantity_text(metric: Metric, quantity: str) -> str:
    """Say what is forecast: the true curve or what one evaluation would show."""
    kind = KIND_NAMES[metric.kind]
    if quantity == "curve":
        return f"the true {kind} (evaluation noise not included)"
    size = evaluation_size(metric)
    return f"the {kind} that one evaluation would show" + (f" ({size})" if size else "")


def probability_text(probability: float) -> str:
    """Format a probability to two decimals; never as 0 or 1, which no count of draws can show."""
    if not np.isfinite(probability):
        return MISSING
    if probability < 0.005:
        return "< .01"
    return "> .99" if probability >= 0.995 else f"{probability:.2f}".removeprefix("0")


def value_text(value: float, metric: Metric, *, signed: bool = False, decimals: int = 0) -> str:
    """Format a value on the metric's scale to a thousandth of the scale (and `decimals` more); a dash for NaN."""
    if not np.isfinite(value):
        return MISSING
    zero, one = metric.scale
    decimals += max(0, 3 - round(np.log10(abs(one - zero))))
    rounded = round(float(value), decimals) + 0.0  # no minus sign before a zero
    return f"{rounded:{'+' if signed else ''}.{decimals}f}".replace("-", "−")


def interval_text(low: float, high: float, metric: Metric) -> str:
    """Format an interval on the metric's scale."""
    return f"{value_text(low, metric)} to {value_text(high, metric)}"


def compute_text(compute: float) -> str:
    """Format compute: thousands separated, or a power of ten where that would be unreadable."""
    if not np.isfinite(compute):
        return MISSING
    if compute == 0 or 0.01 <= compute < 1e7:
        return f"{compute:,.0f}" if compute >= 100 else f"{compute:.3g}"
    mantissa, exponent = f"{compute:.2e}".split("e")
    power = "10" + str(int(exponent)).translate(_RAISED)
    mantissa = mantissa.rstrip("0").rstrip(".")
    return power if mantissa == "1" else f"{mantissa}×{power}"


def money_text(amount: float) -> str:
    """Format money, which has no currency here: thousands separated, large amounts in k, M or bn."""
    if not np.isfinite(amount):
        return MISSING
    for size, name in ((1e9, "bn"), (1e6, "M"), (1e4, "k")):
        if abs(amount) >= size:
            unit = 1e3 if name == "k" else size
            return f"{amount / unit:.3g}{name}" if abs(amount) < 1e3 * unit else f"{amount / unit:,.0f}{name}"
    return f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}"


def fitted_range(fit: Fit) -> tuple[float, float]:
    """Smallest and largest compute that was fitted."""
    compute = fit.fitted.overall()["compute"]
    return float(compute.min()), float(compute.max())


def plain(text: str) -> str:
    """One line without control characters: names come from logs."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
