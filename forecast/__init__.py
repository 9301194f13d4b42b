"""Forecasts with honest intervals for RL training runs: ``read_runs -> fit -> predict``.

The heavy parts (PyMC, pandas) are imported when first used, so that ``import forecast`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forecast.errors import ForecastError, InputError, Withheld

if TYPE_CHECKING:
    from forecast.fits import Fit, fit, load
    from forecast.outlook.backtest import Backtest, backtest
    from forecast.outlook.budget import Decision, budget
    from forecast.outlook.comparison import compare
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.prices import Prices
    from forecast.outlook.transitions import transitions
    from forecast.runs.read import read_runs
    from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

_HOME = {
    "Backtest": "forecast.outlook.backtest",
    "ComputeAxis": "forecast.runs.table",
    "Decision": "forecast.outlook.budget",
    "Fit": "forecast.fits",
    "Floor": "forecast.runs.table",
    "Hazard": "forecast.outlook.hazard",
    "Metric": "forecast.runs.table",
    "Prices": "forecast.outlook.prices",
    "Runs": "forecast.runs.table",
    "backtest": "forecast.outlook.backtest",
    "budget": "forecast.outlook.budget",
    "compare": "forecast.outlook.comparison",
    "fit": "forecast.fits",
    "load": "forecast.fits",
    "read_runs": "forecast.runs.read",
    "transitions": "forecast.outlook.transitions",
}

__all__ = [
    "Backtest",
    "ComputeAxis",
    "Decision",
    "Fit",
    "Floor",
    "ForecastError",
    "Hazard",
    "InputError",
    "Metric",
    "Prices",
    "Runs",
    "Withheld",
    "backtest",
    "budget",
    "compare",
    "fit",
    "load",
    "read_runs",
    "transitions",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'forecast' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
