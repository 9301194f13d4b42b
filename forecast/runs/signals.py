"""What training logged beside the metric: truncation, prompt groups without variance, entropy, proxy, KL."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd

from forecast.runs.columns import words
from forecast.runs.series import STEP, VALUE
from forecast.runs.table import SIGNALS

_HELD_OUT = {"eval", "val", "valid", "validation", "test", "heldout", "held", "dev"}
_NO_MEAN = {"min", "max", "median", "num", "count", "n", "non"}
_WHERE_LOGGED = {
    "train",
    "training",
    "batch",
    "actor",
    "policy",
    "critic",
    "rollout",
    "rollouts",
    "env",
    "all",
}
_FILLERS = {"mean", "avg", "average", "total", "objective", "metrics", "raw"}

_CUT = {"truncated", "truncation", "trunc", "overlong"}
_CLIPPED = {"clip", "clipped"}
_OF_ROLLOUTS = {"completion", "completions", "response", "responses", "generation", "generations", "length"}
_NOT_A_CUT = {
    # Of the ratio of probabilities, of gradients or of importance weights; of prompts; what is done about it.
    *("pg", "vf", "grad", "high", "low", "region", "importance", "is", "tis", "weight", "weights"),
    *(
        "advantage",
        "advantages",
        "prompt",
        "prompts",
        "reward",
        "rewards",
        "loss",
        "penalty",
        "filter",
        "mask",
    ),
}
_SPREAD = {"std", "sd", "stddev", "var", "variance", "advantage", "advantages", "adv"}
_SCORES = (
    {"score"},
    {"scores"},
    {"accuracy"},
    {"acc"},
    {"pass", "rate"},
    {"solve", "rate"},
    {"success", "rate"},
)
_RATES = {
    "pass",
    "rate",
    "reward",
    "rewards",
    "score",
    "scores",
    "accuracy",
    "acc",
    "mean",
    "solve",
    "success",
}

_KL_NAMES = {
    *("kl", "div", "divergence", "ref", "reference", "base", "initial", "init", "to", "from", "nats"),
    *("token", "tokens", "per", "seq", "sequence"),
}
_LEAST_KL = -0.05
"""A mean of log ratios of probabilities (estimator k1) scatters about a KL of 0 by this much, one further down is a
reward or an error. What is below 0 is kept: cut off row by row, the mean would be too high."""


def per_evaluation(rows: pd.DataFrame, table: pd.DataFrame, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """Mean of every signal since the previous evaluation of the whole prompt set.

    Parameters
    ----------
    rows : pandas.DataFrame
        Records that are the run (see `series.clean`), those without an evaluation too.
    table : pandas.DataFrame
        Its evaluations (see `evaluations.finish`).
    columns : dict of str to ndarray
        Signal -> its value in every row of `rows`; NaN where nothing was logged.

    Returns
    -------
    pandas.DataFrame
        Columns ``compute, signal, value``; no row where nothing was logged since the previous evaluation.
    """
    whole = table[table["stratum"].isna()]
    step = rows[STEP].to_numpy(dtype=float)
    evaluated = rows[VALUE].notna().to_numpy()
    at = whole["step"].to_numpy(dtype=float)
    if np.isnan(at).any():  # no step was logged: the order of the rows stands for it
        order = dict(zip(rows.loc[evaluated, "compute"], step[evaluated], strict=True))
        at = whole["compute"].map(order).to_numpy(dtype=float)
    ends, compute = at[np.isfinite(at)], whole["compute"].to_numpy(dtype=float)[np.isfinite(at)]
    if not len(ends) or not columns:
        return pd.DataFrame(columns=["compute", "signal", "value"])
    # What an evaluation before training comes with is not of training.
    floor = step[evaluated & (step < ends[0])].max(initial=-np.inf)
    since = np.searchsorted(ends, step, side="left")
    parts = []
    for signal, values in columns.items():
        use = np.isfinite(values) & (step > floor) & (since < len(ends))
        count = np.bincount(since[use], minlength=len(ends))
        total = np.bincount(since[use], weights=values[use], minlength=len(ends))
        some = count > 0
        parts.append(
            pd.DataFrame({"compute": compute[some], "signal": signal, "value": total[some] / count[some]})
        )
    return pd.concat(parts, ignore_index=True)


def logged(rows: pd.DataFrame, metric: str) -> tuple[dict[str, np.ndarray], str]:
    """Find the signals among the columns of a run.

    Parameters
    ----------
    rows : pandas.DataFrame
        Its records.
    metric : str
        Column of the metric, which is no signal.

    Returns
    -------
    columns : dict of str to ndarray
        Signal -> its value in every row, NaN where there is no finite number. A column whose values cannot be the
        signal's (a share outside 0-1, a negative entropy, a KL that never moves, as its weight does) gives way to the
        next whose name fits.
    note : str
        Which columns were taken, for a receipt; empty if none was.
    """
    found, taken = {}, []
    for signal, names in recognise(tuple(map(str, rows.columns))).items():
        for name in names:
            values = _numbers(rows[name]) if name != metric else None
            if values is not None and _possible(values, signal):
                found[signal] = values
                taken.append(f"{signal} = {name!r}")
                break
    return found, f"signals of training: {', '.join(taken)}" if taken else ""


def _numbers(cells: pd.Series) -> np.ndarray | None:
    try:
        values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return np.where(np.isfinite(values), values, np.nan)


def _possible(values: np.ndarray, signal: str) -> bool:
    known = values[np.isfinite(values)]
    if signal == "kl" and len(known) > 1 and known.min() == known.max():
        return False
    least = _LEAST_KL if signal == "kl" else -1e-9
    most = np.inf if signal in ("entropy", "kl") else 1 + 1e-9
    return len(known) > 0 and known.min() >= least and known.max() <= most


@lru_cache(maxsize=64)
def recognise(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Columns whose names mean a signal, best first.

    Parameters
    ----------
    names : tuple of str
        Column names.

    Returns
    -------
    dict
        Signal (of `SIGNALS`) -> columns.
    """
    ranked: dict[str, list[tuple[int, int, int, str]]] = {signal: [] for signal in SIGNALS}
    for position, name in enumerate(names):
        found = words(name)
        if name.startswith("__") or not found or _NO_MEAN & set(found):
            continue
        for signal, rank in (
            ("truncation", _truncation(set(found))),
            ("zero_variance", _zero_variance(set(found))),
            ("entropy", _entropy(set(found))),
            ("proxy", _proxy(found)),
            ("kl", _kl(set(found))),
        ):
            if rank is not None:
                ranked[signal].append((rank, len(found), position, name))
    return {signal: tuple(entry[-1] for entry in sorted(some)) for signal, some in ranked.items() if some}


