"""Do flags of second rises and collapses come where real curves move, and only there?

``rlforecast study real-transitions CURVES LOGS``: curves of real RL on tiny transformers, skills worlds whose exact
curves are known, and public logs are watched evaluation by evaluation, as a user would have watched them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from studies import mini_runs, public_logs
from studies.backtest_rows import bar, data_sha256, shown
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.precursors import fallen
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from forecast.outlook.transitions import Flag
    from forecast.runs.table import Runs

Array = NDArray[np.float64]

NAME = "real-transitions"

EVALUATIONS = 40
"""Of a skills run, spaced evenly."""

MOST_EVALUATIONS = 60
"""Of a public log: of a longer one every k-th evaluation is used, so that it takes a minute and not an hour."""

SMOOTH = "drawn, no transition"
PRESETS = {
    "gated": "gated",
    "gap": "far",
    "hidden-gate": "gated",
    "hacked": None,
    "reward-model": None,
}
"""Preset -> class of prompts that rises late; None where the pass rate falls."""
SEEDS = 4
"""Worlds per preset."""

MOVING = (
    "tinyzero-cognitive-countdown",
    "verifier-reward-multi-seed",
    "trl-console-rho-sweep",
    "trl-log-history-qwen35-sweep",
    "grokking-late-jump-and-collapse",
)
"""Public logs some of whose runs rise late or collapse. Beside them the monotone ones are watched."""

TENTH = 0.1
LEAST_LEVEL = 0.05
"""Last pass rate of a class from which it has risen at all."""

MEAN_OF = 3
LEAST_MOVE, SCATTERS = 0.1, 5.0
SMALL = 0.25
"""What a run truly did is read off means of `MEAN_OF` evaluations. It moved if it fell, or rose within one doubling of
compute after a doubling that brought at most the share `SMALL` of that, by `LEAST_MOVE` or `SCATTERS` standard errors,
whichever is more."""

ROUNDING = 2e-3
"""How far the classes may be from adding up to the whole set: they are logged to three digits."""

EVIDENCE = 3.0
"""Log Bayes factor that few stable runs may exceed."""
MOST_STABLE = 0.10

_PANELS = (
    ("trl-console-rho-sweep", "rho0.10_seed43"),
    ("grokking-late-jump-and-collapse", "adamw_sweep_lr_1em3_wd_1p0_seed_0"),
)


@dataclass(frozen=True)
class Moved:
    """What a curve did, by a plain rule.

    Attributes
    ----------
    fall, fall_at : float
        Largest loss after a highest value, and compute where a tenth of it is lost; NaN if that is no move.
    rise, rise_at : float
        Largest gain in one doubling of compute after a flat one, and compute where a tenth of it is made; NaN if none.
    first : bool
        Whether the rise begins near the level that the run began with, so that one steep curve describes it.
    """

    fall: float
    fall_at: float
    rise: float
    rise_at: float
    first: bool


def moved(compute: Array, value: Array) -> Moved:
    """Say what a curve did.

    Parameters
    ----------
    compute, value : ndarray
        Evaluations in order of compute; values as fractions.
    """
    if len(value) < 2 * MEAN_OF:
        return Moved(np.nan, np.nan, np.nan, np.nan, False)
    step = np.diff(value)
    scatter = 1.4826 * float(np.median(np.abs(step - np.median(step)))) / np.sqrt(2)
    least = max(LEAST_MOVE, SCATTERS * scatter * np.sqrt(2 / MEAN_OF))
    mean = np.convolve(value, np.full(MEAN_OF, 1 / MEAN_OF), "valid")
    at = compute[MEAN_OF // 2 : MEAN_OF // 2 + len(mean)]
    low = int(np.argmax(np.maximum.accumulate(mean) - mean))
    fall, fall_at = fallen(at[: low + 1], mean[: low + 1])
    if fall < least:
        fall, fall_at = np.nan, np.nan
    before = mean - np.interp(at / 2, at, mean)
    after = np.interp(2 * at, at, mean) - mean
    rises = (after >= least) & (np.abs(before) <= SMALL * after) & (at >= 2 * at[0])
    if not rises.any():
        return Moved(fall, fall_at, np.nan, np.nan, False)
    k = int(np.argmax(np.where(rises, after, -np.inf)))
    level = mean[k] + TENTH * after[k]
    made = k + int(np.argmax(mean[k:] >= level))
    return Moved(fall, fall_at, float(after[k]), float(at[made]), bool(mean[k] - mean[0] < SMALL * after[k]))


def class_sizes(rates: Array, whole: Array, prompts: int) -> NDArray[np.int64]:
    """Prompts of each class, from the pass rates of the classes and of the whole set.

    Parameters
    ----------
    rates : ndarray, shape (evaluations, classes)
    whole : ndarray, shape (evaluations,)
    prompts : int
        Of the whole set.

    Raises
    ------
    InputError
        If no whole numbers of prompts explain the whole set to within rounding.
    """
    share = np.linalg.lstsq(rates, whole, rcond=None)[0]
    sizes = np.round(share * prompts).astype(np.int64)
    off = float(np.abs(rates @ sizes / prompts - whole).max())
    if sizes.sum() != prompts or sizes.min() < 1 or off > ROUNDING:
        raise InputError(
            "pass rates of classes do not add up to that of the whole set",
            found=f"{' + '.join(map(str, sizes))} prompts, off by {off:.2g}",
            expected=f"{prompts} prompts",
        )
    return sizes


def read_mini(curves: Path) -> dict[str, Runs]:
    """Read the sets of `studies.mini_runs` with the classes of prompts as strata."""
    import pandas as pd

    found = {}
    for key, runs in mini_runs.read(curves).items():
        logs = {name: pd.read_csv(curves / f"{name}.csv") for name in runs.names}
        together = pd.concat(logs.values(), ignore_index=True)
        classes = [str(column) for column in together if str(column).startswith("eval_cls")]
        sizes = class_sizes(
            together[classes].to_numpy(), together["eval_pass_rate"].to_numpy(), mini_runs.PROMPTS
        )
        parts = [runs.table]
        for name, log in logs.items():
            own = runs.table[runs.table["run"] == name]
            log = log.set_index("step").loc[own["step"].to_numpy(dtype=int)]
            for column, size in zip(classes, sizes, strict=True):
                value, trials = log[column].to_numpy(), int(size) * mini_runs.SAMPLES
                parts.append(own.assign(stratum=column.removeprefix("eval_"), value=value, trials=trials))
        found[key] = replace(runs, table=pd.concat(parts, ignore_index=True))
    return found


def read_public(log: public_logs.Log, root: Path) -> Iterator[tuple[str, Runs]]:
    """Yield the files of a folder, thinned; see `studies.public_logs.read`."""
    for before, runs in public_logs.read(log, root):
        overall = runs.overall()
        of_run = overall.groupby("run")["compute"]
        # Counted from the last one, which stays.
        rank = of_run.transform("size") - 1 - of_run.cumcount()
        every = np.ceil(of_run.transform("size") / MOST_EVALUATIONS)
        yield before, replace(runs, table=overall[(rank % every == 0).to_numpy()])


def watched_logs() -> list[public_logs.Log]:
    """Public logs of this study."""
    return [log for log in public_logs.LOGS if log.monotone or log.folder in MOVING]


def watch(runs: Runs, name: str, *, everywhere: bool = False, seed: int = 0) -> Flag:
    """Read a run at its cut-offs, or at every evaluation, as if it had been watched since its start."""
    from forecast.outlook.readings import MINIMUM, cut_offs
    from forecast.outlook.transitions import Watched

    one = runs.select([name])
    watched = Watched(one, seed=seed)
    if everywhere:
        compute = one.overall()["compute"].to_numpy(dtype=float)
        for n in range(MINIMUM, len(compute)):
            # A log that ends here is read here, and at its own cut-offs.
            if n not in cut_offs(len(compute)):
                watched.runs = one.window(upto=float(compute[n - 1]))
                watched.flags()
        watched.runs = one
    return watched.flags()[name]


def flag_row(runs: Runs, flag: Flag) -> dict[str, Any]:
    """What was flagged, and when: of the curve alone, of the prompt classes, and of both."""
    from forecast.inference.priors import get_priors
    from forecast.inference.weighing import MOVES
    from forecast.outlook.averaged import window_decades
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.readings import STATES
    from forecast.outlook.transitions import latched, states

    hazard, decades = Hazard(), window_decades(get_priors("wide"))
    rank = {state: k for k, state in enumerate(STATES)}
    of_curve = states(flag.readings, hazard, decades)
    overall = runs.overall()
    at = overall.loc[overall["run"] == flag.run, "compute"].to_numpy(dtype=float)
    row: dict[str, Any] = {
        "run": flag.run,
        "unit": runs.compute.unit,
        "evaluations": len(at),
    }
    for level in STATES[1:]:
        row[f"curve_{level}"], row[f"curve_{level}_kind"] = np.nan, ""
        for reading, own in zip(flag.readings, of_curve, strict=True):
            kinds = [kind for kind in MOVES if rank[own[kind]] >= rank[level]]
            if kinds:
                # A reading's compute has been through a logarithm and back.
                row[f"curve_{level}"] = float(at[np.argmin(np.abs(at - reading.compute))])
                row[f"curve_{level}_kind"] = max(kinds, key=lambda kind: reading.log_bf[kind])
                break
        reached = [compute for compute, own in flag.strata if rank[own.state] >= rank[level]]
        row[f"strata_{level}"] = min(reached, default=np.nan)
    for before, one in (("", flag), ("curve_", replace(flag, strata=[]))):
        found = latched(one, hazard, decades)
        row |= {f"{before}state": found.state, f"{before}kind": found.kind, f"{before}since": found.since}
    row["by"] = latched(flag, hazard, decades).by
    for kind in MOVES:
        values = [reading.log_bf[kind] for reading in flag.readings]
        best = int(np.argmax(values)) if values else -1
        row[f"log_bf_{kind}"] = values[-1] if values else np.nan
        row[f"most_{kind}"] = values[best] if values else np.nan
        guarded = [reading.log_bf_guarded[kind] for reading in flag.readings]
        row[f"guarded_{kind}"] = guarded[best] if values else np.nan
        row[f"most_guarded_{kind}"] = max(guarded, default=np.nan)
    return row


def curve_of(runs: Runs, name: str) -> tuple[Array, Array]:
    """Compute and pass rate (fraction) of a run."""
    own = runs.overall().query("run == @name")
    return own["compute"].to_numpy(dtype=float), np.asarray(
        runs.metric.to_fraction(own["value"].to_numpy(dtype=float))
    )


def _observed(runs: Runs, name: str) -> dict[str, Any]:
    from forecast.outlook.readings import MINIMUM

    compute, value = curve_of(runs, name)
    found = moved(compute, value)
    first = float(compute[MINIMUM - 1]) if len(compute) >= MINIMUM else np.nan
    ends = {"start": value[:MEAN_OF].mean(), "highest": _highest(value), "end": value[-MEAN_OF:].mean()}
    since = {
        f"{kind}_left": int((compute >= at).sum()) if np.isfinite(at) else 0
        for kind, at in (("rise", found.rise_at), ("collapse", found.fall_at))
    }
    return {**vars(found), **ends, **since, "first_read": first}


def _highest(value: Array) -> float:
    return (
        float(np.convolve(value, np.full(MEAN_OF, 1 / MEAN_OF), "valid").max())
        if len(value) >= MEAN_OF
        else np.nan
    )


def mini(task: Task) -> pd.DataFrame:
    """Watch one run of the tiny transformers at every evaluation."""
    import pandas as pd

    runs = read_mini(Path(task["curves"]))[task["set"]]
    name = task["run"]
    row = flag_row(runs, watch(runs, name, everywhere=True, seed=task["seed"])) | _observed(runs, name)
    row |= {"mark": np.nan, "mark_next": np.nan}
    if task["set"] == "carry":
        own = runs.table.query("run == @name and stratum == 'cls1'")
        at, rate = own["compute"].to_numpy(dtype=float), own["value"].to_numpy(dtype=float)
        first = int(np.argmax(rate >= TENTH * rate[-MEAN_OF:].mean()))
        row |= {"mark": at[first], "mark_next": at[min(first + 1, len(at) - 1)]}
    elif task["set"] == "unstable":
        row["mark"] = row["fall_at"]
    return pd.DataFrame([{"part": "mini", "group": task["set"], **row}])


def skills(task: Task) -> pd.DataFrame:
    """Train one skills world and watch it."""
    import pandas as pd

    from simulators.skills.drawing import draw_smooth
    from simulators.skills.experiment import draw_experiment
    from simulators.skills.presets import preset

    group = task["set"]
    rng = np.random.default_rng([task["seed"], [SMOOTH, *PRESETS].index(group), task["world"]])
    settings = draw_smooth(rng) if group == SMOOTH else preset(group)
    world = draw_experiment(settings, {"recipe1": settings.recipe}, 1, rng, points=EVALUATIONS)
    (name,) = world.runs.names
    row = flag_row(world.runs, watch(world.runs, name, seed=task["seed"]))
    compute = world.curves[world.runs.compute.unit].to_numpy(dtype=float)
    mark = np.nan
    if group in PRESETS:
        risen = PRESETS[group]
        if risen is None:
            mark = fallen(compute, world.curves["pass_rate"].to_numpy())[1]
        else:
            mark = reaches_tenth(compute, world.curves[f"pass_rate_{risen}"].to_numpy())
    return pd.DataFrame([{"part": "skills", "group": group, "world": task["world"], **row, "mark": mark}])


def reaches_tenth(compute: Array, value: Array) -> float:
    """Compute at which an exact curve first reaches a tenth of its last value; NaN if that is next to nothing."""
    if value[-1] < LEAST_LEVEL:
        return np.nan
    level = TENTH * value[-1]
    k = int(np.argmax(value >= level))
    if k == 0:
        return float(compute[0])
    return float(np.interp(level, value[k - 1 : k + 1], compute[k - 1 : k + 1]))


def public(task: Task) -> pd.DataFrame:
    """Watch one run of a public log."""
    import pandas as pd

    log = public_logs.BY_FOLDER[task["folder"]]
    runs = dict(read_public(log, Path(task["root"])))[task["file"]]
    name = task["run"]
    row = flag_row(runs, watch(runs, name, seed=task["seed"])) | _observed(runs, name)
    row["run"] = task["file"] + name
    return pd.DataFrame([{"part": "public", "group": log.folder, **row}])


_PARTS: dict[str, Callable[[Task], pd.DataFrame]] = {"mini": mini, "skills": skills, "public": public}


def work(task: Task) -> pd.DataFrame:
    """Watch one run; one row."""
    return _PARTS[task["part"]](task)


def tasks(curves: Path, logs: Path, worlds: int, seed: int) -> list[Task]:
    """All work: a task per run."""
    made = [
        Task(f"mini/{name}", {"part": "mini", "curves": str(curves), "set": key, "run": name, "seed": seed})
        for key, runs in mini_runs.read(curves).items()
        for name in runs.names
    ]
    for group in (*PRESETS, SMOOTH):
        label = group.replace(", ", "/").replace(" ", "-")
        made += [
            Task(f"skills/{label}/{k:03d}", {"part": "skills", "set": group, "world": k, "seed": seed})
            for k in range(worlds if group == SMOOTH else SEEDS)
        ]
    for log in watched_logs():
        names = [(before, name) for before, runs in public_logs.read(log, logs) for name in runs.names]
        made += [
            Task(
                f"public/{log.folder}/{k:03d}",
                {
                    "part": "public",
                    "root": str(logs),
                    "folder": log.folder,
                    "file": before,
                    "run": name,
                    "seed": seed,
                },
            )
            for k, (before, name) in enumerate(names)
        ]
    return made


_CHANNELS = {"curve": "curve alone", "strata": "prompt classes", "both": "both"}


def _first(rows: pd.DataFrame, channel: str, level: str) -> pd.Series:
    """Compute at which `level` was first reached."""
    if channel == "both":
        return rows[[f"curve_{level}", f"strata_{level}"]].min(axis=1)
    return rows[f"{channel}_{level}"]


def stable_shares(rows: pd.DataFrame) -> dict[str, float]:
    """Shares of the stable recipes' runs with evidence of a move, or a flag."""
    own = rows[rows["group"] == "stable"]
    end = own[["log_bf_rise", "log_bf_collapse"]].max(axis=1) > EVIDENCE
    ever = own[["most_rise", "most_collapse"]].max(axis=1) > EVIDENCE
    held = own[["most_guarded_rise", "most_guarded_collapse"]].max(axis=1) > EVIDENCE
    found = {
        "runs": float(len(own)),
        "end": float(end.mean()),
        "ever": float(ever.mean()),
        "guarded": float(held.mean()),
    }
    for level in ("watch", "alarm"):
        for channel in ("curve", "strata"):
            found[f"{channel}_{level}"] = float(_first(own, channel, level).notna().mean())
    return found


