"""Does the sampler converge on easy and hard shapes of data, and what does it cost?

``python -m studies.sampling [--seeds 5]`` simulates data sets (one world per seed and case), samples each as the
product does (one escalation allowed) and prints a Markdown table. Divergences are counted after the first try and
after the escalation; R-hat and ESS are the worst over seeds of the accepted try.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

from forecast.inference.diagnostics import all_passed
from forecast.inference.hierarchical import EFFORT, compile_model
from forecast.inference.observations import observe
from forecast.inference.priors import get_priors, pooled_parameters
from forecast.inference.sampling import sample_checked
from forecast.runs.table import Runs
from simulators.worlds import sigmoid_world


@dataclass(frozen=True)
class Case:
    """One shape of data: how many runs, how many evaluations, and which part of the curve they show."""

    name: str
    recipes: int
    seeds: int
    evaluations: int
    pool: str = "auto"
    floor: str = "measured"
    world: dict[str, Any] = field(default_factory=dict)


_EARLY = {"midpoint_share": (1.0, 2.0)}  # the fitted half ends at a quarter to a half of the midpoint
_PLATEAU = {"midpoint_share": (0.02, 0.03)}  # ... begins beyond three midpoints
CASES = (
    Case("typical", 4, 3, 40),
    Case("typical, recipes apart", 4, 3, 40, pool="none"),
    Case("typical, floor latent", 4, 3, 40, floor="latent"),
    Case("typical", 2, 2, 40),
    Case("early rise only", 2, 2, 40, world=_EARLY),
    Case("plateau only", 2, 2, 40, world=_PLATEAU),
    Case("six evaluations", 2, 2, 6),
    Case("six evaluations, early rise only", 2, 2, 6, world=_EARLY),
    Case("one run", 1, 1, 40),
    Case("one run, floor latent", 1, 1, 40, floor="latent"),
    Case("one run, early rise only", 1, 1, 40, world=_EARLY),
    Case("one run, plateau only", 1, 1, 40, world=_PLATEAU),
    Case("one run, six evaluations", 1, 1, 6),
)


def simulate(case: Case, seed: int) -> Runs:
    """Return the first half of a world's compute."""
    # Evaluations before `start` are not logged, so that the plateau case shows nothing else.
    world = sigmoid_world(
        case.recipes,
        case.seeds,
        points=round(case.evaluations * 16_000 / 6_500) + 2,
        rng=np.random.default_rng([seed, len(case.name)]),
        **case.world,
    )
    return world.runs.window(upto=8_000)


@click.command()
@click.option("--seeds", default=5, show_default=True, help="Data sets per case.")
@click.option("--only", default="", help="Only these cases, separated by semicolons.")
def main(seeds: int, only: str) -> None:
    """Print convergence and cost of sampling per case."""
    click.echo(
        "| case | runs x evaluations | divergences, first try | escalated | divergences, at last | passed | R-hat curves | ESS curves | ESS spreads | CPU s, first try |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        if only and case.name not in only.split(";"):
            continue
        first, last, escalated, passed, rhat, ess, ess_spread, cost = [], [], 0, 0, [], [], [], []
        for seed in range(seeds):
            runs = simulate(case, seed)
            observations = observe(runs, case.floor)
            compile_model(len(observations.runs), len(observations.recipes))
            pooled = pooled_parameters(case.pool, len(observations.recipes))
            for efforts in ((EFFORT,), None):
                started = time.process_time()
                options = {} if efforts is None else {"efforts": efforts}
                result = sample_checked(
                    observations,
                    get_priors("wide"),
                    pooled,
                    seed=seed,
                    stage="",
                    report=lambda *_: None,
                    **options,
                )
                if efforts is not None:
                    cost.append(time.process_time() - started)
                    first.append(_value(result.checks, "divergences"))
                    if all_passed(result.checks):
                        break
                else:
                    escalated += 1
            last.append(_value(result.checks, "divergences"))
            passed += all_passed(result.checks)
            rhat.append(_value(result.checks, "R-hat, curves"))
            ess.append(_value(result.checks, "ESS, curves"))
            ess_spread.append(_value(result.checks, "ESS, spreads and noise"))
        evaluations = len(observations.run) // len(observations.runs)
        click.echo(
            f"| {case.name} | {case.recipes}x{case.seeds} x {evaluations} | {first} | {escalated}/{seeds} | {sum(last):.0f} |"
            f" {passed}/{seeds} | {max(rhat):.4f} | {min(ess):.0f} | {min(ess_spread):.0f} | {np.mean(cost):.1f} |"
        )


def _value(checks: list[Any], name: str) -> float:
    value = next(check.value for check in checks if check.name == name)
    return float("nan") if value is None else round(float(value), 4)


if __name__ == "__main__":
    main()
