"""Do intervals cover what comes later when the model is right? Twenty simulated experiments, cut at half.

``python -m studies.recovery [--sets 20] [--seed 0]`` simulates experiments of 4 recipes x 3 seeds, fits the first
half of the compute, and scores the forecast of every run's last evaluation (at twice the fitted compute). Runs of
one experiment share population parameters, so the standard error of coverage is taken over experiments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click
import numpy as np

import forecast as fc
from forecast.outlook.fitted_curves import curve_draws, incumbents, trials_per_evaluation
from forecast.outlook.scores import SCORE_HEADER, Score, score
from simulators.worlds import sigmoid_world

HORIZON = 16_000.0
LEAST_SQUARES_MARGIN = 0.02  # the error bar that ScaleRL attaches to a fitted ceiling


@dataclass(frozen=True)
class Recovery:
    """Scores over all experiments; `coverage_by_set` is the 90 % coverage of the product's forecast in each."""

    product: Score
    independent: Score
    least_squares: Score
    least_squares_covered: float
    coverage_by_set: np.ndarray
    withheld: int


def recover(sets: int, seed: int, say: Callable[[str], None] = lambda text: None) -> Recovery:
    """Run the study."""
    pooled, apart, grid, observed, by_set, withheld = [], [], [], [], [], 0
    for k in range(sets):
        rng = np.random.default_rng([seed, k])
        world = sigmoid_world(4, 3, rng=rng)
        fit = fc.fit(world.runs, upto=HORIZON / 2, seed=k)
        if not fit.passed:
            withheld += 1
            say(f"set {k}: withheld")
            continue
        hits = []
        for name in fit.observations.runs:
            table = world.runs.table
            truth = table.loc[(table["run"] == name) & (table["compute"] == HORIZON), "value"].item()
            draws = {}
            for label, flag in (("pooled", False), ("apart", True)):
                curve = curve_draws(fit, "run", name, independent=flag)
                if curve is not None:
                    draws[label] = curve.evaluation([HORIZON], trials_per_evaluation(fit, [name]), rng)
            incumbent = incumbents(fit, "run", name)
            assert incumbent is not None
            # Both posteriors have as many draws unless one was escalated: thin to a common number.
            pooled.append(rng.choice(draws["pooled"], 4000))
            apart.append(rng.choice(draws.get("apart", draws["pooled"]), 4000))
            grid.append(incumbent.predict(np.array([HORIZON]))[None])
            observed.append(truth)
            low, high = np.quantile(draws["pooled"], [0.05, 0.95])
            hits.append(low <= truth <= high)
        by_set.append(np.mean(hits))
        say(f"set {k}: {sum(hits)}/{len(hits)} within 90 %")
    y = np.array(observed)
    errors = np.abs(np.concatenate(grid, axis=1)[0] - y)
    return Recovery(
        product=score(np.concatenate(pooled, axis=1), y),
        independent=score(np.concatenate(apart, axis=1), y),
        least_squares=score(np.concatenate(grid, axis=1), y),
        least_squares_covered=float(np.mean(errors <= LEAST_SQUARES_MARGIN)),
        coverage_by_set=np.array(by_set),
        withheld=withheld,
    )


@click.command()
@click.option("--sets", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(sets: int, seed: int) -> None:
    """Print the table."""
    result = recover(sets, seed, say=lambda text: click.echo(text, err=True))
    click.echo(f"| forecast of {result.product.points} last evaluations | {SCORE_HEADER} |")
    click.echo("|---" * 8 + "|")
    click.echo(f"| rlforecast | {result.product.row()} |")
    click.echo(f"| rlforecast, recipes apart | {result.independent.row()} |")
    ls = result.least_squares
    click.echo(
        f"| least squares (within +-.02: {result.least_squares_covered:.2f}) | {ls.rmse:.4f} | {ls.bias:+.4f} | {ls.crps:.4f} | - | - | - | - |"
    )
    se = result.coverage_by_set.std(ddof=1) / np.sqrt(len(result.coverage_by_set))
    click.echo(
        f"\n90 % coverage {result.product.coverage[90]:.3f}, standard error over experiments {se:.3f}; withheld: {result.withheld} of {sets}"
    )


if __name__ == "__main__":
    main()
