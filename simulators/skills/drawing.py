"""Skills worlds at random: many mechanisms at once, none of which makes the curve jump."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from simulators.skills.settings import Context, Policy, Prompts, Recipe, Settings, Verifier


def draw_smooth(rng: np.random.Generator) -> Settings:
    """Settings of a world without gates, gaps or exploits.

    Prompts, capacity, verifier, context and recipe vary over ranges in which curves rise within the run; runs end
    early or late on their curve.
    """
    prompts = Prompts(
        skills=round(_log_uniform(rng, 8, 150)),
        skill_decay=float(rng.uniform(0.3, 1.6)),
        chain_mean=float(rng.uniform(1.5, 5.0)),
        difficulty=float(rng.uniform(-0.5, 2.0)),
        difficulty_sd=float(rng.uniform(0.5, 2.5)),
        slip=float(rng.uniform(0.0, 0.1)),
        unsolvable=float(rng.choice([0.0, rng.uniform(0.0, 0.4)])),
        train=round(_log_uniform(rng, 64, 1024)),
    )
    policy = Policy()
    if rng.random() < 0.4:
        policy = Policy(
            rank=round(_log_uniform(rng, 32, 256)), features=1.0, curvature=_log_uniform(rng, 3e-4, 3e-3)
        )
    context = Context(limit=300 * float(rng.uniform(4.0, 12.0)) if rng.random() < 0.25 else math.inf)
    verifier = Verifier()
    if rng.random() < 0.4:
        verifier = Verifier(
            true_positive=float(rng.uniform(0.7, 1.0)), false_positive=float(rng.uniform(0.0, 0.2))
        )
    adam = bool(rng.random() < 0.4)
    recipe = Recipe(
        steps=round(_log_uniform(rng, 500, 2500)),
        rollouts=int(rng.choice([4, 8, 16])),
        advantage=str(rng.choice(["grpo", "batch", "unnormalised", "rloo"])),
        aggregation=str(rng.choice(["sum", "sequence", "prompt", "token"])),
        optimiser="adam" if adam else "sgd",
        learning_rate=_log_uniform(rng, 0.004, 0.03) if adam else _log_uniform(rng, 0.5, 4.0),
    )
    if rng.random() < 0.3:
        recipe = replace(recipe, staleness=8, correction=str(rng.choice(["ppo", "dapo", "cispo"])))
    return Settings(prompts, policy, context, verifier, recipe)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
