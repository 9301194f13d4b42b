"""How many updates a second does a mini-run make, and what do shared prompts and cached keys buy?

``python -m studies.minirun_speed`` times generation, training, whole updates and evaluation on addmul, against the same
model without a cache, whose every new token and every update reads the prompt of each rollout anew. On a CPU: CPU-seconds
of one thread. ``--trl`` adds TRL's GRPOTrainer on the same weights, prompts and rewards; it is no dependency:

    uv run --extra torch --with trl python -m studies.minirun_speed --trl

TRL has: a GPT2LMHeadModel that holds our weights (same width, layers, heads, GELU, untied head; its biases start at 0) in
float32; the loss ``cispo`` with cap 5 (token mean), no KL; batches of as many prompts and rollouts, one update of each;
temperature 1, no top-k or top-p, at most 5 new tokens; AdamW (.9, .99; fused, its default), gradient clip 1, rate 3e-4 after
10 steps of warm-up; no dropout, logging, saving, evaluation, gradient checkpointing or vLLM; rewards from our verifier on
token ids. Both start from the warm start and end responses where they end, so they write the same number of tokens.
"""

from __future__ import annotations

import platform
import re
import resource
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import mean, median

import click
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from simulators.minirun.collecting import Collector
from simulators.minirun.evaluation import evaluate, heldout
from simulators.minirun.generation import Rollouts, sample, score, states
from simulators.minirun.ledger import Ledger
from simulators.minirun.model import Pair, Transformer
from simulators.minirun.recipes import recipe
from simulators.minirun.settings import RunSettings, Size
from simulators.minirun.tasks.base import EOS, SYMBOLS, counts
from simulators.minirun.tasks.registry import task as named
from simulators.minirun.updating import Updater
from simulators.minirun.warm_start import Weights, blank, cached

WARM_UP = 5
"""Calls that are not counted."""

AGREE = 1e-4
"""Largest difference of log-probabilities between implementations of one model, in float32."""

VARIANTS = {
    "float32": ("float32", False),
    "bfloat16": ("bfloat16", False),
    "float32-compiled": ("float32", True),
    "bfloat16-compiled": ("bfloat16", True),
}


class Plain(Transformer):
    """The same model without a cache or shared prompts: whatever is asked, whole sequences go through it.

    `sample` and `states` take it for a `Transformer`; in the place of keys and values it hands them tokens.
    """

    def read(self, prompt: Tensor) -> list[Pair]:
        """Read nothing yet."""
        return [(prompt, prompt)]

    def cache(self, prompt: list[Pair], groups: int, longest: int) -> list[Pair]:
        """Room for the tokens of the responses."""
        room = prompt[0][0].new_empty(len(prompt[0][0]), groups, longest)
        return [(room, room)]

    def respond(self, tokens: Tensor, prompt: list[Pair]) -> Tensor:
        """States of response tokens, from a causal pass over P x G sequences of prompt and response."""
        before = prompt[0][0]
        whole = torch.cat([before[:, None].expand(-1, tokens.shape[1], -1), tokens], -1).flatten(0, 1)
        with self._precision(tokens):
            x = (self.symbols(whole) + self.positions.weight[: whole.shape[1]])[:, None]
            for block in self._layers():
                q, k, v = (part.squeeze(2) for part in block.split(x))
                x = block.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, None])
        x = x[:, 0, before.shape[1] :].unflatten(0, tokens.shape[:2])
        return F.layer_norm(x.float(), x.shape[-1:], self.norm)

    def step(self, token: Tensor, at: int, prompt: list[Pair], cache: list[Pair]) -> Tensor:
        """States of the newest token."""
        cache[0][0][..., at] = token
        return self.respond(cache[0][0][..., : at + 1], prompt)[:, :, -1]


KINDS: dict[str, type[Transformer]] = {"ours": Transformer, "plain": Plain}


