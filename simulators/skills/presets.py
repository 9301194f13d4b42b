"""Worlds by name: each shows one cause at work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from forecast.errors import InputError
from simulators.skills.settings import (
    Policy,
    Prompts,
    Recipe,
    RewardModel,
    Settings,
    Verifier,
)


@dataclass(frozen=True)
class Preset:
    """A named world.

    Attributes
    ----------
    settings : Settings
    about : str
        What its curve does and why, in a line.
    """

    settings: Settings
    about: str


_FEW = Prompts(skills=6, difficulty_sd=0.5)

PRESETS: dict[str, Preset] = {
    "smooth": Preset(
        Settings(recipe=Recipe(steps=3_000)),
        "many skills, a broad spectrum of difficulty: a sigmoid in log-compute",
    ),
    "gated": Preset(
        Settings(prompts=replace(_FEW, gate_share=0.4, gate_rate=(1e-3, 1e-3)), recipe=Recipe(steps=8_000)),
        "40 % of prompts need a skill that works once in 1,000 attempts: a plateau, then a second rise",
    ),
    "hidden-gate": Preset(
        Settings(prompts=replace(_FEW, gate_share=0.4, gate_rate=(1e-4, 1e-4)), recipe=Recipe(steps=3_000)),
        "the same at 1 in 10,000: the plateau lasts to the end of the run and looks like a ceiling",
    ),
    "gap": Preset(
        Settings(prompts=replace(_FEW, gap_share=0.4, gap=8.0), recipe=Recipe(steps=6_000)),
        "a hole in the spectrum of difficulty: a shoulder, then a second rise",
    ),
    "hacked": Preset(
        Settings(
            verifier=Verifier(exploits=1, exploit_logit=-6.5), recipe=Recipe(steps=4_000, exploit_rate=1.0)
        ),
        "the verifier accepts an exploit: the proxy goes to 1, the pass rate rises, then falls to 0",
    ),
    "reward-model": Preset(
        Settings(
            verifier=Verifier(exploits=24, exploit_logit=-6.5, reward_model=RewardModel()),
            recipe=Recipe(steps=4_000, exploit_rate=1.0),
        ),
        "a learned reward model whose errors the policy finds: over-optimisation",
    ),
    "noisy-verifier": Preset(
        Settings(verifier=Verifier(true_positive=0.8, false_positive=0.2), recipe=Recipe(steps=3_000)),
        "a fifth of right answers rejected, a fifth of wrong ones accepted: slower, not lower",
    ),
    "overfit": Preset(
        Settings(prompts=Prompts(train=64), policy=Policy(memory=10.0), recipe=Recipe(steps=3_000)),
        "64 training prompts, seen thousands of times, are memorised: held-out prompts stay far below",
    ),
    "interference": Preset(
        Settings(
            policy=Policy(rank=64, features=1.0, curvature=0.003),
            recipe=Recipe(steps=3_000, learning_rate=2.0),
        ),
        "skills and prompts share few parameters: learning one disturbs the others, and the rise ends early",
    ),
}


def preset(name: str) -> Settings:
    """Settings of a named world.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in PRESETS:
        raise InputError("unknown preset", found=repr(name), expected=" | ".join(PRESETS))
    return PRESETS[name].settings
