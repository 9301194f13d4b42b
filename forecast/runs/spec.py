"""``runs.toml``: which columns are the axes, and which file holds which run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from forecast.errors import InputError

Kind = Literal["pass_rate", "pass_at_k", "accuracy", "reward", "preference", "error_rate"]
Split = Literal["train", "validation", "test"]
Unit = Literal["gpu_hours", "flops", "tokens", "rollouts", "steps"]
Attempts = Literal["latest", "longest", "separate"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[list[Name], BeforeValidator(_as_list)]
"""One name or a list of names."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Column(_Strict):
    """A reference to a column, where a plain string would be the value itself: ``{column = "series"}``."""

    column: Name


class MetricSpec(_Strict):
    """The y-axis as declared.

    Attributes
    ----------
    column : str, optional
        Column of the values; left out, the one clear candidate is taken.
    kind, split : str
        What the values are and on which prompts they were measured.
    scale : tuple of float, optional
        Logged values that mean 0 and 1; ``(0, 1)`` unless declared (``(1, 0)`` for an error rate).
    prompts, samples_per_prompt : int, optional
        Size of one evaluation.
    chance : float
        What guessing scores, as a fraction.
    stratum, trials : str, optional
        Columns that hold the prompt class of a row and the Bernoulli trials behind its value.
    wide : bool or list of str
        One column per run: all columns but the compute and step columns, or the columns listed.
    """

    column: Name | None = None
    kind: Kind = "pass_rate"
    split: Split = "validation"
    scale: Annotated[tuple[float, float], Field(strict=False)] | None = None
    prompts: int | None = Field(default=None, gt=0, le=10**9)
    samples_per_prompt: int | None = Field(default=None, gt=0, le=10**9)
    chance: float = Field(default=0.0, ge=0, lt=1)
    stratum: Name | None = None
    trials: Name | None = None
    wide: bool | list[Name] = False

    @field_validator("scale")
    @classmethod
    def _two_numbers(cls, scale: tuple[float, float] | None) -> tuple[float, float] | None:
        if scale is not None and scale[0] == scale[1]:
            raise ValueError("the values that mean 0 and 1 must differ")
        return scale

    @property
    def limits(self) -> tuple[float, float]:
        """The scale, with its default."""
        return self.scale or ((1.0, 0.0) if self.kind == "error_rate" else (0.0, 1.0))


class ComputeSpec(_Strict):
    """The x-axis as declared: ``column x times + offset``, summed over the run if `cumulate`.

    Attributes
    ----------
    column : list of str, optional
        Columns that are added up; ``"#"`` stands for the number of the evaluation (1, 2, 3, ...). Left out,
        the one clear candidate is taken.
    step : str, optional
        Column of the training step, where its name does not tell.
    cumulate : bool
        The column is logged per step and must be summed over the run.
    times, offset : float
        Factor from the column to `unit`, and what had been spent before the first record (in `unit`).
    unit : str, optional
        May be left out when the column's name is a unit.
    price_per_unit : float, optional
        Money per unit.
    """

    column: Names | None = None
    step: Name | None = None
    cumulate: bool = False
    times: float = Field(default=1.0, gt=0)
    offset: float = 0.0
    unit: Unit | None = None
    price_per_unit: float | None = Field(default=None, ge=0)


class RunSpec(_Strict):
    """Where one or more runs were logged.

    Attributes
    ----------
    path : list of str
        A file, folder or glob: one run per file (or as many as the file itself tells apart). A list of
        files, or anything with a `name`, is one run in several pieces.
    split_by : list of str
        Columns whose values name the runs within a file.
    name : str, optional
        Name of the run; a prefix of the names where a file holds several (`split_by`, or one column per run).
    recipe, model, task : str or Column, optional
        A text for all rows, or the column that holds it. The recipe defaults to the run's name.
    seed : int or Column, optional
        Likewise.
    floor : float, optional
        Value before training, on the metric's scale, where the log lacks it.
    where : list of str
        ``COLUMN=VALUE`` filters.
    attempts : {"latest", "longest", "separate"}
        What to do when a run was restarted.
    """

    path: Names = Field(min_length=1)
    split_by: Names = []
    name: Name | None = None
    recipe: Name | Column | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | Column | None = None
    model: Name | Column | None = None
    task: Name | Column | None = None
    floor: float | None = None
    where: Names = []
    attempts: Attempts = "latest"

    @field_validator("where")
    @classmethod
    def _conditions(cls, where: list[str]) -> list[str]:
        for condition in where:
            if not condition.partition("=")[0].strip() or "=" not in condition:
                raise ValueError(f"{condition!r} is not COLUMN=VALUE")
        return where

    @property
    def one_run(self) -> bool:
        """Whether all files belong to one run."""
        return len(self.path) > 1 or self.name is not None


