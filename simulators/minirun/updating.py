"""One update of the policy from one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from forecast.errors import ForecastError
from simulators.minirun.advantages import advantages, varies
from simulators.minirun.collecting import Batch
from simulators.minirun.generation import Rollouts, score, states
from simulators.minirun.ledger import Ledger, work
from simulators.minirun.model import Transformer
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.registry import loss, needs_reference
from simulators.minirun.objectives.value import value_loss
from simulators.minirun.settings import Recipe
from simulators.minirun.tasks.base import Task


class Updater:
    """Policy, optimiser and what they need: AdamW (.9, .99), no decay, linear warm-up of the rate.

    Parameters
    ----------
    policy : Transformer
    reference : Transformer
        The warm start.
    task : Task
    recipe : Recipe
    ledger : Ledger
        Charged for every token of every batch, whatever filters leave of it.
    compiled : bool
        Compile the forward and backward pass.
    """

    def __init__(
        self,
        policy: Transformer,
        reference: Transformer,
        task: Task,
        recipe: Recipe,
        ledger: Ledger,
        *,
        compiled: bool = False,
    ) -> None:
        self.policy, self.reference = policy, reference
        self.task, self.recipe, self.ledger = task, recipe, ledger
        self.optimiser = torch.optim.AdamW(
            policy.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self.states: Callable[[Transformer, Rollouts], Tensor] = torch.compile(states) if compiled else states

    def update(self, batch: Batch, step: int) -> dict[str, float]:
        """Train on a batch; return figures for the log.

        Raises
        ------
        ForecastError
            If the loss or its gradient is no longer finite.
        """
        recipe, rollouts = self.recipe, batch.rollouts
        seen = self.states(self.policy, rollouts)
        logp = score(self.policy, seen, rollouts, temperature=recipe.temperature, head=recipe.trainer_head)
        kept = varies(batch.rewards)
        if recipe.zero_variance != "drop":
            kept = torch.ones_like(kept)
        learned = self.policy.value(seen)[..., 0] if recipe.baseline == "value" else None
        scored = Scored(
            logp=logp,
            behaviour=rollouts.logp,
            mask=rollouts.mask,
            rewards=batch.rewards,
            advantages=advantages(batch.rewards, recipe, kept, learned, rollouts.mask),
            kept=kept,
            reference=self._reference(rollouts),
        )
        found = loss(scored, recipe, self.task.answer_length)
        total = found.value
        if learned is not None:
            total = total + recipe.value_weight * value_loss(learned, batch.rewards, rollouts.mask, kept)
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), recipe.clip_norm))
        if not norm < float("inf"):
            raise ForecastError(f"training diverged: the gradient of update {step + 1} is {norm}")
        rate = recipe.learning_rate * min(1.0, (step + 1) / max(recipe.warmup, 1))
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.step()
        self._charge(rollouts)
        return {
            "loss": float(found.value.detach()),
            "grad_norm": norm,
            "lag": step - batch.sampled_at,
            **found.figures,
        }

    @torch.no_grad()
    def _reference(self, rollouts: Rollouts) -> Tensor | None:
        if not needs_reference(self.recipe):
            return None
        seen = states(self.reference, rollouts)
        return score(self.reference, seen, rollouts, temperature=self.recipe.temperature)

    def _charge(self, rollouts: Rollouts) -> None:
        lengths = rollouts.written.sum(-1).flatten().tolist()
        used = work(self.task.prompt_length, len(rollouts.prompts), lengths)
        passes = 4 if needs_reference(self.recipe) else 3
        self.ledger.train_flops += passes * used.forward(self.policy)
        self.ledger.train_tokens += used.tokens
