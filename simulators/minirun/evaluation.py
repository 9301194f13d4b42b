"""The held-out measurement: mean pass rate with its trials, by class; pass@k; how the policy answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import torch

from simulators.minirun.generation import Rollouts, sample
from simulators.minirun.ledger import Work, work
from simulators.minirun.model import Transformer
from simulators.minirun.rewards import accepted, interruption
from simulators.minirun.settings import RunSettings
from simulators.minirun.tasks.base import EOS, Prompts, Task, counts

CHUNK = 256
"""Prompts sampled at a time."""


@dataclass(frozen=True)
class Evaluation:
    """Of one policy.

    Attributes
    ----------
    passed : int array [N]
        Right answers to each held-out prompt.
    samples : int
        Rollouts of each.
    figures : dict
        ``pass@k``, ``val_entropy``, ``val_truncated``; ``proxy_pass_rate`` where the verifier is not the truth.
    work : Work
        What it generated.
    """

    passed: np.ndarray
    samples: int
    figures: dict[str, float]
    work: Work


def heldout(task: Task, count: int) -> Prompts:
    """Return the held-out prompts of a task, the same for every run and all distinct.

    A class that has fewer than its share of them is asked them again: its pass rate then rests on more rollouts of
    fewer prompts, and the mean over classes stays that of the task.
    """
    shares = counts(task, count)
    found = task.draw("heldout", shares, np.random.default_rng(count), distinct=True)
    rows = [np.resize(np.flatnonzero(found.stratum == index), share) for index, share in enumerate(shares)]
    return found[np.concatenate(rows)]


def pass_at(k: int, passed: np.ndarray, samples: int) -> float:
    """Unbiased pass@k: 1 - C(n - c, k) / C(n, k), mean over prompts (Chen et al. 2021, arXiv 2107.03374, eq. 1)."""
    missed = np.array([comb(samples - c, k) / comb(samples, k) for c in range(samples + 1)])
    return float(1 - missed[passed].mean())


def evaluate(
    policy: Transformer, task: Task, prompts: Prompts, settings: RunSettings, generator: torch.Generator
) -> Evaluation:
    """Sample every held-out prompt `settings.samples` times at temperature 1 and verify the truth."""
    recipe = settings.recipe
    parts: list[Rollouts] = []
    for begin in range(0, len(prompts), CHUNK):
        tokens = torch.as_tensor(prompts.tokens[begin : begin + CHUNK], device=settings.device)
        parts.append(
            sample(
                policy,
                tokens,
                settings.samples,
                task.answer_length,
                EOS,
                generator,
                head=recipe.generator_head,
                interruption=interruption(task, recipe),
            )
        )
    rollouts = Rollouts.together(parts)
    responses = rollouts.tokens.cpu().numpy()
    lengths = rollouts.written.sum(-1).cpu().numpy()
    right = task.verify(prompts, responses)
    passed = right.sum(1)
    ks = [k for k in (2, 4, 8, 16, 32, 64) if k <= settings.samples]
    figures = {f"pass@{k}": pass_at(k, passed, settings.samples) for k in ks}
    figures["val_entropy"] = float(rollouts.entropy.sum() / rollouts.mask.sum())
    figures["val_truncated"] = float(np.mean(~(responses == EOS).any(-1)))
    figures["val_response_length"] = float(lengths.mean())
    if settings.verifier.flawed:
        figures["proxy_pass_rate"] = float(
            accepted(right, task, prompts, responses, settings.verifier).mean()
        )
    return Evaluation(
        passed, settings.samples, figures, work(task.prompt_length, len(prompts), lengths.flatten().tolist())
    )
