"""Runs of a fraction of a second, and the transformer written out once more, plainly."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import torch

from simulators.minirun.collecting import Collector
from simulators.minirun.generation import Rollouts
from simulators.minirun.ledger import Ledger
from simulators.minirun.model import Transformer
from simulators.minirun.recipes import recipe
from simulators.minirun.settings import Recipe, RunSettings, Size, Verifier
from simulators.minirun.tasks.base import Task, counts
from simulators.minirun.tasks.registry import task as named
from simulators.minirun.updating import Updater
from simulators.minirun.warm_start import blank

TINY = Size(16, 1, 2)
GENEROUS = Verifier(false_positive=0.4, false_negative=0.1)
"""Weights that know nothing hardly ever answer right: without mistakes of the verifier they would not move."""


def small(task: str = "addmul", of: Recipe | str = "base", **changes) -> RunSettings:
    """Settings of a run of a few steps; those of the recipe are changed by name as well."""
    known = Recipe.__dataclass_fields__
    chosen = recipe(of) if isinstance(of, str) else of
    inner = {"prompts": 4, "rollouts": 4} | {
        name: changes.pop(name) for name in list(changes) if name in known
    }
    usual = {
        "steps": 6,
        "points": 3,
        "heldout": 8,
        "samples": 2,
        "pool": 64,
        "size": TINY,
        "verifier": GENEROUS,
    }
    return RunSettings(task, recipe=replace(chosen, **inner), **(usual | changes))


def weights(settings: RunSettings) -> dict[str, torch.Tensor]:
    """As they are drawn, without any warm start."""
    return blank(named(settings.task), settings.size, settings.warm_seed).state_dict()


def parts(settings: RunSettings) -> tuple[Transformer, Collector, Updater]:
    """Policy, collector and updater, with a reference that differs from the policy."""
    task = named(settings.task)
    policy = blank(task, settings.size, 0)
    reference = blank(task, settings.size, 1).requires_grad_(False)
    ledger = Ledger()
    pool = task.draw("train", counts(task, settings.pool), np.random.default_rng(3))
    sampler = torch.Generator().manual_seed(settings.seed)
    collector = Collector(settings, task, pool, np.random.default_rng(settings.seed), sampler, ledger)
    return policy, collector, Updater(policy, reference, task, settings.recipe, ledger)


def responses_of(task: Task, prompts: torch.Tensor, texts: torch.Tensor, end: int) -> Rollouts:
    """Given responses [P, G, L] as if they had been sampled."""
    over = torch.cat([torch.zeros_like(texts[..., :1]), (texts == end).cumsum(-1)[..., :-1]], -1) > 0
    nothing = torch.zeros(texts.shape)
    return Rollouts(prompts, torch.where(over, end, texts), nothing, ~over, ~over, nothing)


def rows_without_seconds(rows):
    return [{name: value for name, value in row.items() if not name.endswith("_seconds")} for row in rows]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether weights are equal to the last bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def by_hand(held: dict[str, torch.Tensor], size: Size, tokens: torch.Tensor) -> torch.Tensor:
    """States [T, d] of one sequence of tokens [T]: causal attention, head by head and token by token, no cache."""

    def normed(x, gain):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    length, each = len(tokens), size.width // size.heads
    x = held["symbols.weight"][tokens] + held["positions.weight"][:length]
    for layer in range(size.layers):
        own = {name: value for name, value in held.items() if name.startswith(f"blocks.{layer}.")}
        qkv = normed(x, own[f"blocks.{layer}.norms.0"]) @ own[f"blocks.{layer}.qkv.weight"].T
        attended = torch.zeros_like(x)
        for head in range(size.heads):
            begin = head * each
            q, k, v = (
                qkv[:, part * size.width + begin : part * size.width + begin + each] for part in range(3)
            )
            rows = []
            for t in range(length):
                weight = torch.softmax(q[t] @ k[: t + 1].T / sqrt(each), 0)
                rows.append(weight @ v[: t + 1])
            attended[:, begin : begin + each] = torch.stack(rows)
        x = x + attended @ own[f"blocks.{layer}.mix.weight"].T
        hidden = normed(x, own[f"blocks.{layer}.norms.1"]) @ own[f"blocks.{layer}.up.weight"].T
        hidden = hidden * (1 + torch.erf(hidden / sqrt(2))) / 2
        x = x + hidden @ own[f"blocks.{layer}.down.weight"].T
    return normed(x, held["norm"])


def lively(size: Size, symbols: int, positions: int, seed: int, trunk: str = "float32") -> Transformer:
    """A transformer whose every weight matters: norms are not one, and attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    policy = Transformer(size, symbols, positions, generator, trunk)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5).add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return policy