class Spec(_Strict):
    """A whole ``runs.toml``; `folder` is what relative paths are relative to.

    ``[domain]`` holds what all runs have in common and a forecast takes for granted, under any name.
    """

    metric: MetricSpec = MetricSpec()
    compute: ComputeSpec = ComputeSpec()
    domain: dict[Name, str | int | float | bool] = {}
    run: list[RunSpec] = Field(min_length=1)
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="after")
    def _trials(self) -> Spec:
        if self.metric.trials is not None and self.metric.prompts is not None:
            raise ValueError("trials and prompts both give the trials behind a value; keep one")
        return self


def load_spec(path: str | Path) -> Spec:
    """Read a ``runs.toml``.

    Raises
    ------
    InputError
        If it cannot be read, is no TOML, or breaks the schema (unknown keys included); the first problem is
        named with its key.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        twice = "overwrite" in str(error)
        raise InputError(
            "a key is set twice" if twice else "is not TOML",
            where=path,
            found=str(error),
            fix="keep one of the two lines" if twice else "",
        ) from error
    if "folder" in data:
        raise InputError("key folder: unknown key", where=path, fix=_known(("folder",)))
    return make_spec(data | {"folder": path.parent}, where=path)


def make_spec(data: dict[str, Any], *, where: object = "", options: Mapping[str, str] | None = None) -> Spec:
    """Validate a spec given as plain data; every problem is one `InputError`.

    Parameters
    ----------
    data : dict
    where : object
        File, for messages.
    options : mapping of str to str, optional
        Where the spec was made from options: key (``"metric.column"``, ``"run.path"``) -> option.
    """
    try:
        return Spec.model_validate(data)
    except ValidationError as error:
        raise _input_error(error, where, options or {}) from None


def _input_error(error: ValidationError, where: object, options: Mapping[str, str]) -> InputError:
    """Turn the first pydantic problem into one line: file, key, found, expected."""
    problems = error.errors(include_url=False)
    # An unknown key explains the others ("colum" unknown, hence "column" missing): it goes first.
    first = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    location = tuple(part for part in first["loc"] if not _is_union_branch(part))
    key = ".".join(str(part + 1) if isinstance(part, int) else str(part) for part in location)
    option = options.get(".".join(str(part) for part in location if not isinstance(part, int)))
    label = f"{option}: " if option else f"key {key}: " if key else ""
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return InputError(f"{label}unknown key{more}", where=where, fix=_known(first["loc"]))
    if first["type"] == "missing":
        fix = 'add a section [[run]] with path = "..."' if key == "run" else f"add {key}"
        return InputError(f"{label}missing{more}", where=where, fix=fix)
    message = first["msg"].removeprefix("Value error, ")
    if location == ("run",):
        return InputError(f"{label}sections are lists", where=where, fix="write [[run]], not [run]")
    found = repr(first["input"]) if isinstance(first["input"], str | int | float | bool | list) else None
    return InputError(f"{label}{message[0].lower()}{message[1:]}{more}", where=where, found=found)


def _is_union_branch(part: object) -> bool:
    """Pydantic adds the tried type of a union to the location; a person only wants the key."""
    return isinstance(part, str) and (
        part in {"str", "int", "bool", "Column"} or part.startswith(("list[", "tuple[", "constrained"))
    )


def _known(location: tuple[Any, ...]) -> str:
    sections: dict[str, type[BaseModel]] = {"metric": MetricSpec, "compute": ComputeSpec, "run": RunSpec}
    section = sections.get(str(location[0])) if len(location) > 1 else None
    names = list(section.model_fields) if section else ["metric", "compute", "domain", "run"]
    return f"known keys{f' of [{location[0]}]' if section else ''}: {', '.join(names)}"