def _truncation(found: set[str]) -> int | None:
    """Whether words mean the share of rollouts that the length limit cut (PPO clips the ratio instead)."""
    if found & (_NOT_A_CUT | _HELD_OUT | _SPREAD):
        return None
    return 0 if found & _CUT or (found & _CLIPPED and found & _OF_ROLLOUTS) else None


def _zero_variance(found: set[str]) -> int | None:
    barred = found & ({"grad", "gradient", "loss"} | _HELD_OUT)
    return 0 if "zero" in found and found & _SPREAD and not barred else None


def _entropy(found: set[str]) -> int | None:
    """Whether words mean the policy's entropy; verl once logged it as its loss, elsewhere a loss has another sign."""
    rest = found - {"entropy"} - _WHERE_LOGGED - _FILLERS - {"token", "tokens", "per", "nats"}
    if "entropy" not in found or not rest <= {"loss"} or (rest and not found & {"actor", "policy"}):
        return None
    return len(rest)


def _proxy(found: list[str]) -> int | None:
    """Whether words mean what training optimises: a proxy by name, a score in training, a reward."""
    own = set(found)
    if own & ({"loss", "gap", "error", "advantage"} | _SPREAD):
        return None
    if "proxy" in own:
        return 0 if own & _RATES or own == {"proxy"} else None
    if own & _HELD_OUT:
        return None
    rest = own - _WHERE_LOGGED - _FILLERS
    if rest in _SCORES and own & _WHERE_LOGGED:
        return 1
    return 2 if rest in ({"reward"}, {"rewards"}) else None


def _kl(found: set[str]) -> int | None:
    """Whether words mean the KL to the reference; others are between two updates, or sampler and trainer, or a weight."""
    if "kl" not in found or found & (_HELD_OUT | {"rollout", "rollouts"}):
        return None
    rest = found - _KL_NAMES - _WHERE_LOGGED - _FILLERS
    if not rest:
        return 0
    if rest == {"loss"} and found & _WHERE_LOGGED:
        return 1
    # verl calls so what it takes off the reward; its weight has one more word.
    return 2 if rest == {"reward", "penalty"} else None
