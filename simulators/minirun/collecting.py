"""Batches for training: prompts, rollouts and their rewards, as fresh or as stale as the recipe says."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from simulators.minirun.advantages import varies
from simulators.minirun.feed import Feed
from simulators.minirun.generation import Rollouts, sample
from simulators.minirun.ledger import Ledger, work
from simulators.minirun.model import Transformer
from simulators.minirun.rewards import accepted, interruption, length_penalty
from simulators.minirun.settings import RunSettings
from simulators.minirun.tasks.base import EOS, Prompts, Task

REFILLS = 10
"""Most times that a batch is sampled again for groups whose rewards differ; then it goes as it is."""


@dataclass(frozen=True)
class Batch:
    """Rollouts of P prompts x G with what they were given.

    Attributes
    ----------
    rollouts : Rollouts
    rewards : tensor [P, G]
        What is maximised: acceptance, less the length penalty.
    accepted, right : tensor [P, G]
        What the verifier said, and the truth; 0 or 1.
    sampled_at : int
        Updates the policy had seen when it sampled.
    tokens, sampled : int
        Tokens and rollouts that were generated for this batch, thrown away or not.
    figures : dict
        Of the same.
    """

    rollouts: Rollouts
    rewards: Tensor
    accepted: Tensor
    right: Tensor
    sampled_at: int
    tokens: int
    sampled: int
    figures: dict[str, float]

    def state(self) -> dict[str, object]:
        """For a checkpoint: tensors and plain numbers."""
        tensors = {field.name: getattr(self.rollouts, field.name) for field in fields(Rollouts)}
        own = {field.name: getattr(self, field.name) for field in fields(Batch) if field.name != "rollouts"}
        return {"rollouts": tensors, **own}

    @staticmethod
    def restored(state: dict, device: str) -> Batch:
        """Back from `state`, with all tensors on a device."""

        def placed(values: dict) -> dict:
            return {
                name: value.to(device) if isinstance(value, Tensor) else value
                for name, value in values.items()
            }

        return Batch(**placed(state) | {"rollouts": Rollouts(**placed(state["rollouts"]))})


class Collector:
    """Samples batches with the policy as it is now and keeps those that wait.

    Parameters
    ----------
    settings : RunSettings
    task : Task
    pool : Prompts
        Training prompts.
    rng : numpy.random.Generator
        Of the order of prompts and of the verifier's mistakes.
    sampler : torch.Generator
        Of the rollouts.
    ledger : Ledger
        Charged for everything that is sampled.
    """

    def __init__(
        self,
        settings: RunSettings,
        task: Task,
        pool: Prompts,
        rng: np.random.Generator,
        sampler: torch.Generator,
        ledger: Ledger,
    ) -> None:
        self.settings, self.task, self.pool = settings, task, pool
        self.rng, self.sampler, self.ledger = rng, sampler, ledger
        self.feed = Feed(len(pool), rng)
        self.waiting: list[Batch] = []

    def next(self, policy: Transformer, step: int) -> Batch:
        """Return the batch that update number `step` trains on.

        ``pipeline`` samples one batch after each update and trains on the oldest; ``alternate`` samples k + 1 at once
        when none is left.
        """
        recipe = self.settings.recipe
        if recipe.staleness_style == "pipeline" or not self.waiting:
            while len(self.waiting) < recipe.staleness + 1:
                self.waiting.append(self._collect(policy, step))
        batch = self.waiting.pop(0)
        self.ledger.tokens += batch.tokens
        self.ledger.rollouts += batch.sampled
        return batch

    def _collect(self, policy: Transformer, step: int) -> Batch:
        recipe = self.settings.recipe
        rounds = [self._sample(policy, recipe.prompts)]
        if recipe.zero_variance == "resample":
            useful = int(varies(rounds[0][2][0]).sum())
            while useful < recipe.prompts and len(rounds) <= REFILLS:
                rounds.append(self._sample(policy, recipe.prompts))
                useful += int(varies(rounds[-1][2][0]).sum())
        rollouts = Rollouts.together([each[0] for each in rounds])
        rewards, yes, right = (torch.cat([each[2][i] for each in rounds]) for i in range(3))
        figures = {
            "train_reward": float(yes.mean()),
            "train_pass_rate": float(right.mean()),
            "zero_variance": float((~varies(rewards)).float().mean()),
            "entropy": float(rollouts.entropy.sum() / rollouts.mask.sum()),
            "truncated": float((~(rollouts.tokens == EOS).any(-1)).float().mean()),
            "response_length": float(rollouts.written.sum(-1).float().mean()),
        }
        # Groups that teach something first, in the order in which they were sampled.
        keep = (~varies(rewards)).int().argsort(stable=True)[: recipe.prompts]
        if recipe.zero_variance != "resample":
            keep = torch.arange(recipe.prompts, device=rewards.device)
        return Batch(
            rollouts=rollouts[keep],
            rewards=rewards[keep],
            accepted=yes[keep],
            right=right[keep],
            sampled_at=step,
            tokens=sum(each[1] for each in rounds),
            sampled=rewards.numel(),
            figures=figures,
        )

    def _sample(self, policy: Transformer, count: int) -> tuple[Rollouts, int, list[Tensor]]:
        recipe, task, device = self.settings.recipe, self.task, self.settings.device
        indices = self.feed.next(count)
        prompts = self.pool[indices]
        rollouts = sample(
            policy,
            torch.as_tensor(prompts.tokens, device=device),
            recipe.rollouts,
            task.answer_length,
            EOS,
            self.sampler,
            temperature=recipe.temperature,
            head=recipe.generator_head,
            interruption=interruption(task, recipe),
        )
        responses = rollouts.tokens.cpu().numpy()
        lengths = rollouts.written.sum(-1).cpu().numpy()
        right = task.verify(prompts, responses)
        probability = accepted(right, task, prompts, responses, self.settings.verifier)
        yes = self.rng.random(right.shape) < probability
        if recipe.easy is not None:
            self.feed.set_aside(indices[yes.mean(1) >= recipe.easy])
        used = work(task.prompt_length, count, lengths.flatten().tolist())
        self.ledger.gen_flops += used.forward(policy)
        penalty = length_penalty(lengths, (responses == EOS).any(-1), task, recipe)
        found = (yes - penalty, yes, right)
        return (
            rollouts,
            used.tokens,
            [torch.as_tensor(each, dtype=torch.float32, device=device) for each in found],
        )
