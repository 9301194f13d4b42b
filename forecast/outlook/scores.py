"""How good a forecast was, once the evaluations are in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, ndtr


def crps(draws: ArrayLike, observed: ArrayLike) -> NDArray[np.float64]:
    """Continuous ranked probability score of forecasts given as draws; smaller is better, unit of the values.

    ``E|X - y| - E|X - X'| / 2`` over the empirical distribution of the draws (Gneiting and Raftery 2007,
    doi:10.1198/016214506000001437, eq. 21). For one draw it is the absolute error.

    Parameters
    ----------
    draws : array_like, shape (S, points)
    observed : array_like, shape (points,)

    Returns
    -------
    ndarray, shape (points,)
    """
    x = np.sort(np.asarray(draws, dtype=float), axis=0)
    n = len(x)
    weights = (2 * np.arange(1, n + 1) - n - 1) / n**2
    return np.abs(x - np.asarray(observed, dtype=float)).mean(axis=0) - weights @ x


def log_score(curve: ArrayLike, sd: ArrayLike, observed: ArrayLike) -> NDArray[np.float64]:
    """Log density of what was observed under a mixture of normals, ``log mean_s N(y; curve_s, sd_s^2)``.

    Larger is better; the density is per unit of the values.

    Parameters
    ----------
    curve, sd : array_like, shape (S, points)
        Means and sds (> 0), one normal per draw.
    observed : array_like, shape (points,)

    Returns
    -------
    ndarray, shape (points,)
    """
    curve, sd, observed = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (curve, sd, observed)))
    log_density = -0.5 * ((observed - curve) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    return logsumexp(log_density, axis=0) - np.log(len(curve))


def pit(curve: ArrayLike, sd: ArrayLike, observed: ArrayLike) -> NDArray[np.float64]:
    """Forecast probability of less than was observed, ``mean_s Phi((y - curve_s) / sd_s)``.

    Uniform between 0 and 1 if forecasts mean what they say. Parameters as in `log_score`.
    """
    curve, sd, observed = (np.asarray(x, dtype=float) for x in (curve, sd, observed))
    return ndtr((observed - curve) / sd).mean(axis=0)


@dataclass(frozen=True)
class Score:
    """Scores of a set of forecasts, in the unit of the values."""

    points: int
    bias: float
    rmse: float
    crps: float
    coverage: dict[int, float]
    width: dict[int, float]

    def row(self) -> str:
        """Cells of a Markdown table: RMSE, bias, CRPS, coverage and width at 50, 90 and 95 %."""
        levels = [f"{self.coverage[level]:.2f}" for level in (50, 90, 95)]
        return f"{self.rmse:.4f} | {self.bias:+.4f} | {self.crps:.4f} | {' | '.join(levels)} | {self.width[95]:.3f}"


SCORE_HEADER = "RMSE | bias | CRPS | within 50 % | within 90 % | within 95 % | 95 % width"


def score(draws: ArrayLike, observed: ArrayLike, levels: tuple[int, ...] = (50, 80, 90, 95)) -> Score:
    """Score forecasts given as draws (S, points) against what was observed (points,).

    The point forecast is the mean; intervals are equal-tailed.
    """
    x, y = np.asarray(draws, dtype=float), np.asarray(observed, dtype=float)
    error = x.mean(axis=0) - y
    ends = {level: np.quantile(x, [0.5 - level / 200, 0.5 + level / 200], axis=0) for level in levels}
    return Score(
        points=len(y),
        bias=float(error.mean()),
        rmse=float(np.sqrt(np.mean(error**2))),
        crps=float(crps(x, y).mean()),
        coverage={level: float(np.mean((low <= y) & (y <= high))) for level, (low, high) in ends.items()},
        width={level: float(np.mean(high - low)) for level, (low, high) in ends.items()},
    )
