"""The run table: one row per evaluation of a run, with both axes declared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.files import replacing
from forecast.runs.receipt import Receipt

KINDS = ("pass_rate", "pass_at_k", "accuracy", "reward", "preference", "error_rate")
SPLITS = ("train", "validation", "test")
UNITS = ("gpu_hours", "flops", "tokens", "rollouts", "steps")
SIGNALS = ("truncation", "zero_variance", "entropy", "proxy", "kl")
"""What training logs beside the metric: the share of rollouts cut at the length limit, the share of prompt groups whose
rollouts all got the same reward, entropy (nats), the pass rate or reward that is optimised (0-1), and the KL divergence
of the policy from its reference (nats, per token or per answer as logged; an estimate may be just below 0)."""

SEVERAL = " | "
"""Between the values of a domain that tables put together declare differently."""

_DTYPES: dict[str, Any] = {
    "run": "str",
    "recipe": "str",
    "compute": "float64",
    "value": "float64",
    "trials": "Int64",
    "stratum": "str",
    "step": "Float64",
    "seed": "Int64",
    "model": "str",
    "task": "str",
    "source": "str",
    "source_row": "Int64",
}
COLUMNS = tuple(_DTYPES)

_SIGNAL_DTYPES: dict[str, Any] = {"run": "str", "compute": "float64", "signal": "str", "value": "float64"}
SIGNAL_COLUMNS = tuple(_SIGNAL_DTYPES)


@dataclass(frozen=True)
class Metric:
    """The y-axis.

    Attributes
    ----------
    name : str
        Column or key the values were read from.
    kind : str
        One of `KINDS`.
    split : str
        One of `SPLITS`: where the prompts came from.
    scale : tuple of float
        The logged values that mean 0 and 1: ``(0, 100)`` for percent, ``(-1, 1)`` for rewards of -1/+1,
        ``(1, 0)`` for an error rate.
    chance : float
        Fraction (0-1) that guessing scores.
    prompts, samples_per_prompt : int or None
        Size of one evaluation; their product is the number of Bernoulli trials behind a value.
    """

    name: str
    kind: str = "pass_rate"
    split: str = "validation"
    scale: tuple[float, float] = (0.0, 1.0)
    chance: float = 0.0
    prompts: int | None = None
    samples_per_prompt: int | None = None

    def __post_init__(self) -> None:
        _one_of("metric kind", self.kind, KINDS)
        _one_of("metric split", self.split, SPLITS)
        zero, one = self.scale
        if not (np.isfinite(zero) and np.isfinite(one) and zero != one):
            raise InputError("metric scale needs two different finite numbers", found=list(self.scale))
        if not 0 <= self.chance < 1:
            raise InputError("chance must be a fraction", found=self.chance, expected="0 <= chance < 1")
        for what in ("prompts", "samples_per_prompt"):
            if (size := getattr(self, what)) is not None and size < 1:
                raise InputError(f"{what} must be at least 1", found=size)

    @property
    def trials(self) -> int | None:
        """Bernoulli trials behind one evaluation, if declared."""
        return None if self.prompts is None else self.prompts * (self.samples_per_prompt or 1)

    def to_fraction(self, value: Any) -> Any:
        """Map logged values to 0-1."""
        zero, one = self.scale
        return (value - zero) / (one - zero)

    def from_fraction(self, fraction: Any) -> Any:
        """Map 0-1 to the logged scale."""
        zero, one = self.scale
        return zero + fraction * (one - zero)

    @property
    def caveat(self) -> str:
        """What every output must say about this metric; empty for a held-out pass rate."""
        if self.kind == "reward":
            return f"y is a reward ({self.split}), not a pass rate: a rising reward need not be a rising pass rate"
        if self.kind == "preference":
            return (
                "y is a preference rate, not a pass rate: it says which answer is liked, not which is right"
            )
        if self.split == "train":
            return "y is measured on training prompts: held-out performance may be lower"
        return ""


@dataclass(frozen=True)
class ComputeAxis:
    """The x-axis: cumulative compute in one unit.

    Attributes
    ----------
    unit : str
        One of `UNITS`.
    derivation : str
        How it was obtained, in words (``"sum of perf/time_per_step x 0.0222"``).
    price_per_unit : float or None
        Money per unit.
    """

    unit: str
    derivation: str = "as logged"
    price_per_unit: float | None = None

    def __post_init__(self) -> None:
        _one_of("compute unit", self.unit, UNITS)


@dataclass(frozen=True)
class Floor:
    """Evaluation before any RL compute (step 0), on the metric's scale."""

    value: float
    trials: int | None = None