def mini_text(rows: pd.DataFrame) -> str:
    """Tables of the tiny transformers and what was asked of them."""
    lines = [
        "### Tiny transformers, read at every evaluation",
        "",
        "Carry: one class of prompts rises late; C10 is the first evaluation at which it reaches a tenth of its last level. Watch and alarm in multiples of C10.",
        "",
        "| run | C10 (FLOP) | watch, curve | alarm, curve | watch, classes | alarm, classes | next evaluation | state at the end |",
        "|---" * 8 + "|",
    ]
    carry = rows[rows["group"] == "carry"]
    for _, row in carry.iterrows():
        times = [
            shown(row[f"{channel}_{level}"] / row["mark"], ".2f")
            for channel in ("curve", "strata")
            for level in ("watch", "alarm")
        ]
        end = _state(row["state"], row["kind"], row["by"])
        after = shown(row["mark_next"] / row["mark"], ".2f")
        lines.append(f"| {row['run']} | {row['mark']:.3g} | {' | '.join(times)} | {after} | {end} |")
    lines += [
        "",
        "Learning rate 1e-3: rises, then falls. In multiples of the compute at which a tenth of the fall is made.",
        "",
        "| run | start | highest | last | fall begins (FLOP) | watch | alarm | state at the end |",
        "|---" * 8 + "|",
    ]
    for _, row in rows[rows["group"] == "unstable"].iterrows():
        levels = " | ".join(shown(row[name], ".2f") for name in ("start", "highest", "end"))
        flags = " | ".join(
            f"{shown(row[f'curve_{level}'] / row['mark'], '.2f')} {row[f'curve_{level}_kind']}".strip()
            for level in ("watch", "alarm")
        )
        end = _state(row["state"], row["kind"], row["by"])
        lines.append(f"| {row['run']} | {levels} | {shown(row['mark'], '.3g')} | {flags} | {end} |")
    share = stable_shares(rows)
    lines += [
        "",
        "| stable runs | log Bayes factor > 3 at the end | at any evaluation | the same against slow noise and one steep rise | watch ever, curve | alarm ever, curve | watch ever, classes | alarm ever, classes |",
        "|---" * 8 + "|",
        f"| {share['runs']:.0f} | {share['end']:.3f} | {share['ever']:.3f} | {share['guarded']:.3f} | {share['curve_watch']:.2f} | {share['curve_alarm']:.2f} | {share['strata_watch']:.2f} | {share['strata_alarm']:.2f} |",
        "",
        "Asked:",
        "",
    ]
    for channel in ("curve", "both"):
        alarm = _first(carry, channel, "alarm")
        what = f"carry, {'curve alone' if channel == 'curve' else 'with prompt classes'}"
        lines += [
            bar(
                f"{what}: share with an alarm by the evaluation after C10",
                float((alarm <= carry["mark_next"]).mean()),
                least=1.0,
            ),
            bar(
                f"{what}: share with an alarm before half of C10",
                float((alarm < carry["mark"] / 2).mean()),
                most=0.0,
            ),
        ]
    fell = rows[rows["group"] == "unstable"]
    lines += [
        bar("stable: share with log Bayes factor > 3 at the end", share["end"], most=MOST_STABLE),
        bar("stable: the same at any evaluation", share["ever"], most=MOST_STABLE),
        bar("stable: also against slow noise and one steep rise", share["guarded"], most=MOST_STABLE),
        bar(
            "learning rate 1e-3: share that ends as an alarm of a collapse",
            float(((fell["state"] == "alarm") & (fell["kind"] == "collapse")).mean()),
            least=1.0,
        ),
    ]
    flagged = rows[(rows["group"] == "stable") & (rows["state"] != "prior_only")]
    if len(flagged):
        lines += ["", "Stable runs with a flag:", ""]
        lines += [
            f"- {row['run']}: {_state(row['state'], row['kind'], row['by'])} since {row['since']:.3g} FLOP; largest log Bayes factor rise {row['most_rise']:.1f}, collapse {row['most_collapse']:.1f}"
            for _, row in flagged.iterrows()
        ]
    return "\n".join(lines)


