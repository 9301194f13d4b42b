"""Would we have forecast the extensions of the ScaleRL runs? Fit what the paper fitted, score what came later.

``python -m studies.scalerl [--seed 0]`` fits the fitted segments of the long runs whose extension was published
(Khatri et al. 2025, see ``studies/data``) and scores the extended segments: all runs together and each by itself,
with the unreported floor latent or stated as 0.40, beside least squares and the published parameters. Once for the
eleven published series, once for the nine runs that they draw (three series draw one run).
Errors within a run are nearly one number: read the scores as of nine forecasts.
"""

from __future__ import annotations

from functools import partial

import click
import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

import forecast as fc
from forecast.curves import sigmoid
from forecast.inference.least_squares import least_squares
from forecast.outlook.fitted_curves import curve_draws, trials_per_evaluation
from forecast.outlook.scores import SCORE_HEADER, Score, score
from studies.demo import DATA, SAME_RUN, merge_redrawn

PUBLISHED = DATA.with_name("scalerl_published.csv")
STATED_FLOOR = 0.40
MARGIN = 0.02  # the error bar that the paper attaches to a ceiling


def points(*, merged: bool) -> pd.DataFrame:
    """Columns run, segment (fit | extended), gpu_hours, pass_rate."""
    table = pd.read_csv(DATA)
    if not merged:
        return table.rename(columns={"series": "run"})
    parts = [merge_redrawn(part).assign(segment=segment) for segment, part in table.groupby("segment")]
    return pd.concat(parts, ignore_index=True)


def fit_segments(table: pd.DataFrame) -> fc.Runs:
    """Run table of the fitted segments."""
    fitted = table[table["segment"] == "fit"].rename(columns={"gpu_hours": "compute", "pass_rate": "value"})
    return fc.Runs(
        fitted[["run", "compute", "value"]],
        fc.Metric("pass_rate", prompts=1000, samples_per_prompt=16),
        fc.ComputeAxis("gpu_hours", derivation="read off the published figures"),
    )


def score_fit(fit: fc.Fit, table: pd.DataFrame, seed: int) -> Score:
    """Score evaluations of the extended segments."""
    rng = np.random.default_rng(seed)
    draws, observed = [], []
    for name in fit.observations.runs:
        later = table[(table["run"] == name) & (table["segment"] == "extended")]
        curve = curve_draws(fit, "run", name)
        assert curve is not None
        draws.append(curve.evaluation(later["gpu_hours"], trials_per_evaluation(fit, [name]), rng))
        observed.append(later["pass_rate"].to_numpy())
    return score(np.concatenate(draws, axis=1), np.concatenate(observed))


def score_points(
    table: pd.DataFrame, floor: float | None, published: pd.DataFrame | None = None
) -> tuple[Score, float]:
    """Score least squares, or the published ceiling and exponent with the midpoint refitted.

    Returns the score and the share of evaluations within +-.02 of the point forecast.
    """
    forecasts, observed = [], []
    for name, run in table.groupby("run"):
        fitted, later = run[run["segment"] == "fit"], run[run["segment"] == "extended"]
        x, y = fitted["gpu_hours"].to_numpy(), fitted["pass_rate"].to_numpy()
        later_x = later["gpu_hours"].to_numpy()
        observed.append(later["pass_rate"].to_numpy())
        if published is None:
            incumbent = least_squares(x, y, floor)
            assert incumbent is not None
            forecasts.append(incumbent.predict(later_x))
            continue
        row = published[published["series"] == name].iloc[0]
        curve = partial(
            sigmoid, floor=STATED_FLOOR, ceiling=float(row["ceiling"]), exponent=float(row["exponent"])
        )
        best = minimize_scalar(
            lambda log_midpoint, curve, x, y: np.sum((curve(x, midpoint=np.exp(log_midpoint)) - y) ** 2),
            bounds=(np.log(100), np.log(40_000)),
            args=(curve, x, y),
            method="bounded",
        )
        forecasts.append(curve(later_x, midpoint=np.exp(best.x)))
    forecast, y = np.concatenate(forecasts), np.concatenate(observed)
    return score(forecast[None], y), float(np.mean(np.abs(forecast - y) <= MARGIN))


@click.command()
@click.option("--seed", default=0, show_default=True)
def main(seed: int) -> None:
    """Print the tables."""
    for merged in (False, True):
        table = points(merged=merged)
        later = table[table["segment"] == "extended"]
        click.echo(
            f"| {len(later)} later evaluations, {later['run'].nunique()} {'runs' if merged else 'series'} | {SCORE_HEADER} |"
        )
        click.echo("|---" * 8 + "|")
        stated: str | float
        for pool, words in (("auto", "all together"), ("none", "each by itself")):
            for stated, floor_words in (("latent", "floor latent"), (STATED_FLOOR, f"floor {STATED_FLOOR}")):
                fit = fc.fit(fit_segments(table), pool=pool, floor=stated, seed=seed)
                passed = "" if fit.passed else " (diagnostics failed)"
                click.echo(
                    f"| rlforecast, {words}, {floor_words}{passed} | {score_fit(fit, table, seed).row()} |"
                )
        for known, floor_words in ((None, "floor free"), (STATED_FLOOR, f"floor {STATED_FLOOR}")):
            _echo_point(f"least squares, {floor_words}", *score_points(table, known))
        published = pd.read_csv(PUBLISHED)
        _echo_point("published ceiling and exponent", *score_points(table, STATED_FLOOR, published))
        click.echo("")
    click.echo(f"Redrawn series: {', '.join(f'{a} draws {b}' for a, b in SAME_RUN.items())}. Seed {seed}.")


def _echo_point(label: str, result: Score, covered: float) -> None:
    errors = f"{result.rmse:.4f} | {result.bias:+.4f} | {result.crps:.4f}"
    click.echo(f"| {label} (within +-{MARGIN:g}: {covered:.2f}) | {errors} | - | - | - | - |")


if __name__ == "__main__":
    main()
