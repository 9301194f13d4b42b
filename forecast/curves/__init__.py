"""Closed-form curve families: array functions of compute, each with its gradient."""

from forecast.curves.burr import burr, burr_compute_to, burr_gradient
from forecast.curves.collapse import collapse, collapse_gradient
from forecast.curves.power_law import power_law, power_law_compute_to, power_law_gradient
from forecast.curves.second_rise import second_rise, second_rise_gradient
from forecast.curves.sigmoid import sigmoid, sigmoid_compute_to, sigmoid_gradient

__all__ = [
    "burr",
    "burr_compute_to",
    "burr_gradient",
    "collapse",
    "collapse_gradient",
    "power_law",
    "power_law_compute_to",
    "power_law_gradient",
    "second_rise",
    "second_rise_gradient",
    "sigmoid",
    "sigmoid_compute_to",
    "sigmoid_gradient",
]