def _state(state: str, kind: str, by: str) -> str:
    return state if state == "prior_only" else f"{state}, {kind} ({by})"


def skills_text(rows: pd.DataFrame) -> str:
    """Table of the skills worlds."""
    lines = [
        "### Skills worlds",
        "",
        "Flags by kind, and compute of the first alarm in multiples of that at which the late class reaches a tenth of its last level, or a tenth of the fall is made (exact curve): median (range).",
        "",
        "| worlds | runs | that move | alarm: rise, curve | alarm: collapse, curve | alarm, classes | watch only | alarm / move, curve | alarm / move, classes | alarm / move, both | alarm before half |",
        "|---" * 11 + "|",
    ]
    for group in (SMOOTH, *PRESETS):
        own = rows[rows["group"] == group]
        if own.empty:
            continue
        counts = [(own["curve_alarm_kind"] == kind).sum() for kind in ("rise", "collapse")]
        watches = _first(own, "both", "watch").notna() & _first(own, "both", "alarm").isna()
        times = [_spread(_first(own, channel, "alarm") / own["mark"]) for channel in _CHANNELS]
        early = int((_first(own, "both", "alarm") < own["mark"] / 2).sum())
        lines.append(
            f"| {group} | {len(own)} | {own['mark'].notna().sum()} | {counts[0]} | {counts[1]} | {own['strata_alarm'].notna().sum()} | {watches.sum()} | {' | '.join(times)} | {early} |"
        )
    return "\n".join(lines)


