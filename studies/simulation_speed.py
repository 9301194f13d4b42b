"""How many skills worlds a second, and what do options cost?

``python -m studies.simulation_speed`` times training at 300 steps x 256 prompts x 64 rollouts with every option off and
with one on at a time, beside an engine that simulates every rollout, and the memory of a batch of worlds. Rates are per
CPU-second of one core.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Mapping

import click
import numpy as np

from simulators.skills.network import skill_logits, step_logits, step_probability
from simulators.skills.overrides import override
from simulators.skills.population import Population, draw_population
from simulators.skills.settings import Settings
from simulators.skills.training import train

STEPS, PROMPTS, ROLLOUTS = 300, 256, 64
BASE = {
    "recipe.steps": str(STEPS),
    "recipe.prompts": str(PROMPTS),
    "recipe.rollouts": str(ROLLOUTS),
    "recipe.learning_rate": "3",
}
OPTIONS = (
    "recipe.rollouts=8",
    "recipe.rollouts=512",
    "recipe.optimiser=adam recipe.learning_rate=.03",
    "recipe.advantage=batch",
    "recipe.credit=process",
    "recipe.aggregation=sequence",
    "recipe.aggregation=token",
    "recipe.staleness=8",
    "recipe.staleness=8 recipe.correction=ppo",
    "recipe.staleness=8 recipe.correction=cispo",
    "recipe.filter=drop",
    "recipe.filter=refill",
    "recipe.retire_above=.9",
    "recipe.kl=.01",
    "policy.rank=128",
    "policy.rank=128 policy.features=1 policy.curvature=.002",
    "policy.memory=10",
    "context.limit=1200",
    "verifier.true_positive=.8 verifier.false_positive=.2",
    "verifier.wrong_reference=.2 verifier.wrong_reference_accepts=.3",
    "verifier.exploits=1",
    "verifier.exploits=16 verifier.reward_model.members=4",
    "prompts.gate_share=.4",
)


def one_by_one(population: Population, settings: Settings, rng: np.random.Generator) -> float:
    """Train with every rollout simulated by itself (group-normalised advantages, SGD); mean pass rate of prompts."""
    recipe, prompts = settings.recipe, population.train
    worlds, skills = population.skill_logit.shape
    steps, groups = np.arange(len(prompts.skill))[:, None, None, None], recipe.rollouts
    z = np.zeros((worlds, population.parameters))
    for _ in range(recipe.steps):
        theta = skill_logits(population, settings.policy, z)
        p = step_probability(step_logits(theta, prompts, settings.policy, z), prompts.top)
        passed = rng.random((*p.passing.shape, groups)) < p.passing[..., None]
        reached = np.cumprod(np.concatenate([np.ones_like(passed[:1]), passed[:-1]]), axis=0)
        tried = (reached > 0) & (steps < prompts.length[..., None])
        reward = np.all(passed, axis=0).astype(float)
        deviation = reward - reward.mean(axis=-1, keepdims=True)
        sd = reward.std(axis=-1, keepdims=True)
        advantage = np.divide(deviation, sd, out=np.zeros_like(deviation), where=sd > 0)
        score = np.where(passed, p.pass_score[..., None], p.fail_score[..., None]) * tried
        of_step = (score * advantage).sum(axis=-1) / (prompts.count * groups)
        counted = np.bincount(prompts.skill.ravel(), of_step.ravel(), minlength=worlds * skills)
        z = z + recipe.learning_rate * counted.reshape(worlds, skills)
    theta = skill_logits(population, settings.policy, z)
    final = step_probability(step_logits(theta, prompts, settings.policy, z), prompts.top)
    return float(np.prod(final.passing, axis=0).mean())


def settings_with(changes: Mapping[str, str]) -> Settings:
    """The benchmark's settings with these changes."""
    return override(Settings(), BASE | dict(changes))


def worlds_per_second(settings: Settings, worlds: int, seed: int) -> float:
    """Worlds trained per CPU-second, 60 evaluations included."""
    rng = np.random.default_rng(seed)
    population = draw_population(settings, worlds, rng)
    start = time.process_time()
    train(population, settings, rng)
    return worlds / (time.process_time() - start)


@click.command()
@click.option("--worlds", type=click.IntRange(min=1), default=8, show_default=True, help="Trained together.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def main(worlds: int, repeats: int, seed: int) -> None:
    """Print worlds per CPU-second by option, against the engine that draws every rollout, and memory."""
    base = settings_with({})
    worlds_per_second(base, worlds, seed)

    def rate(settings: Settings) -> float:
        return float(np.median([worlds_per_second(settings, worlds, seed + k) for k in range(repeats)]))

    off = rate(base)
    print("| option | worlds / s / core | times slower |\n|---|---|---|")
    print(f"| all off | {off:.1f} | 1 |")
    for option in OPTIONS:
        changed = rate(settings_with(dict(text.split("=") for text in option.split())))
        print(f"| `{option}` | {changed:.1f} | {off / changed:.2f} |")

    print("\n| worlds together | worlds / s / core |\n|---|---|")
    for together in (1, 2, 4, 8, 16, 32):
        speed = np.median([worlds_per_second(base, together, seed + k) for k in range(repeats)])
        print(f"| {together} | {speed:.1f} |")

    print(
        "\n| rollouts per prompt | counts, worlds / s | every rollout, worlds / s | ratio |\n|---|---|---|---|"
    )
    for rollouts in (8, 64):
        settings = settings_with({"recipe.rollouts": str(rollouts)})
        counts = rate(settings)
        rng = np.random.default_rng(seed)
        population = draw_population(settings, 1, rng)
        start = time.process_time()
        one_by_one(population, settings, rng)
        naive = 1 / (time.process_time() - start)
        print(f"| {rollouts} | {counts:.1f} | {naive:.2f} | {counts / naive:.0f} |")

    print("\n| worlds together | rollouts per prompt | peak memory, MiB |\n|---|---|---|")
    for together, rollouts in ((8, 8), (8, 512), (64, 64)):
        settings = settings_with({"recipe.rollouts": str(rollouts), "recipe.steps": "30"})
        population = draw_population(settings, together, np.random.default_rng(seed))
        tracemalloc.start()
        train(population, settings, np.random.default_rng(seed))
        print(f"| {together} | {rollouts} | {tracemalloc.get_traced_memory()[1] / 2**20:.0f} |")
        tracemalloc.stop()


if __name__ == "__main__":
    main()
