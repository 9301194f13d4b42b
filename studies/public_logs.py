"""What becomes of real public run logs? Inspect, fit the first half, forecast the rest, or say why not.

``python -m studies.public_logs ../shared/logs [--seed 0]`` goes through every folder named below, fits each run by
itself to the first half of its compute, and prints a Markdown table: how many runs were read, fitted and refused
(with the commonest reason), and how many of the later evaluations lie inside their 90 % interval. These are the
logs that the readers were tested on; the runs differ in quality, and most train on small evaluation sets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

import forecast as fc
from forecast.runs.inspection import inspect_paths

_TRAIN = {"split": "train"}
_REWARD = {"kind": "reward", "split": "train"}


@dataclass(frozen=True)
class Log:
    """A folder and how a user would declare its axes; no options where nothing in it is an outcome."""

    folder: str
    options: dict[str, Any] | None
    files: tuple[str, ...] = ("",)


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
    Log("qwen3-gsm8k-5-sizes", {"wide": True, "prompts": 1319}, ("export.csv",)),
    Log("tfevents-countdown-stuck-at-zero", {"metric": "train/rewards/equation_reward_func", **_TRAIN}),
    Log("tfevents-wordle-grpo-one-logdir", {"metric": "train/reward", "scale": (-3, 3), **_REWARD}),
    Log("tinker-reward-hacking", {"metric": "reward/mean", **_TRAIN}),
    Log(
        "tinyzero-cognitive-countdown",
        {"run": "condition", "metric": "accuracy", "prompts": 1024},
        ("llama_results.csv", "qwen_results.csv"),
    ),
    Log("trl-console-rho-sweep", {"metric": "reward", **_TRAIN}),
    Log("trl-log-history-qwen35-sweep", {"metric": "reward", **_TRAIN}),
    Log(
        "trl-trainer-state-nested-checkpoints", {"metric": "eval_reward", "kind": "reward", "scale": (-3, 3)}
    ),
    Log("trl-trainer-state-short-plus-eval-table", {"metric": "rewards/r1_correctness", **_TRAIN}),
    Log("verifier-reward-multi-seed", {"metric": "accuracy", "trials": "n_eval_actions"}),
    Log("verl-ppo-gsm8k-baselines", {"metric": "val/test_score/openai/gsm8k", "prompts": 1319}),
    Log("wandb-ui-export-min-max", None),
)


@dataclass
class Outcome:
    """What became of the runs of one folder."""

    runs: int = 0
    forecast: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    withheld: int = 0
    inside: int = 0
    later: int = 0
    widths: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Cells of the Markdown table."""
        reasons = "; ".join(f"{count} {reason}" for reason, count in self.refused.most_common())
        inside = f"{self.inside}/{self.later}" if self.later else "-"
        width = f"{np.mean(self.widths):.2f}" if self.widths else "-"
        return (
            f"{self.runs} | {self.forecast} | {reasons or '-'} | {self.withheld or '-'} | {inside} | {width}"
        )


def follow(log: Log, root: Path, seed: int) -> Outcome:
    """Read, fit and forecast every run of one folder."""
    outcome = Outcome()
    for name in log.files:
        runs = fc.read_runs(root / log.folder / name, **(log.options or {}))
        for run in runs.names:
            outcome.runs += 1
            one = runs.select([run])
            half = one.overall()["compute"].max() / 2
            try:
                fit = fc.fit(one, upto=half, seed=seed)
                later = one.overall().query("compute > @half")
                forecast = fit.predict(later["compute"].tolist(), quantity="evaluation")
            except fc.Withheld as error:
                if "diagnostics" in str(error):
                    outcome.withheld += 1
                else:
                    outcome.refused[_reason(str(error))] += 1
                continue
            except fc.InputError as error:
                outcome.refused[_reason(str(error))] += 1
                continue
            outcome.forecast += 1
            value = later["value"].to_numpy()
            outcome.later += len(value)
            outcome.inside += int(np.sum((forecast["q05"] <= value) & (value <= forecast["q95"])))
            scale = abs(runs.metric.scale[1] - runs.metric.scale[0])
            outcome.widths.append(float((forecast["q95"] - forecast["q05"]).mean()) / scale)
    return outcome


def _reason(message: str) -> str:
    for word in ("flat", "collapsed or declining", "only", "no evaluation in the fitted range"):
        if word in message:
            return {
                "only": "too few evaluations",
                "no evaluation in the fitted range": "nothing in the first half",
            }.get(word, word)
    return message


@click.command()
@click.argument("root", type=click.Path(path_type=Path, exists=True))
@click.option("--seed", default=0, show_default=True)
def main(root: Path, seed: int) -> None:
    """Print the table."""
    click.echo(
        "| folder | runs | forecast | refused, and why | withheld (diagnostics) | later evaluations within 90 % | mean 90 % width |"
    )
    click.echo("|---" * 7 + "|")
    for log in LOGS:
        sources = inspect_paths(root / log.folder).sources
        if log.options is None:
            click.echo(
                f"| {log.folder} | inspected: {len(sources)} sources, no column is an outcome | - | - | - | - | - |"
            )
            continue
        click.echo(f"| {log.folder} | {follow(log, root, seed).row()} |")


if __name__ == "__main__":
    main()