def _spread(times: pd.Series) -> str:
    known = times.dropna()
    if known.empty:
        return "-"
    return f"{known.median():.2f} ({known.min():.2f}-{known.max():.2f})"


def truth_text(row: pd.Series) -> str:
    """What a run truly did, in words."""
    parts = []
    if np.isfinite(row["rise"]):
        parts.append(f"{'first rise, late' if row['first'] else 'second rise'} ({row['rise']:+.2f})")
    if np.isfinite(row["fall"]):
        parts.append(f"falls ({-row['fall']:+.2f})")
    return ", ".join(parts) or "neither"


def verdict(row: pd.Series) -> str:
    """Whether the flags of a run agree with what it did, and if not, why."""
    kinds = {"rise": np.isfinite(row["rise"]), "collapse": np.isfinite(row["fall"])}
    second = kinds | {"rise": kinds["rise"] and not row["first"]}
    if row["state"] == "alarm":
        if not any(kinds.values()):
            return f"FALSE ALARM ({row['kind']})"
        alarm, kind = row["curve_alarm"], row["curve_alarm_kind"]
        if not kinds[kind]:
            return f"alarm of a {kind}, which did not come"
        at = row["rise_at"] if kind == "rise" else row["fall_at"]
        first = " of a first rise" if kind == "rise" and row["first"] else ""
        return f"alarm{first} at {alarm / at:.2f} x its beginning"
    for kind, at in (("collapse", row["fall_at"]), ("rise", row["rise_at"])):
        if second[kind]:
            return f"MISSED {kind}: {_why(row, kind, at)}"
    return "first rise: one steep curve, no flag due" if kinds["rise"] else "no flag due"


