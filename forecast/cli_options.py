"""Options that several commands share: how logs are read, numbers, output formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from forecast.errors import InputError

FORMATS = click.Choice(["table", "csv", "json"])


class Numbers(click.ParamType):
    """Comma-separated numbers."""

    name = "NUMBER,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """Parse, or fail with what was found."""
        if isinstance(value, list):
            return value
        try:
            return [float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(
                f"found {value!r}, expected numbers separated by commas, such as 8000,16000", param, ctx
            )


class FloorChoice(click.ParamType):
    """``measured``, ``latent`` or a number."""

    name = "measured|latent|VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        """Parse, or fail with what was found."""
        if value in ("measured", "latent") or isinstance(value, float):
            return value
        try:
            return float(value)
        except ValueError:
            self.fail(f"found {value!r}, expected measured, latent or a number", param, ctx)


class HazardChoice(click.ParamType):
    """Transitions expected per decade of compute, by kind."""

    name = "KIND=RATE,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse, or fail with what was found."""
        from forecast.outlook.hazard import Hazard

        return value if isinstance(value, Hazard) else Hazard.parse(value)


class PriceChoice(click.ParamType):
    """Money per unit of compute, one number or by base model."""

    name = "PRICE|MODEL=PRICE,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse, or fail with what was found."""
        from forecast.outlook.prices import Prices

        return value if isinstance(value, Prices) else Prices.parse(value)


class DomainChoice(click.ParamType):
    """What holds of the runs, by name."""

    name = "KEY=VALUE,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse, or fail with what was found."""
        from forecast.outlook.domain import parse_domain

        return value if isinstance(value, dict) else parse_domain(value)


class VerifierChoice(click.ParamType):
    """Measured error rates of a verifier."""

    name = "tpr=RATE[/N],fpr=RATE[/N]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse, or fail with what was found."""
        from forecast.outlook.reward import Verifier

        return value if isinstance(value, Verifier) else Verifier.parse(value)


def transition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add whether, and how often, curves may move a second time."""
    options = [
        click.option(
            "--transitions",
            "moves",
            default="excluded",
            show_default=True,
            help="excluded, or averaged: the curve may rise again or collapse (some seconds per run).",
        ),
        click.option(
            "--hazard",
            type=HazardChoice(),
            help="Transitions expected per decade of compute, with averaged. [default: rise=.05,collapse=.05]",
        ),
    ]
    return with_options(command, options)


def posterior_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what the posterior is conditioned on besides the evaluations."""
    options = [
        click.option(
            "--prior",
            default="wide",
            show_default=True,
            help="Prior of the ceiling: wide, or llm-rl (expects .5-.75).",
        ),
        click.option(
            "--pool",
            default="auto",
            show_default=True,
            metavar="auto|none|all|NAMES",
            help="What recipes teach each other (hierarchical engine): of ceiling,exponent,midpoint.",
        ),
        click.option(
            "--floor",
            type=FloorChoice(),
            default="measured",
            show_default=True,
            help="Pass rate before training: as logged at step 0 where it is, unknown, or stated.",
        ),
    ]
    return with_options(command, options)


def check_new(path: Path, overwrite: bool, option: str) -> None:
    """Refuse to replace a file unasked.

    Raises
    ------
    InputError
        If it exists.
    """
    if path.exists() and not overwrite:
        raise InputError("exists", where=path, fix=f"add --overwrite or choose another {option}")


