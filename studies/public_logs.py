"""What becomes of real public run logs: which runs are forecast, how well, and which are refused, and why?

``rlforecast study public-logs ROOT``: every run of the folders named below is cut at a quarter and a half of its
compute, fitted by itself, and scored on all that came later. These are the logs that the readers were tested on; the
runs differ in quality, and most were evaluated on few prompts.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from forecast.errors import InputError
from studies.backtest_rows import (
    ABOUT,
    FEW,
    SKIPPED,
    backtest_rows,
    bar,
    data_sha256,
    scores,
    scores_by_run,
    shown,
)
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options
from studies.study_figures import coverage_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecast.runs.table import Runs

NAME = "public-logs"
CUTS = (0.25, 0.5)
BOTH = "both"
NO_OUTCOME = "no outcome"
"""Method of the row of a folder in which nothing can be forecast."""

MOST_CRPS_RATIO, LEAST_COVERAGE_95 = 0.85, 0.92
"""Asked of the monotone logs, at each cut."""

_TRAIN = {"split": "train"}
_REWARD = {"kind": "reward", "split": "train"}


@dataclass(frozen=True)
class Log:
    """A folder and how a user would declare its axes.

    Attributes
    ----------
    folder : str
    options : dict or None
        Of `forecast.read_runs`; None where nothing in the folder is an outcome.
    files : tuple of str
        Read one by one.
    monotone : bool
        Whether pass rates rise throughout, as the family assumes: these are pooled.
    """

    folder: str
    options: dict[str, Any] | None
    files: tuple[str, ...] = ("",)
    monotone: bool = False


LOGS = (
    Log(
        "curriculum-phases-csv-jsonl-console",
        {"metric": "final_answer_accuracy", "trials": "n_scored"},
        ("metrics.jsonl",),
    ),
    Log("grokking-late-jump-and-collapse", {"metric": "test_accuracy"}),
    Log("grpo-crash-timeout-resume-chain", {"metric": "reward", **_REWARD}),
    Log("mixed-runs-one-jsonl", {"metric": "mean_reward", **_TRAIN}, ("grpo_log.jsonl",)),
    Log("oi-ds15b-aime-solve-rate", {"stratum": "dataset_index", "prompts": 1, "samples": 32}),
    Log(
        "oi-olmo32b-stitched",
        {"metric": "eval/objective/verifiable_correct_rate", "prompts": 30},
        ("rl0_32b_stitched_wandb_history.csv",),
    ),
    Log(
        "one-shot-rlvr-acc-history",
        {"metric": "value", "compute": "visit", "compute_unit": "steps", "stratum": "prompt", **_TRAIN},
    ),
    Log("qwen3-gsm8k-5-sizes", {"wide": True, "prompts": 1319}, ("export.csv",), monotone=True),
    Log("tfevents-countdown-stuck-at-zero", {"metric": "train/rewards/equation_reward_func", **_TRAIN}),
    Log("tfevents-wordle-grpo-one-logdir", {"metric": "train/reward", "scale": (-3, 3), **_REWARD}),
    Log("tinker-reward-hacking", {"metric": "reward/mean", **_TRAIN}),
    Log(
        "tinyzero-cognitive-countdown",
        {"run": "condition", "metric": "accuracy", "prompts": 1024},
        ("llama_results.csv", "qwen_results.csv"),
        monotone=True,
    ),
    Log("trl-console-rho-sweep", {"metric": "reward", **_TRAIN}),
    Log("trl-log-history-qwen35-sweep", {"metric": "reward", **_TRAIN}),
    Log(
        "trl-trainer-state-nested-checkpoints", {"metric": "eval_reward", "kind": "reward", "scale": (-3, 3)}
    ),
    Log("trl-trainer-state-short-plus-eval-table", {"metric": "rewards/r1_correctness", **_TRAIN}),
    Log("verifier-reward-multi-seed", {"metric": "accuracy", "trials": "n_eval_actions"}),
    Log(
        "verl-ppo-gsm8k-baselines",
        {"metric": "val/test_score/openai/gsm8k", "prompts": 1319},
        monotone=True,
    ),
    Log("wandb-ui-export-min-max", None),
)
BY_FOLDER = {log.folder: log for log in LOGS}


def read(log: Log, root: Path) -> Iterator[tuple[str, Runs]]:
    """Yield each file of a folder, and what its runs are called beside those of the others."""
    import forecast as fc

    for name in log.files:
        before = f"{Path(name).stem}/" if len(log.files) > 1 else ""
        yield before, fc.read_runs(root / log.folder / name, **(log.options or {}))


def check_root(root: Path) -> None:
    """Fail unless all logs are there.

    Raises
    ------
    InputError
        Names those that are missing.
    """
    missing = [
        str(Path(log.folder) / name)
        for log in LOGS
        for name in log.files
        if not (root / log.folder / name).exists()
    ]
    if missing:
        raise InputError(
            "logs are missing",
            where=root,
            found=f"no {', '.join(missing)}",
            expected=f"the {len(LOGS)} folders of the collection",
            fix="name the folder that holds them all",
        )


def work(task: Task) -> pd.DataFrame:
    """Read, cut, refit and score the runs of one folder; rows of all later evaluations."""
    import pandas as pd

    import forecast as fc
    from forecast.runs.inspection import inspect_paths

    log, root = BY_FOLDER[task["folder"]], Path(task["root"])
    if log.options is None:
        sources = len(inspect_paths(root / log.folder).sources)
        reason = f"inspected: {sources} sources, no column is an outcome"
        return pd.DataFrame([{"folder": log.folder, "method": NO_OUTCOME, "reason": reason}])
    parts = []
    for before, runs in read(log, root):
        rows = backtest_rows(fc.backtest(runs, fractions=CUTS, workers=1, seed=task["seed"]))
        parts.append(rows.assign(run=before + rows["run"]))
    return pd.concat(parts, ignore_index=True).assign(folder=log.folder)


def tasks(root: Path, seed: int) -> list[Task]:
    """All work: a task per folder."""
    return [Task(log.folder, {"root": str(root), "folder": log.folder, "seed": seed}) for log in LOGS]


def short_reason(reason: str) -> str:
    """What a refusal amounts to, without the numbers of the run."""
    if reason.startswith("only "):
        return "too few evaluations"
    return reason.split(":")[0]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per folder and cut, in the order of `LOGS`."""
    import pandas as pd

    lines = []
    for folder in dict.fromkeys(rows["folder"]):
        own = rows[rows["folder"] == folder]
        if (own["method"] == NO_OUTCOME).all():
            lines.append(
                {"folder": folder, "fitted": "", "refused": own["reason"].iloc[0], **scores(own[:0])}
            )
            continue
        for cut in _labels():
            group = own[own["cut"] == cut]
            skipped = group[group["method"] == SKIPPED]
            reasons = Counter(short_reason(reason) for reason in skipped["reason"])
            lines.append(
                {
                    "folder": folder,
                    "fitted": cut,
                    "runs": group["run"].nunique(),
                    "refused": "; ".join(f"{count} {reason}" for reason, count in reasons.most_common()),
                    **scores(group),
                }
            )
    return pd.DataFrame(lines)


def pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """Scores of the monotone logs taken together, by cut and for both, evaluations or runs weighing equally."""
    import pandas as pd

    monotone = [log.folder for log in LOGS if log.monotone]
    rows = rows[rows["folder"].isin(monotone)]
    rows = rows.assign(run=rows["folder"] + "/" + rows["run"])
    lines = []
    for weight, average in (("evaluation", scores), ("run", scores_by_run)):
        for cut in (*_labels(), BOTH):
            group = rows if cut == BOTH else rows[rows["cut"] == cut]
            lines.append({"weight": weight, "fitted": cut, "runs": group["run"].nunique(), **average(group)})
    return pd.DataFrame(lines)


def failures(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs of which a 95 % interval covers less than half of what came later."""
    import pandas as pd

    ours = rows[rows["method"] == "rlforecast"]
    ours = ours.assign(
        inside=((ours["q025"] <= ours["observed"]) & (ours["observed"] <= ours["q975"])).astype(float)
    )
    found = (
        ours.groupby(["folder", "cut", "run"], sort=False)
        .agg(coverage_95=("inside", "mean"), bias=("error", "mean"))
        .reset_index()
    )
    of = found.groupby(["folder", "cut"], sort=False)["run"].transform("size")
    failed = found.assign(of=of)[found["coverage_95"] < 0.5]
    return pd.DataFrame(failed).reset_index(drop=True)


def _labels() -> tuple[str, ...]:
    return tuple(f"{100 * cut:g} %" for cut in CUTS)


_COLUMNS = "independent errors | bias | CRPS | / least squares | within 50 % | within 80 % | within 95 % | 95 % width |"


def _cells(row: pd.Series) -> str:
    cells = [
        shown(row["effective"] or np.nan, ".1f"),
        shown(row["bias"], "+.3f"),
        shown(row["crps"], ".4f"),
        shown(row["crps_ratio"], ".2f"),
        *(shown(row[f"coverage_{level}"], ".2f") for level in (50, 80)),
        shown(row["coverage_95"], ".3f"),
        shown(row["width_95"], ".3f"),
    ]
    return " | ".join(cells) + " |"


def markdown(rows: pd.DataFrame) -> str:
    """Tables by folder and pooled, what was asked for, and where the family fails."""
    lines = [
        f"| folder | fitted | runs | scored | refused, and why | {_COLUMNS}",
        "|---" * 13 + "|",
    ]
    for _, row in summarise(rows).iterrows():
        runs = f"{row['runs']:.0f} | {row['scored']}" if row["fitted"] else "- | -"
        lines.append(
            f"| {row['folder']} | {row['fitted'] or '-'} | {runs} | {row['refused'] or '-'} | {_cells(row)}"
        )
    together = pooled(rows)
    names = ", ".join(log.folder for log in LOGS if log.monotone)
    lines += [
        "",
        f"Monotone logs together ({names}):",
        "",
        f"| weighing equally | fitted | runs | scored | {_COLUMNS}",
        "|---" * 12 + "|",
    ]
    for _, row in together.iterrows():
        lines.append(
            f"| every {row['weight']} | {row['fitted']} | {row['runs']} | {row['scored']} | {_cells(row)}"
        )
    lines += ["", "Asked of the monotone logs, every evaluation weighing equally:", ""]
    for _, row in together[together["weight"] == "evaluation"].iterrows():
        at = "both cuts" if row["fitted"] == BOTH else f"fitted {row['fitted']}"
        lines += [
            bar(f"{at}: CRPS / least squares", row["crps_ratio"], most=MOST_CRPS_RATIO),
            bar(f"{at}: share within 95 %", row["coverage_95"], least=LEAST_COVERAGE_95),
        ]
    lines += ["", "Where it fails (runs with less than half of what came later within 95 %):", ""]
    for (folder, cut), group in failures(rows).groupby(["folder", "cut"], sort=False):
        which = ", ".join(
            f"{row['run']} ({row['coverage_95']:.2f} inside, bias {row['bias']:+.2f})"
            for _, row in group.iterrows()
        )
        lines.append(f"- {folder}, fitted {cut}: {len(group)} of {group['of'].iloc[0]} scored runs: {which}")
    if lines[-1] == "":
        lines.append("- none")
    return "\n".join(lines)


def figure(rows: pd.DataFrame) -> Figure:
    """Coverage of three intervals, and CRPS relative to least squares, by folder and cut, then pooled."""
    import pandas as pd

    folders = summarise(rows)
    together = pooled(rows)
    together = together[together["weight"] == "evaluation"].assign(folder="monotone logs together")
    drawn = pd.concat([folders, together], ignore_index=True)
    drawn = drawn[drawn["scored"] > 0]
    return coverage_figure(
        drawn,
        drawn["folder"] + ", fitted " + drawn["fitted"],
        drawn["effective"].where(drawn["effective"] >= FEW),
        ABOUT,
    )


NOTES = f"""\
- Every run is fitted by itself up to the cut; scored are all its later evaluations. All values are fractions of the
  metric's scale. Bias: forecast minus observed. "Least squares" is ScaleRL's grid, a point forecast whose CRPS is its
  absolute error; the ratio is taken on the evaluations of runs that both could be fitted to.
- Errors of one run move together: "independent errors" is what all of them are worth. The
  figure draws no bars below {FEW}.
- Runs are refused, not forecast, when they do not rise, fall, or hold too few evaluations up to the cut.
"""


@click.command(NAME)
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@study_options
def public_logs(root: str, where: Where) -> None:
    """What becomes of real public run logs: forecast how well, or refused, and why?

    ROOT holds the collection, one folder per source. About a minute on two cores.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        return figure(rows), f"{markdown(rows)}\n\n{NOTES}"

    folder = Path(root).resolve()
    check_root(folder)
    conduct(
        NAME,
        work,
        tasks(folder, where.seed),
        report,
        where,
        title="Forecasts of public run logs",
        options={},
        arguments=shlex.quote(root),
        data_sha256=data_sha256(
            runs for log in LOGS if log.options is not None for _, runs in read(log, folder)
        ),
    )