def _why(row: pd.Series, kind: str, at: float) -> str:
    if not np.isfinite(row["first_read"]):
        return f"{row['evaluations']} evaluations, too few to be read"
    if at < row["first_read"]:
        return "begins before the eighth evaluation"
    left = row[f"{kind}_left"]
    most, guarded = row[f"most_{kind}"], row[f"guarded_{kind}"]
    evidence = f"log Bayes factor at most {most:.1f}"
    if most > EVIDENCE and guarded <= EVIDENCE:
        return f"{evidence}, but slow noise or one steep rise explains it ({guarded:.1f})"
    if most > EVIDENCE:
        return f"{evidence}, held back: no suspicious evaluation before it"
    if left <= MEAN_OF:
        return f"{evidence}; {left:.0f} evaluations since it began"
    return f"{evidence} in the {left:.0f} evaluations since it began: noise or a smooth curve explains it as well"


def public_text(rows: pd.DataFrame) -> str:
    """Tables of the public logs: those that move or are flagged, then a count of the rest."""
    lines = [
        "### Public logs, watched at their cut-offs",
        "",
        "Runs that moved, by the rule below, or were flagged. Levels are means of three evaluations, as fractions.",
        "",
        "| folder | run | evaluations | start, highest, last | truly | first watch | first alarm | state at the end | verdict |",
        "|---" * 9 + "|",
    ]
    told = rows[rows["rise"].notna() | rows["fall"].notna() | (rows["state"] != "prior_only")]
    for _, row in told.iterrows():
        levels = ", ".join(shown(row[name], ".2f") for name in ("start", "highest", "end"))
        flags = " | ".join(
            f"{shown(row[f'curve_{level}'], '.4g')} {row[f'curve_{level}_kind']}".strip()
            for level in ("watch", "alarm")
        )
        end = row["state"] if row["state"] == "prior_only" else f"{row['state']}, {row['kind']}"
        lines.append(
            f"| {row['group']} | {row['run']} | {row['evaluations']} | {levels} | {truth_text(row)} | {flags} | {end} | {verdict(row)} |"
        )
    lines += [
        "",
        "Runs that did not move:",
        "",
        "| folder | monotone | runs | of them read (8 evaluations) | watch only | alarm: rise | alarm: collapse |",
        "|---" * 7 + "|",
    ]
    still = rows[rows["rise"].isna() & rows["fall"].isna()]
    for group, own in still.groupby("group", sort=False):
        mark = "yes" if public_logs.BY_FOLDER[str(group)].monotone else "no"
        lines.append(f"| {group} | {mark} | {_counts(own)} |")
    monotone = still[[public_logs.BY_FOLDER[str(group)].monotone for group in still["group"]]]
    lines.append(f"| monotone logs together | yes | {_counts(monotone)} |")
    return "\n".join(lines)


