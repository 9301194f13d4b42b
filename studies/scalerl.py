"""Would we have forecast the extensions of the ScaleRL runs? Fit what the paper fitted, score what came later.

``python -m studies.scalerl [--seed 0]`` fits the fitted segments of the eleven long runs whose extension was
published (Khatri et al. 2025, see ``studies/data``) and scores the extended segments: all runs together and each by
itself, with the unreported floor latent or stated as 0.40, beside least squares and the published parameters.
Errors within a run are nearly one number: read the scores as of eleven forecasts, not of 78.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

import forecast as fc
from forecast.curves import sigmoid
from forecast.inference.least_squares import least_squares
from forecast.outlook.predict import curve_draws, trials_per_evaluation
from forecast.outlook.scores import SCORE_HEADER, Score, score

DATA = Path(__file__).parent / "data"
STATED_FLOOR = 0.40


def points() -> pd.DataFrame:
    """Columns series, segment (fit | extended), gpu_hours, pass_rate."""
    return pd.read_csv(DATA / "scalerl_long_runs.csv")


def fit_segments(table: pd.DataFrame) -> fc.Runs:
    """Run table of the fitted segments."""
    fitted = table[table["segment"] == "fit"]
    return fc.Runs(
        fitted.rename(columns={"series": "run", "gpu_hours": "compute", "pass_rate": "value"})[
            ["run", "compute", "value"]
        ],
        fc.Metric("pass_rate", prompts=1000, samples_per_prompt=16),
        fc.ComputeAxis("gpu_hours", derivation="read off the published figures"),
    )


def score_fit(fit: fc.Fit, table: pd.DataFrame, seed: int) -> Score:
    """Score evaluations of the extended segments."""
    rng = np.random.default_rng(seed)
    draws, observed = [], []
    for name in fit.observations.runs:
        later = table[(table["series"] == name) & (table["segment"] == "extended")]
        curve = curve_draws(fit, "run", name)
        assert curve is not None
        draws.append(curve.evaluation(later["gpu_hours"], trials_per_evaluation(fit, [name]), rng))
        observed.append(later["pass_rate"].to_numpy())
    return score(np.concatenate(draws, axis=1), np.concatenate(observed))


def score_points(
    table: pd.DataFrame, floor: float | None, published: pd.DataFrame | None = None
) -> tuple[Score, float]:
    """Score least squares, or the published ceiling and exponent with the midpoint refitted; and share within +-.02."""
    forecasts, observed = [], []
    for name, run in table.groupby("series"):
        fitted, later = run[run["segment"] == "fit"], run[run["segment"] == "extended"]
        x, y = fitted["gpu_hours"].to_numpy(), fitted["pass_rate"].to_numpy()
        if published is None:
            curve = least_squares(x, y, floor)
            assert curve is not None
            forecasts.append(curve.predict(later["gpu_hours"].to_numpy()))
        else:
            ceiling, exponent = published.set_index("series").loc[str(name), ["ceiling", "exponent"]]

            def sse(log_midpoint: float, x=x, y=y, ceiling=ceiling, exponent=exponent) -> float:
                return float(
                    np.sum((sigmoid(x, STATED_FLOOR, ceiling, exponent, np.exp(log_midpoint)) - y) ** 2)
                )

            best = minimize_scalar(sse, bounds=(np.log(100), np.log(40_000)), method="bounded").x
            forecasts.append(sigmoid(later["gpu_hours"], STATED_FLOOR, ceiling, exponent, np.exp(best)))
        observed.append(later["pass_rate"].to_numpy())
    x, y = np.concatenate(forecasts), np.concatenate(observed)
    return score(x[None], y), float(np.mean(np.abs(x - y) <= 0.02))


@click.command()
@click.option("--seed", default=0, show_default=True)
def main(seed: int) -> None:
    """Print the table."""
    table = points()
    published = pd.read_csv(DATA / "scalerl_published.csv")
    later = table[table["segment"] == "extended"]
    click.echo(
        f"| forecast of {len(later)} later evaluations of {later['series'].nunique()} runs | {SCORE_HEADER} |"
    )
    click.echo("|---" * 8 + "|")
    for pool, words in (("auto", "all together"), ("none", "recipes apart")):
        for floor, floor_words in (("latent", "floor latent"), (STATED_FLOOR, f"floor {STATED_FLOOR}+-.02")):
            fit = fc.fit(fit_segments(table), pool=pool, floor=floor, seed=seed)
            passed = "" if fit.passed else " (diagnostics failed)"
            click.echo(
                f"| rlforecast, {words}, {floor_words}{passed} | {score_fit(fit, table, seed).row()} |"
            )
    for floor, floor_words in ((None, "floor free"), (STATED_FLOOR, f"floor {STATED_FLOOR}")):
        _echo_point(f"least squares, {floor_words}", *score_points(table, floor))
    _echo_point(
        "published ceiling and exponent, midpoint refitted", *score_points(table, STATED_FLOOR, published)
    )


def _echo_point(label: str, result: Score, covered: float) -> None:
    click.echo(
        f"| {label} (within +-.02: {covered:.2f}) | {result.rmse:.4f} | {result.bias:+.4f} | {result.crps:.4f} | - | - | - | - |"
    )


if __name__ == "__main__":
    main()