@dataclass(frozen=True)
class Runs:
    """Evaluations of one or more runs on two declared axes.

    Attributes
    ----------
    table : pandas.DataFrame
        Columns `COLUMNS`, sorted by run, stratum and compute. ``compute`` > 0 is cumulative and strictly
        increasing within a run (and stratum); ``value`` is on the metric's scale. Rows with a ``stratum`` are
        evaluations of one prompt class, rows without are evaluations of the whole set.
    metric, compute : Metric, ComputeAxis
        The declared axes.
    floors : mapping of str to Floor
        Step-0 evaluation per run, where there is one.
    receipts : tuple of Receipt
        How the sources were read.
    signals : pandas.DataFrame
        Columns `SIGNAL_COLUMNS`: for every evaluation of the whole set, the mean of each signal (of `SIGNALS`) that
        was logged in training since the previous one; no row where nothing was. Signals at a run or compute without
        such an evaluation are left out, so they are cut as the table is. Fits do not use them, and `hash` does not
        see them.
    domain : mapping of str to str
        What the runs had in common besides the axes and a forecast takes for granted (context length, verifier, epochs,
        batch), as declared. Fits and `hash` do not use it.
    """

    table: pd.DataFrame
    metric: Metric
    compute: ComputeAxis
    floors: Mapping[str, Floor] = field(default_factory=dict)
    receipts: tuple[Receipt, ...] = ()
    signals: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(SIGNAL_COLUMNS)))
    domain: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _normalise(self.table))
        _check_table(self.table, self.metric)
        unknown = set(self.floors) - set(self.names)
        if unknown:
            raise InputError(f"floor given for runs that are not in the table: {sorted(unknown)}")
        for run, floor in self.floors.items():
            _check_value(floor.value, self.metric, f"run {run}, step 0")
        object.__setattr__(self, "signals", _normalise_signals(self.signals, self.overall()))

    @property
    def names(self) -> list[str]:
        """Run names, in table order."""
        return list(dict.fromkeys(self.table["run"]))

    @property
    def recipes(self) -> dict[str, str]:
        """Run -> recipe."""
        return dict(zip(self.table["run"], self.table["recipe"], strict=True))

    def overall(self) -> pd.DataFrame:
        """Rows that evaluate the whole prompt set (no stratum)."""
        return self.table[self.table["stratum"].isna()].reset_index(drop=True)

    def window(self, start: float | None = None, upto: float | None = None) -> Runs:
        """Keep evaluations with ``start <= compute <= upto``; runs left without any are dropped."""
        keep = np.ones(len(self.table), dtype=bool)
        if start is not None:
            keep &= (self.table["compute"] >= start).to_numpy()
        if upto is not None:
            keep &= (self.table["compute"] <= upto).to_numpy()
        return self._with_table(self.table[keep])

    def select(self, runs: Iterable[str]) -> Runs:
        """Keep the named runs."""
        wanted = set(runs)
        return self._with_table(self.table[self.table["run"].isin(wanted)])

    def _with_table(self, table: pd.DataFrame) -> Runs:
        left = set(table["run"])
        return replace(self, table=table, floors={r: f for r, f in self.floors.items() if r in left})

    def hash(self) -> str:
        """SHA-256 over rows, floors and declared axes (not over signals, receipts or file locations)."""
        data = self.table.drop(columns=["source", "source_row"])
        text = data.to_json(orient="split", double_precision=15) + json.dumps(
            self._declared(), sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def _declared(self) -> dict[str, Any]:
        return {
            "metric": asdict(self.metric),
            "compute": asdict(self.compute),
            "floors": {run: asdict(floor) for run, floor in sorted(self.floors.items())},
        }

    def save(self, path: str | Path) -> None:
        """Write one Parquet file with the declared axes, floors, receipts and signals in its metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        meta = self._declared() | {
            "receipts": [r.to_dict() for r in self.receipts],
            "signals": self.signals.to_dict(orient="list"),
            "domain": dict(self.domain),
        }
        arrow = pa.Table.from_pandas(self.table, preserve_index=False)
        arrow = arrow.replace_schema_metadata(
            (arrow.schema.metadata or {}) | {b"rlforecast": json.dumps(meta).encode()}
        )
        with replacing(path) as temporary:
            pq.write_table(arrow, temporary)

    @classmethod
    def load(cls, path: str | Path) -> Runs:
        """Read a file written by `save`.

        Raises
        ------
        InputError
            If the file is not a run table.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            arrow = pq.read_table(path)
            meta = json.loads((arrow.schema.metadata or {})[b"rlforecast"])
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise InputError(
                "not a run table saved by rlforecast", where=path, found=type(error).__name__
            ) from error
        metric = meta["metric"] | {"scale": tuple(meta["metric"]["scale"])}
        return cls(
            table=arrow.to_pandas(),
            metric=Metric(**metric),
            compute=ComputeAxis(**meta["compute"]),
            floors={run: Floor(**floor) for run, floor in meta["floors"].items()},
            receipts=tuple(Receipt.from_dict(r) for r in meta["receipts"]),
            # Files of earlier versions hold neither.
            signals=pd.DataFrame(meta.get("signals", {}), columns=list(SIGNAL_COLUMNS)),
            domain=meta.get("domain", {}),
        )


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"unknown {what}", found=repr(value), expected=" | ".join(allowed))