def twice(fit: Any) -> float:
    """Twice the largest fitted compute, rounded."""
    return float(f"{2 * fit.observations.fitted_upto.max():.3g}")


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a budget is, and what a decision depends on besides it."""
    options = [
        click.option(
            "--at",
            type=Numbers(),
            help="Compute that a run is to reach in all, in the fit's unit: options then cost different amounts.",
        ),
        click.option("--spend", type=Numbers(), help="Compute to spend from now on, equal for all options."),
        click.option("--money", type=Numbers(), help="Money to spend from now on, equal for all options."),
        click.option("--target", type=float, metavar="R", help="Value to reach, on the metric's scale."),
        click.option(
            "--price",
            type=PriceChoice(),
            help="Money per unit of compute, by base model if need be. [default: as the runs declare]",
        ),
        click.option(
            "--worth",
            type=float,
            metavar="MONEY",
            help="What .01 of the scale is worth, in money (in compute, without a price): options are then compared by value less cost.",
        ),
        click.option(
            "--domain",
            type=DomainChoice(),
            help="What will hold when the budget is spent: listed where it differs from the fitted runs.",
        ),
    ]
    return with_options(command, options)


def with_options(command: Callable[..., Any], options: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Add options in the order in which help is to show them."""
    for option in reversed(options):
        command = option(command)
    return command


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how logs are to be read; the names are those of `forecast.read_runs`."""
    options = [
        click.option(
            "--spec",
            type=click.Path(path_type=Path),
            help="A runs.toml that declares axes and runs (may also be given as RUNS).",
        ),
        click.option("--metric", help="Column of the values (y-axis). Default: the one clear candidate."),
        click.option(
            "--kind",
            default="pass_rate",
            show_default=True,
            help="pass_rate, pass_at_k, accuracy, reward, preference or error_rate.",
        ),
        click.option(
            "--split",
            default="validation",
            show_default=True,
            help="Prompts the values were measured on: train, validation or test.",
        ),
        click.option(
            "--scale",
            type=Numbers(),
            metavar="LOW,HIGH",
            help="Logged values that mean 0 and 1: 0,100 for percent. [default: 0,1]",
        ),
        click.option("--chance", default=0.0, show_default=True, help="Fraction that guessing scores."),
        click.option("--prompts", type=click.IntRange(min=1), help="Prompts in one evaluation."),
        click.option("--samples", type=click.IntRange(min=1), help="Samples per prompt."),
        click.option(
            "--trials",
            metavar="COLUMN",
            help="Column of Bernoulli trials per value, instead of the two above.",
        ),
        click.option(
            "--compute",
            metavar="COLUMN[,...]",
            help="Column of the x-axis; several are added up; '#' counts evaluations.",
        ),
        click.option(
            "--compute-unit",
            help="gpu_hours, flops, tokens, rollouts or steps; may be left out when the column is named so.",
        ),
        click.option(
            "--cumulate", is_flag=True, help="The compute column is logged per step: sum it over the run."
        ),
        click.option(
            "--times",
            default=1.0,
            show_default=True,
            help="Factor from the compute column to the unit (GPUs / 3600 for seconds).",
        ),
        click.option("--price", "price_per_unit", type=float, help="Money per unit of compute."),
        click.option("--step", metavar="COLUMN", help="Column of the training step."),
        click.option(
            "--run",
            metavar="COLUMN[,...]",
            help="Columns that tell runs in one file apart. Default: one file, one run.",
        ),
        click.option(
            "--recipe",
            metavar="COLUMN",
            help="Column that groups runs (seeds) into recipes. Default: each run by itself.",
        ),
        click.option(
            "--seed-column", "seed_column", metavar="COLUMN", help="Column of the random seed of a run."
        ),
        click.option("--model", metavar="COLUMN", help="Column of the base model."),
        click.option("--stratum", metavar="COLUMN", help="Column of the prompt class."),
        click.option(
            "--where", multiple=True, metavar="COLUMN=VALUE", help="Keep only such rows; repeatable."
        ),
        click.option("--wide", is_flag=True, help="The table has one column per run."),
        click.option(
            "--attempts",
            default="latest",
            show_default=True,
            help="Restarted runs: latest, longest or separate.",
        ),
    ]
    return with_options(command, options)


def read(paths: tuple[Path, ...], options: dict[str, Any]) -> Any:
    """Call `read_runs` with what `reading_options` collected."""
    from forecast.runs.read import read_runs

    options = dict(options)
    options["seed"] = options.pop("seed_column")
    for name in ("run", "compute"):
        if options[name] is not None:
            options[name] = options[name].split(",")
    if options["scale"] is not None and len(options["scale"]) != 2:
        raise InputError("--scale needs two numbers", found=options["scale"], expected="LOW,HIGH")
    return read_runs(list(paths), **options)
