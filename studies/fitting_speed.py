"""How many fits a second, and what bounds them?

``python -m studies.fitting_speed`` times the particle engine by number of evaluations and by family, the incumbents and
the hierarchical engine on the same runs, the start-up with and without a compiled kernel on disk, and a backtest of 300
refits. Rates are per CPU-second of one core, so that other work on the machine matters little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import click
import numpy as np

import forecast as fc
from forecast.inference.curve_fit import fit_curve
from forecast.inference.least_squares import least_squares
from forecast.inference.observations import Observations, observe
from forecast.inference.particle import ACCURATE, INTERVALS, ParticleEffort, sample_run
from forecast.inference.priors import get_priors
from forecast.inference.run_prior import FAMILIES, run_prior
from simulators.worlds import sigmoid_world

HORIZON = 16_000.0
_START = (
    "import forecast.inference.kernel as k, numpy as np; from studies.fitting_speed import one_fit; one_fit()"
)


def single_run(points: int, seed: int) -> Observations:
    """A run with `points` evaluations up to its half, as arrays."""
    world = sigmoid_world(1, 1, 2 * points, start=0.0, rng=np.random.default_rng(seed))
    return observe(world.runs.window(None, HORIZON / 2))


def fit(observations: Observations, family: str = "sigmoid", effort: ParticleEffort = INTERVALS) -> None:
    """One fit by the particle engine."""
    prior = run_prior(get_priors("wide"), observations, 0)
    sample_run(observations, 0, prior, family=family, seed=0, effort=effort)


def one_fit() -> None:
    """The first fit of a process."""
    fit(single_run(30, 0))


def per_second(work: Callable[[Observations], object], runs: list[Observations]) -> float:
    """Calls per CPU-second."""
    work(runs[0])
    start = time.process_time()
    for run in runs:
        work(run)
    return len(runs) / (time.process_time() - start)


def points_of(observations: Observations) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute, pass rate and floor, as the incumbents take them."""
    return (
        np.exp(observations.log_compute + observations.log_reference[0]),
        observations.fraction,
        float(observations.floor[0]),
    )


def hierarchical_rate(runs: list[Observations]) -> tuple[float, float]:
    """Fits per CPU-second of nutpie on one run each, and the wall seconds of compiling."""
    from forecast.inference.hierarchical import compile_model, sample

    start = time.perf_counter()
    compile_model(1, 1)
    compiled = time.perf_counter() - start
    return per_second(lambda run: sample(run, get_priors("wide"), (), seed=0), runs), compiled


def start_up(cache: str) -> float:
    """Wall seconds of a new process that makes one fit, with compiled code kept in `cache`."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", _START],
        check=True,
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        cwd=os.getcwd(),
    )
    return time.perf_counter() - start


@click.command()
def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = start_up(cache), start_up(cache)
    click.echo(f"new process, one fit: {cold:.1f} s, with compiled code on disk {warm:.1f} s\n")

    click.echo(
        "| evaluations | particle engine, fits / s / core | least squares (grid) | curve fit with covariance |"
    )
    click.echo("|---" * 4 + "|")
    for points in (11, 30, 54, 100):
        runs = [single_run(points, seed) for seed in range(20)]
        ours = per_second(fit, runs)
        grid = per_second(lambda run: least_squares(*points_of(run)), runs)
        curve = per_second(lambda run: fit_curve("sigmoid", *points_of(run)), runs)
        click.echo(f"| {points} | {ours:.1f} | {grid:.0f} | {curve:.0f} |")

    runs = [single_run(30, seed) for seed in range(8)]
    click.echo("\n| family, 30 evaluations | fits / s / core for intervals | CPU-s of a kept fit |")
    click.echo("|---" * 3 + "|")
    for family in FAMILIES:
        rate = per_second(lambda run, family=family: fit(run, family), runs)  # type: ignore[misc]
        kept = 1 / per_second(lambda run, family=family: fit(run, family, ACCURATE), runs)  # type: ignore[misc]
        click.echo(f"| {family.replace('_', ' ')} | {rate:.1f} | {kept:.2f} |")

    rate, compiled = hierarchical_rate(runs)
    click.echo(
        f"\nhierarchical engine on one run of 30 evaluations: {rate:.2f} fits / s / core after {compiled:.0f} s of compiling"
    )

    many = sigmoid_world(100, 3, rng=np.random.default_rng(0)).runs
    start, cpu = time.perf_counter(), time.process_time()
    result = fc.backtest(many, fractions=(0.5,))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    refits = result.forecasts["run"].nunique()
    click.echo(
        f"backtest of {refits} refits of 30 evaluations, all incumbents beside: {wall:.1f} s wall, {cpu:.1f} CPU-s, {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
