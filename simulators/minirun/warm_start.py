"""The checkpoint that reinforcement learning starts from: two phases of supervised steps, kept in a cache.

The first phase teaches the skill with many right demonstrations, the second, short, makes right answers rare again
without unlearning it. Where a run begins, and when a late skill emerges, is set here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from forecast.errors import InputError
from forecast.files import replacing
from simulators.minirun.generation import Rollouts, score, states
from simulators.minirun.ledger import work
from simulators.minirun.model import Transformer
from simulators.minirun.settings import Size
from simulators.minirun.tasks.base import EOS, SYMBOLS, Task, counts

BATCH = 128
RATE = 3e-3
LAST_RATE = 0.1
POOL = 16384
"""Demonstrated prompts, from the training split."""

MADE = 1
"""To be raised with every change that gives other weights: the cache goes by it."""

Weights = dict[str, torch.Tensor]


def blank(task: Task, size: Size, seed: int, trunk: str = "float32") -> Transformer:
    """Return a transformer for a task, with weights drawn from `seed`."""
    positions = task.prompt_length + task.answer_length
    return Transformer(size, len(SYMBOLS), positions, torch.Generator().manual_seed(seed), trunk)


def cached(
    task: Task,
    size: Size,
    seed: int,
    *,
    device: str = "cpu",
    folder: Path | None = None,
    report: Callable[[int, int], None] | None = None,
) -> tuple[Weights, dict[str, float]]:
    """Weights of the warm start and what it cost, from the cache if it was made before.

    Parameters
    ----------
    task : Task
    size : Size
    seed : int
    device : str
        Where it is trained if it is not in the cache; the weights are returned on the CPU.
    folder : path, optional
        The cache; default ``rlforecast/minirun`` in the user's cache folder.
    report : callable, optional
        Called with steps done and all steps.

    Raises
    ------
    InputError
        If a file in the cache cannot be read.
    """
    path = place(task, size, seed, device, folder)
    if path.exists():
        try:
            held = load(path)
            blank(task, size, seed).load_state_dict(held["weights"])
            return held["weights"], dict(json.loads(held["cost"]))
        except Exception as error:
            raise InputError("cached warm start is damaged", where=path, fix="delete it") from error
    weights, cost = train(task, size, seed, device=device, report=report)
    save({"weights": weights, "cost": json.dumps(cost)}, path)
    return weights, cost


def save(held: Any, path: Path) -> None:
    """Write what `load` reads, whole or not at all.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    with replacing(path) as temporary:
        try:
            torch.save(held, temporary)
        except RuntimeError as error:
            # So torch tells of a disk that is full.
            raise OSError(errno.EIO, "torch could not write it; is the disk full?") from error


def load(path: Path) -> Any:
    """Tensors, numbers and text from a file, on the CPU; nothing in it is executed."""
    with warnings.catch_warnings():
        # About files that are no checkpoints: they are refused anyway.
        warnings.simplefilter("ignore")
        return torch.load(path, weights_only=True, map_location="cpu")


def place(task: Task, size: Size, seed: int, device: str, folder: Path | None = None) -> Path:
    """File of a warm start, made or not: in `folder`, or where `cached` keeps them by default."""
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(home) if home else Path.home() / ".cache") / "rlforecast" / "minirun"
    about = {
        "task": task.name,
        "phases": [asdict(phase) for phase in task.phases],
        "shares": task.shares,
        "lengths": [task.prompt_length, task.answer_length],
        "size": asdict(size),
        "seed": seed,
        "settings": [BATCH, RATE, LAST_RATE, POOL, MADE],
        "torch": torch.__version__,
        "device": torch.device(device).type,
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"{task.name}-{digest}.pt"


def train(
    task: Task,
    size: Size,
    seed: int,
    *,
    device: str = "cpu",
    report: Callable[[int, int], None] | None = None,
) -> tuple[Weights, dict[str, float]]:
    """Train the warm start: AdamW, its rate a cosine over both phases from `RATE` to `LAST_RATE` of it.

    Returns
    -------
    weights : dict of tensors
    cost : dict
        ``flops`` and ``seconds`` (of one core on a CPU).
    """
    clock = time.process_time if torch.device(device).type == "cpu" else time.perf_counter
    begun = clock()
    rng = np.random.default_rng([seed, 1])
    policy = blank(task, size, seed).to(device)
    pool = task.draw("train", counts(task, POOL), rng)
    total, done, flops = sum(phase.steps for phase in task.phases), 0, 0.0
    optimiser = torch.optim.AdamW(policy.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.0)
    for phase in task.phases:
        right = np.asarray(phase.right)
        for _ in range(phase.steps):
            wave = (1 + math.cos(math.pi * done / total)) / 2
            optimiser.param_groups[0]["lr"] = RATE * (LAST_RATE + (1 - LAST_RATE) * wave)
            batch = pool[rng.integers(len(pool), size=BATCH)]
            shown = task.demonstrate(batch, rng.random(BATCH) < right[batch.stratum], rng)
            rollouts = demonstrated(batch.tokens, shown, device)
            loss = -score(policy, states(policy, rollouts), rollouts).sum() / rollouts.mask.sum()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimiser.step()
            lengths = rollouts.mask.sum(-1).flatten().tolist()
            flops += 3 * work(task.prompt_length, BATCH, lengths).forward(policy)
            done += 1
            if report is not None:
                report(done, total)
    weights = {name: value.detach().cpu().clone() for name, value in policy.state_dict().items()}
    return weights, {"flops": flops, "seconds": clock() - begun}


def demonstrated(prompts: np.ndarray, answers: np.ndarray, device: str = "cpu") -> Rollouts:
    """One given response [N, L] to each prompt [N, S], as if it had been sampled."""
    tokens = torch.as_tensor(answers, device=device)[:, None]
    ended = F.pad((tokens == EOS).cumsum(-1)[..., :-1], (1, 0))
    written = ended == 0
    nothing = torch.zeros(tokens.shape, device=device)
    return Rollouts(torch.as_tensor(prompts, device=device), tokens, nothing, written, written, nothing)