def _counts(own: pd.DataFrame) -> str:
    counts = [
        len(own),
        own["first_read"].notna().sum(),
        (own["state"] == "watch").sum(),
        *((own["curve_alarm_kind"] == kind).sum() for kind in ("rise", "collapse")),
    ]
    return " | ".join(str(count) for count in counts)


NOTES = f"""\
- The wandering noise, the families and the thresholds of the flags were chosen with the tiny transformers, skills
  worlds and some of the public logs in view; none of this is out of sample. The warm start sets how late the carry
  class rises.
- All curves of a task of the tiny transformers share one checkpoint and one evaluation set, so alarms of several
  seeds are not as many independent cases.
- What a public run "truly" did is a rule, not a fact: a move is one of {LEAST_MOVE:g} or {SCATTERS:g} standard errors in means of
  {MEAN_OF} evaluations; a rise must come within a doubling of compute, after a doubling that brought at most a quarter of it.
  It knows nothing of causes, and sees no move in fewer than {2 * MEAN_OF} evaluations.
- Public logs of more than {MOST_EVALUATIONS} evaluations are thinned to that many, the last one included. Rewards in training are
  of other prompts at every evaluation.
- A state does not fall: "state at the end" is the highest that there was.
"""


def _numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Columns that hold no number in most parts come back from their files as objects."""
    return rows.astype({column: float for column in rows if rows[column].dtype == object})


def markdown(rows: pd.DataFrame) -> str:
    """All tables."""
    parts = {name: rows[rows["part"] == name] for name in _PARTS}
    texts = {"mini": mini_text, "skills": skills_text, "public": public_text}
    told = [text(parts[name]) for name, text in texts.items() if len(parts[name])]
    return "\n\n".join([*told, "### Notes", NOTES])


@dataclass(frozen=True)
class Panel:
    """One curve of the figure."""

    title: str
    unit: str
    compute: Array
    value: Array
    row: pd.Series


_LINES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("curve", "watch"): ("first watch, curve", {"color": "#56b4e9", "ls": "--", "lw": 1.6}),
    ("curve", "alarm"): ("first alarm, curve", {"color": "#d55e00", "ls": "-", "lw": 2.2}),
    ("strata", "alarm"): ("first alarm, prompt classes", {"color": "#000000", "ls": "-.", "lw": 1.4}),
}


def figure(panels: Sequence[Panel]) -> Figure:
    """Small curves with what was flagged on them."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = 3
    height = -(-len(panels) // columns)
    drawn = Figure(figsize=(11, 2.5 * height + 0.8), layout="constrained")
    axes = np.atleast_1d(drawn.subplots(height, columns, squeeze=False)).ravel()
    for k, (place, panel) in enumerate(zip(axes, panels, strict=False)):
        _draw(place, panel)
        if k % columns == 0:
            place.set_ylabel("pass rate", fontsize=8)
    for place in axes[len(panels) :]:
        place.set_visible(False)
    handles = [Line2D([], [], label=label, **style) for label, style in _LINES.values()]
    handles.append(Line2D([], [], label="move begins", color="#999999", ls="", marker="^", ms=8))
    drawn.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return drawn


def delay_figure(rows: pd.DataFrame) -> Figure:
    """First alarms of the skills worlds that move, in multiples of where the move begins."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 3.2), layout="constrained")
    axes = drawn.subplots()
    groups = [group for group in PRESETS if (rows["group"] == group).any()]
    for k, (channel, marker) in enumerate((("curve", "o"), ("strata", "x"))):
        for place, group in enumerate(groups):
            own = rows[rows["group"] == group]
            times = (_first(own, channel, "alarm") / own["mark"]).dropna()
            axes.plot(
                times,
                np.full(len(times), place + 0.2 * k - 0.1),
                marker,
                color=("#d55e00", "#000000")[k],
                label=_CHANNELS[channel] if place == 0 else None,
            )
    axes.axvline(1.0, color="#999999", lw=1, ls=":")
    axes.set_yticks(range(len(groups)), groups)
    axes.set_ylim(-0.5, len(groups) - 0.5)
    axes.set_xlabel("compute at the first alarm / compute at which the move begins")
    drawn.legend(loc="outside upper center", ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _draw(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import NullFormatter

    axes.plot(panel.compute, panel.value, "o-", color="#444444", ms=3, lw=0.8)
    for (channel, level), (_, style) in _LINES.items():
        at = panel.row[f"{channel}_{level}"]
        if np.isfinite(at):
            axes.axvline(at, zorder=0, **style)
    marks = (panel.row.get(name, np.nan) for name in ("mark", "rise_at", "fall_at"))
    known = [at for at in marks if np.isfinite(at)]
    if known:
        axes.plot(known[0], 0.0, "^", color="#999999", ms=8, clip_on=False, zorder=3)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.02)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel(panel.unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def panels(rows: pd.DataFrame, curves: Path, logs: Path) -> list[Panel]:
    """Carry runs, runs that fall, and two public ones."""
    found = []
    sets = mini_runs.read(curves)
    for key in ("carry", "unstable"):
        for name in sets[key].names:
            for _, row in rows[(rows["part"] == "mini") & (rows["run"] == name)].iterrows():
                found.append(Panel(name, "FLOP", *curve_of(sets[key], name), row))
    for folder, name in _PANELS:
        if not ((rows["group"] == folder) & (rows["run"] == name)).any():
            continue
        ((_, runs),) = read_public(public_logs.BY_FOLDER[folder], logs)
        row = rows[(rows["group"] == folder) & (rows["run"] == name)].iloc[0]
        short = name.removeprefix("adamw_sweep_")
        found.append(Panel(f"{folder}\n{short}", runs.compute.unit, *curve_of(runs, name), row))
    return found


@click.command(NAME)
@click.argument("curves", type=click.Path(exists=True, file_okay=False))
@click.argument("logs", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--worlds",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="Skills worlds without a transition.",
)
@click.option("--only", type=click.Choice(list(_PARTS)), multiple=True, help="Only this part; repeatable.")
@study_options
def real_transitions(curves: str, logs: str, worlds: int, only: tuple[str, ...], where: Where) -> None:
    """Do flags of second rises and collapses come where real curves move, and only there?

    CURVES holds one CSV file per run of the tiny transformers, LOGS the collection of public logs, one folder per
    source.
    """
    of_curves, of_logs = Path(curves).resolve(), Path(logs).resolve()
    public_logs.check_root(of_logs)

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        rows = _numbers(rows)
        curves_shown = panels(rows, of_curves, of_logs)
        return figure(curves_shown) if curves_shown else delay_figure(rows), markdown(rows)

    data = [*read_mini(of_curves).values()]
    data += [runs for log in watched_logs() for _, runs in read_public(log, of_logs)]
    conduct(
        NAME,
        work,
        [task for task in tasks(of_curves, of_logs, worlds, where.seed) if not only or task["part"] in only],
        report,
        where,
        title="Flags of second rises and collapses on real curves",
        options={"worlds": worlds} | ({"only": " --only ".join(only)} if only else {}),
        arguments=f"{shlex.quote(curves)} {shlex.quote(logs)}",
        data_sha256=data_sha256(data),
    )