class Loop:
    """A run without its evaluations, in parts that can be timed; each returns the response tokens it handled."""

    def __init__(self, kind: type[Transformer], settings: RunSettings, weights: Weights) -> None:
        self.settings, self.task = settings, named(settings.task)
        task, device, ledger = self.task, settings.device, Ledger()
        positions = task.prompt_length + task.answer_length
        policy = kind(settings.size, len(SYMBOLS), positions, torch.Generator(), settings.trunk)
        policy.load_state_dict(weights)
        self.policy = policy.to(device)
        self.sampler = torch.Generator(device).manual_seed(settings.seed)
        self.pool = task.draw("train", counts(task, settings.pool), np.random.default_rng(settings.seed))
        rng = np.random.default_rng(settings.seed)
        self.collector = Collector(settings, task, self.pool, rng, self.sampler, ledger)
        reference = deepcopy(self.policy).requires_grad_(False)
        self.updater = Updater(
            self.policy, reference, task, settings.recipe, ledger, compiled=settings.compiled
        )
        some = np.random.default_rng(settings.seed).choice(len(self.pool), settings.recipe.prompts, False)
        self.prompts = torch.as_tensor(self.pool.tokens[some], device=device)
        self.heldout = heldout(task, settings.heldout)
        self.done = 0

    def rollouts(self) -> Rollouts:
        """Sample to a fixed batch of prompts."""
        groups, longest = self.settings.recipe.rollouts, self.task.answer_length
        return sample(self.policy, self.prompts, groups, longest, EOS, self.sampler)

    def generate(self) -> int:
        """Sample, and nothing else."""
        return int(self.rollouts().written.sum())

    def collect(self) -> int:
        """Sample a batch and have it verified."""
        self.batch = self.collector.next(self.policy, self.done)
        return int(self.batch.rollouts.written.sum())

    def train(self) -> int:
        """Train on the batch last collected."""
        self.updater.update(self.batch, self.done)
        self.done += 1
        return int(self.batch.rollouts.written.sum())

    def evaluate(self) -> int:
        """Evaluate on all held-out prompts."""
        found = evaluate(self.policy, self.task, self.heldout, self.settings, self.sampler)
        return found.work.tokens - len(self.heldout) * (self.task.prompt_length - 1)


@dataclass(frozen=True)
class Spent:
    """On one call: seconds, response tokens, and MiB that a GPU had to find for it."""

    seconds: float
    tokens: int
    mib: float

    def __add__(self, other: Spent) -> Spent:
        """One after the other, on the same tokens."""
        return Spent(self.seconds + other.seconds, self.tokens, max(self.mib, other.mib))


def clock(device: str) -> float:
    """CPU-seconds of this process, or seconds after a GPU has finished."""
    if torch.device(device).type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def spent(work: Callable[[], int], device: str) -> Spent:
    """Call `work`, timed."""
    gpu = torch.device(device).type == "cuda"
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    held = torch.cuda.memory_allocated(device) if gpu else 0
    begun = clock(device)
    tokens = work()
    seconds = clock(device) - begun
    peak = torch.cuda.max_memory_allocated(device) if gpu else 0
    return Spent(seconds, tokens, (peak - held) / 2**20)


Calls = dict[str, dict[str, list[Spent]]]
"""By part and implementation."""


def measure(settings: RunSettings, weights: Weights, repeats: int) -> Calls:
    """Time every part `repeats` times, implementations in turn, so that other work on the machine meets both alike."""
    parts = ("generation", "collecting", "training step", "whole update", "evaluation")
    calls: Calls = {part: {kind: [] for kind in KINDS} for part in parts}
    still = {name: Loop(kind, settings, weights) for name, kind in KINDS.items()}
    moving = {name: Loop(kind, settings, weights) for name, kind in KINDS.items()}
    for call in range(WARM_UP + repeats):
        for name in KINDS:
            found = {
                "generation": spent(still[name].generate, settings.device),
                "collecting": spent(moving[name].collect, settings.device),
                "training step": spent(moving[name].train, settings.device),
            }
            found["whole update"] = found["collecting"] + found["training step"]
            if call % 5 == 0:
                found["evaluation"] = spent(still[name].evaluate, settings.device)
            if call >= WARM_UP:
                for part, each in found.items():
                    calls[part][name].append(each)
    return calls


