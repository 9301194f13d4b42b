"""One run, from the warm start to the last evaluation; taken up again where it was when it was killed."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forecast.errors import InputError
from forecast.files import replacing
from simulators.minirun.collecting import Batch, Collector
from simulators.minirun.evaluation import evaluate, heldout
from simulators.minirun.ledger import Ledger
from simulators.minirun.settings import RunSettings
from simulators.minirun.tasks.base import counts
from simulators.minirun.tasks.registry import task as named
from simulators.minirun.updating import Updater
from simulators.minirun.warm_start import Weights, blank, load, save

CHECKPOINT_SECONDS = 60.0
"""Longest time between checkpoints; one is made at every evaluation as well."""

CHECKPOINT, LOG, ABOUT = "checkpoint.pt", "log.jsonl", "settings.json"
FILES = (CHECKPOINT, LOG, ABOUT)
"""What a run writes into its folder."""

Row = dict[str, Any]


class Run:
    """A run and everything it depends on from now on.

    Parameters
    ----------
    settings : RunSettings
    weights : dict of tensors
        Of the warm start.
    """

    def __init__(self, settings: RunSettings, weights: Weights) -> None:
        self.settings = settings
        self.task = named(settings.task)
        policy = blank(self.task, settings.size, settings.warm_seed, settings.trunk)
        policy.load_state_dict(weights)
        self.policy = policy.to(settings.device)
        self.ledger = Ledger()
        self.rng = np.random.default_rng([settings.seed, 2])
        self.sampler = torch.Generator(settings.device).manual_seed(settings.seed)
        pool = self.task.draw(
            "train", counts(self.task, settings.pool), np.random.default_rng([settings.seed, 3])
        )
        self.collector = Collector(settings, self.task, pool, self.rng, self.sampler, self.ledger)
        reference = deepcopy(self.policy).requires_grad_(False)
        self.updater = Updater(
            self.policy, reference, self.task, settings.recipe, self.ledger, compiled=settings.compiled
        )
        self.heldout = heldout(self.task, settings.heldout)
        self.step = 0
        self.rows: list[Row] = []
        self.since: list[dict[str, float]] = []

    @property
    def done(self) -> bool:
        """Whether the last evaluation has been made."""
        return bool(self.rows) and self.rows[-1]["step"] == self.settings.steps

    @property
    def pass_rate(self) -> float:
        """Held-out, when last evaluated."""
        return float(next(row["pass_rate"] for row in reversed(self.rows) if "stratum" not in row))

    def advance(self) -> None:
        """One update, and an evaluation where one is due; the first call evaluates the warm start as well."""
        if not self.rows:
            self._evaluate()
        begun = self._clock()
        batch = self.collector.next(self.policy, self.step)
        figures = self.updater.update(batch, self.step)
        self.ledger.device_seconds += self._clock() - begun
        self.since.append(batch.figures | figures)
        self.step += 1
        if self.step in self.settings.evaluated:
            self._evaluate()

    def _clock(self) -> float:
        if torch.device(self.settings.device).type == "cpu":
            return time.process_time()
        torch.cuda.synchronize(self.settings.device)
        return time.perf_counter()

    def _evaluate(self) -> None:
        settings, ledger = self.settings, self.ledger
        begun = self._clock()
        # A generator of its own: how often it is evaluated does not change what is trained.
        generator = torch.Generator(settings.device).manual_seed(settings.seed * 1_000_003 + self.step)
        found = evaluate(self.policy, self.task, self.heldout, settings, generator)
        ledger.eval_flops += found.work.forward(self.policy)
        ledger.eval_seconds += self._clock() - begun
        common = {
            "step": self.step,
            "recipe": settings.name,
            "seed": settings.seed,
            "task": settings.task,
            **asdict(ledger),
            "flops": ledger.flops,
        }
        passed, trials = int(found.passed.sum()), found.passed.size * found.samples
        whole = {"pass_rate": passed / trials, "trials": trials}
        if settings.recipe.easy is not None:
            whole["set_aside"] = float(self.collector.feed.easy.mean())
        self.rows.append(common | whole | found.figures | self._trained())
        for index, name in enumerate(self.task.classes):
            own = found.passed[self.heldout.stratum == index]
            if own.size:
                of_class = {
                    "pass_rate": float(own.mean() / found.samples),
                    "trials": own.size * found.samples,
                }
                self.rows.append(common | {"stratum": name} | of_class)
        self.since = []

    def _trained(self) -> dict[str, float]:
        """Mean of what training showed since the last evaluation (the largest, where the name says so)."""
        names = self.since[0] if self.since else {}
        series = {name: [each[name] for each in self.since] for name in names}
        return {
            name: float(max(values) if name.endswith("_max") else np.mean(values))
            for name, values in series.items()
        }

    def state(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on: tensors, numbers and text only."""
        collector = self.collector
        return {
            "policy": self.policy.state_dict(),
            "reference": self.updater.reference.state_dict(),
            "optimiser": self.updater.optimiser.state_dict(),
            "sampler": self.sampler.get_state(),
            "rng": json.dumps(self.rng.bit_generator.state),
            "waiting": [batch.state() for batch in collector.waiting],
            "order": torch.as_tensor(collector.feed.order),
            "at": collector.feed.at,
            "easy": torch.as_tensor(collector.feed.easy),
            "step": self.step,
            "ledger": asdict(self.ledger),
            "rows": json.dumps(self.rows),
            "since": json.dumps(self.since),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`, read onto the CPU."""
        feed = self.collector.feed
        self.policy.load_state_dict(state["policy"])
        self.updater.reference.load_state_dict(state["reference"])
        self.updater.optimiser.load_state_dict(state["optimiser"])
        self.sampler.set_state(state["sampler"])
        self.rng.bit_generator.state = json.loads(state["rng"])
        device = self.settings.device
        self.collector.waiting = [Batch.restored(each, device) for each in state["waiting"]]
        feed.order, feed.at, feed.easy = state["order"].numpy(), state["at"], state["easy"].numpy()
        self.step = state["step"]
        for name, value in state["ledger"].items():
            setattr(self.ledger, name, value)
        self.rows, self.since = json.loads(state["rows"]), json.loads(state["since"])


def train(
    settings: RunSettings,
    weights: Weights,
    folder: Path | None = None,
    *,
    cost: dict[str, float] | None = None,
    report: Callable[[int, int, float], None] | None = None,
) -> list[Row]:
    """Do a run, or the rest of it, and return its log.

    On a CPU call ``torch.set_num_threads(1)`` first: so small a model is faster with one thread, and a run that is taken
    up equals an uninterrupted one bit for bit only with as many threads.

    Parameters
    ----------
    settings : RunSettings
    weights : dict of tensors
        Of the warm start, see `simulators.minirun.warm_start.cached`.
    folder : path, optional
        Where `FILES` are kept; a run that is there already is taken up where it was. None: nothing is written.
    cost : dict, optional
        Of the warm start, for the file of settings.
    report : callable, optional
        Called with updates done, all updates and the last held-out pass rate.

    Returns
    -------
    list of dict
        One row per evaluation, followed by one for each class of prompts (column ``stratum``).

    Raises
    ------
    InputError
        If the folder holds a run with other settings, or settings or a checkpoint that cannot be read.
    """
    run = Run(settings, weights)
    if folder is not None:
        _take_up(run, folder, cost or {})
    if report is not None and run.done:
        report(run.step, settings.steps, run.pass_rate)
    saved = time.monotonic()
    while not run.done:
        rows = len(run.rows)
        run.advance()
        if folder is not None and (len(run.rows) > rows or time.monotonic() - saved > CHECKPOINT_SECONDS):
            _save(run, folder)
            saved = time.monotonic()
        if report is not None:
            report(run.step, settings.steps, run.pass_rate)
    return run.rows


def refuse_other(asked: dict[str, Any], kept: dict[str, Any], folder: Path) -> None:
    """Raise if a folder holds a run with other settings than those asked for."""
    before, now = _flat(kept), _flat(asked)
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        raise InputError(
            "holds a run with other settings",
            where=folder,
            found=", ".join(f"{name} {before.get(name)!r}" for name in changed),
            expected=", ".join(f"{name} {now[name]!r}" for name in changed),
            fix="name another folder, or --overwrite",
        )


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of one level: ``recipe.kl`` and so on."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= (
            {f"{name}.{key}": each for key, each in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat


def _take_up(run: Run, folder: Path, cost: dict[str, float]) -> None:
    about = folder / ABOUT
    settings = json.loads(json.dumps(run.settings.plain()))
    if about.exists():
        try:
            kept = dict(json.loads(about.read_text(encoding="utf-8"))["settings"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "settings cannot be read", where=about, found=error, fix="--overwrite to begin anew"
            ) from error
        refuse_other(settings, kept, folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        text = {
            "settings": settings,
            "task": {
                "description": run.task.description,
                "ceiling": run.task.ceiling,
                "note": run.task.note,
                "classes": list(run.task.classes),
            },
            "matmul_parameters": run.policy.matmul_parameters,
            "warm_start": cost,
            "versions": {name: version(name) for name in ("rlforecast", "torch", "numpy")}
            | {"python": platform.python_version()},
        }
        with replacing(about) as temporary:
            temporary.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")
    for name in FILES:
        # What a run was writing when it was killed.
        for left in folder.glob(f".{name}.*.tmp"):
            left.unlink(missing_ok=True)
    checkpoint = folder / CHECKPOINT
    if checkpoint.exists():
        try:
            run.restore(load(checkpoint))
        except Exception as error:
            raise InputError(
                "is no checkpoint of this run, or a damaged one",
                where=checkpoint,
                fix="--overwrite begins anew",
            ) from error
        _write_log(run, folder)


def _save(run: Run, folder: Path) -> None:
    save(run.state(), folder / CHECKPOINT)
    _write_log(run, folder)


def _write_log(run: Run, folder: Path) -> None:
    """Write the log that the checkpoint holds: what follows a kill is neither lost nor there twice."""
    with replacing(folder / LOG) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in run.rows), encoding="utf-8")