def _normalise(table: pd.DataFrame) -> pd.DataFrame:
    missing = [c for c in ("run", "compute", "value") if c not in table]
    if missing:
        raise InputError(f"run table lacks column {missing[0]!r}", found=list(table.columns))
    table = table.copy()
    if "recipe" not in table:
        table["recipe"] = table["run"]
    for column, dtype in _DTYPES.items():
        values = table[column] if column in table else pd.Series(pd.NA, index=table.index)
        try:
            table[column] = values.astype(dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise _unreadable(table, column, dtype) from error
    table = table[list(COLUMNS)]
    return table.sort_values(["run", "stratum", "compute"], kind="stable").reset_index(drop=True)


def _normalise_signals(signals: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """Signals at `evaluations`, in order."""
    missing = [c for c in SIGNAL_COLUMNS if c not in signals]
    if missing:
        raise InputError(f"table of signals lacks column {missing[0]!r}", found=list(signals.columns))
    signals = signals[list(SIGNAL_COLUMNS)].astype(_SIGNAL_DTYPES)
    if signals.empty:
        return signals.reset_index(drop=True)
    if unknown := sorted(set(signals["signal"]) - set(SIGNALS)):
        raise InputError("unknown signal", found=repr(unknown[0]), expected=" | ".join(SIGNALS))
    if (bad := ~np.isfinite(signals["value"].to_numpy())).any():
        row = signals[bad].iloc[0]
        raise InputError("signal is not a finite number", where=f"run {row['run']}", found=row["value"])
    key = ["run", "compute"]
    known = pd.MultiIndex.from_frame(signals[key]).isin(pd.MultiIndex.from_frame(evaluations[key]))
    return signals[known].sort_values(["run", "signal", "compute"], kind="stable").reset_index(drop=True)


def _unreadable(table: pd.DataFrame, column: str, dtype: str) -> InputError:
    """Name the first row of `column` that is not of its type."""
    numbers = pd.to_numeric(table[column], errors="coerce").astype(float)
    bad = numbers.isna() & table[column].notna()
    if dtype == "Int64":
        bad |= numbers.notna() & (numbers % 1 != 0)
    row = table[bad].iloc[0] if bad.any() else table.iloc[0]
    return InputError(
        f"{column} is not {'a whole number' if dtype == 'Int64' else 'a number'}",
        where=_where(row),
        found=row[column],
    )


def _where(row: pd.Series) -> str:
    parts = [] if pd.isna(row.get("source")) else [str(row["source"])]
    if not pd.isna(row.get("source_row")):
        parts.append(f"row {row['source_row']}")
    if not pd.isna(row["run"]):
        parts.append(f"run {row['run']}")
    return ", ".join(parts)


def _check_value(value: float, metric: Metric, where: str) -> None:
    fraction = metric.to_fraction(value)
    if not -1e-9 <= fraction <= 1 + 1e-9:
        zero, one = metric.scale
        raise InputError(
            f"value outside the declared scale of {metric.name!r}",
            where=where,
            found=f"{value:g}",
            expected=f"{min(zero, one):g} to {max(zero, one):g}",
            fix="declare the scale: [0, 100] for percent, [-1, 1] for rewards of -1/+1 (option --scale LOW,HIGH)",
        )


def _check_table(table: pd.DataFrame, metric: Metric) -> None:
    for column in ("run", "recipe"):
        if (bad := table[column].isna().to_numpy()).any():
            row = table[bad].iloc[0]
            raise InputError(f"{column} has no name", where=_where(row), found=f"compute {row['compute']:g}")
    for column in ("compute", "value"):
        bad = ~np.isfinite(table[column].to_numpy(dtype=float))
        if bad.any():
            row = table[bad].iloc[0]
            raise InputError(f"{column} is not a finite number", where=_where(row), found=row[column])
    bad = (table["compute"] <= 0).to_numpy()
    if bad.any():
        row = table[bad].iloc[0]
        raise InputError(
            "compute must be positive (the evaluation before training is the run's floor)",
            where=_where(row),
            found=f"{row['compute']:g}",
        )
    fraction = metric.to_fraction(table["value"].to_numpy())
    bad = (fraction < -1e-9) | (fraction > 1 + 1e-9)
    if bad.any():
        row = table[bad].iloc[0]
        _check_value(float(row["value"]), metric, _where(row))
    bad = (table["trials"].fillna(1) < 1).to_numpy(dtype=bool)
    if bad.any():
        row = table[bad].iloc[0]
        raise InputError("trials must be at least 1", where=_where(row), found=row["trials"])
    repeated = table.duplicated(["run", "stratum", "compute"]).to_numpy()
    if repeated.any():
        row = table[repeated].iloc[0]
        raise InputError(
            "two evaluations of one run at the same compute",
            where=_where(row),
            found=f"compute {row['compute']:g} twice",
            fix="name the runs apart (--run COLUMN) or remove the repeated evaluation",
        )
    mixed = table.groupby("run")["recipe"].nunique()
    if (mixed > 1).any():
        run = mixed[mixed > 1].index[0]
        raise InputError(
            f"run {run!r} carries several recipes",
            found=sorted(set(table.loc[table["run"] == run, "recipe"])),
            expected="one recipe per run",
        )