def table(calls: Calls) -> str:
    """Medians, as Markdown; what a GPU had to find, where there is one."""
    gpu = any(each.mib for kinds in calls.values() for found in kinds.values() for each in found)
    lines = [
        "| part | ours, ms (fastest) | plain, ms (fastest) | plain / ours | ours / s | response tokens / s, ours | plain |"
        + (" MiB, ours | plain |" if gpu else ""),
        "|---" * (9 if gpu else 7) + "|",
    ]
    for part, kinds in calls.items():
        seconds = {name: [each.seconds for each in found] for name, found in kinds.items()}
        middle = {name: median(found) for name, found in seconds.items()}
        tokens = {name: mean(each.tokens for each in found) for name, found in kinds.items()}
        cells = [
            part,
            *(f"{1e3 * middle[name]:.2f} ({1e3 * min(seconds[name]):.2f})" for name in KINDS),
            f"{middle['plain'] / middle['ours']:.2f}",
            f"{1 / middle['ours']:.1f}",
            *(f"{tokens[name] / middle[name]:,.0f}" for name in KINDS),
        ]
        if gpu:
            cells += [f"{max(each.mib for each in kinds[name]):.1f}" for name in KINDS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@torch.no_grad()
def disagreement(ours: Transformer, plain: Transformer, rollouts: Rollouts) -> float:
    """Largest difference of log-probability: teacher-forced by either, and as `ours` sampled the rollouts."""
    scored = [score(policy, states(policy, rollouts), rollouts) for policy in (ours, plain)]
    return max(float((each - scored[1]).abs().max()) for each in (scored[0], rollouts.logp))


def read_size(text: str) -> Size:
    """Width, layers and heads, such as 64x2x4."""
    if not re.fullmatch(r"\d+x\d+x\d+", text):
        raise click.BadParameter(f"{text!r} is not WIDTHxLAYERSxHEADS, such as 64x2x4", param_hint="--size")
    width, layers, heads = (int(part) for part in text.split("x"))
    return Size(width, layers, heads)


def peak_mib() -> float:
    """Most memory this process has held so far (Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


@click.command()
@click.option("--device", default="cpu", show_default=True, help="As torch names them.")
@click.option("--size", default="64x2x4", show_default=True, help="Width x layers x heads.")
@click.option("--prompts", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--rollouts", type=click.IntRange(min=2), default=8, show_default=True, help="Of each prompt.")
@click.option(
    "--variant",
    "variants",
    type=click.Choice(list(VARIANTS)),
    multiple=True,
    help="Of the trunk and the training pass; default: float32, on a GPU all.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=100, show_default=True, help="Counted calls.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--trl", is_flag=True, help="TRL's GRPOTrainer as well.")
def main(
    device: str,
    size: str,
    prompts: int,
    rollouts: int,
    variants: tuple[str, ...],
    repeats: int,
    seed: int,
    trl: bool,
) -> None:
    """Print milliseconds and rates of a mini-run's parts, ours and plain."""
    if trl and find_spec("trl") is None:
        raise click.UsageError(
            "--trl needs TRL: uv run --extra torch --with trl python -m studies.minirun_speed --trl"
        )
    cpu, before = torch.device(device).type == "cpu", peak_mib()
    if cpu:
        torch.set_num_threads(1)
    knobs = replace(recipe("base"), prompts=prompts, rollouts=rollouts, staleness=0)
    pool = max(RunSettings.pool, prompts)
    settings = RunSettings("addmul", recipe=knobs, seed=seed, size=read_size(size), device=device, pool=pool)
    task, known = named(settings.task), settings.size == Size()
    weights = cached(task, settings.size, 0)[0] if known else dict(blank(task, settings.size, 0).state_dict())

    loops = {name: Loop(kind, settings, weights) for name, kind in KINDS.items()}
    batch = loops["ours"].rollouts()
    apart = disagreement(loops["ours"].policy, loops["plain"].policy, batch)
    if apart > AGREE:
        raise click.ClickException(f"ours and plain differ: log-probabilities {apart} apart")
    chip = "one thread, CPU-seconds" if cpu else torch.cuda.get_device_name(device)
    print(
        f"addmul, {size} ({loops['ours'].policy.matmul_parameters:,} matmul parameters), {prompts} prompts x {rollouts} rollouts, "
        f"{'warm start' if known else 'random weights'}, {batch.written.sum(-1).float().mean():.2f} tokens a response; {chip}; "
        f"torch {torch.__version__}, Python {platform.python_version()}; log-probabilities {apart:.1e} apart; "
        f"medians of {repeats} (evaluation of {settings.heldout} x {settings.samples}: a fifth as many)."
    )
    calls: dict[str, Calls] = {}
    for name in variants or (("float32",) if cpu else tuple(VARIANTS)):
        trunk, compiled = VARIANTS[name]
        calls[name] = measure(replace(settings, trunk=trunk, compiled=compiled), weights, repeats)
        print(f"\n{name}\n\n{table(calls[name])}", flush=True)
    if cpu:
        print(
            f"\nPeak memory of the process: {peak_mib():.0f} MiB, of it {before:.0f} MiB before the first batch."
        )
    if trl:
        from studies.minirun_trl import trl_table

        print(f"\n{trl_table(next(iter(calls.values())), loops['ours'], repeats)}")


if __name__ == "__main__":
    main()
