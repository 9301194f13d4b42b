"""Sampling rollouts, and scoring them as the trainer does."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from simulators.minirun.model import Transformer


@dataclass(frozen=True)
class Rollouts:
    """G sampled responses to each of P prompts, L tokens at most.

    Attributes
    ----------
    prompts : int tensor [P, S]
    tokens : int tensor [P, G, L]
        Padded with the end symbol.
    logp : tensor [P, G, L]
        Log-probability under the policy that sampled, as it computed it; 0 where nothing was chosen.
    mask : bool tensor [P, G, L]
        Tokens that were chosen: up to and including the end, without a forced one.
    written : bool tensor [P, G, L]
        Tokens up to and including the end, forced or chosen.
    entropy : tensor [P, G, L]
        Of the distribution each token was drawn from, nats.
    """

    prompts: Tensor
    tokens: Tensor
    logp: Tensor
    mask: Tensor
    written: Tensor
    entropy: Tensor

    def __getitem__(self, groups: Tensor) -> Rollouts:
        """Only the groups that an index or mask names."""
        return Rollouts(*(getattr(self, field.name)[groups] for field in fields(self)))

    @staticmethod
    def together(parts: list[Rollouts]) -> Rollouts:
        """All groups of several batches."""
        return Rollouts(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Rollouts)))


@dataclass(frozen=True)
class Interruption:
    """A token that is forced, at place `at`, on responses that have neither ended nor chosen it themselves."""

    at: int
    mark: int


@torch.no_grad()
def sample(
    policy: Transformer,
    prompts: Tensor,
    groups: int,
    longest: int,
    end: int,
    generator: torch.Generator,
    *,
    temperature: float = 1.0,
    head: str = "float32",
    interruption: Interruption | None = None,
) -> Rollouts:
    """Sample responses. The prompt up to its last token is read once for all of its rollouts.

    Parameters
    ----------
    policy : Transformer
    prompts : int tensor [P, S]
    groups : int
        Rollouts of each prompt.
    longest : int
        Most tokens of a response.
    end : int
        Symbol that ends a response.
    generator : torch.Generator
        On the device of the policy.
    temperature : float
    head : str
        Precision of the head, see `Transformer.logits`.
    interruption : Interruption, optional
    """
    count = len(prompts)
    shared = policy.read(prompts[:, :-1])
    cache = policy.cache(shared, groups, longest)
    shape = (count, groups, longest)
    tokens = prompts.new_full(shape, end)
    logp, entropy = (torch.zeros(shape, device=prompts.device) for _ in range(2))
    mask, written = (torch.zeros(shape, dtype=torch.bool, device=prompts.device) for _ in range(2))
    token = prompts[:, -1:].expand(count, groups)
    open_ = torch.ones(count, groups, dtype=torch.bool, device=prompts.device)
    for at in range(longest):
        scores = policy.logits(policy.step(token, at, shared, cache), head) / temperature
        logs = scores.log_softmax(-1)
        # The largest of p / Exp(1) is a draw from p.
        races = torch.empty_like(logs).exponential_(generator=generator)
        chosen = (logs - races.log()).argmax(-1)
        token = torch.where(open_, chosen, end)
        mine = open_
        if interruption is not None and at == interruption.at:
            forced = open_ & ~(tokens[..., :at] == interruption.mark).any(-1)
            token = torch.where(forced, interruption.mark, token)
            mine = open_ & ~forced
        tokens[..., at] = token
        written[..., at] = open_
        mask[..., at] = mine
        logp[..., at] = torch.where(mine, logs.gather(-1, token[..., None])[..., 0], 0.0)
        entropy[..., at] = torch.where(mine, -(logs.exp() * logs).nansum(-1), 0.0)
        open_ = open_ & (token != end)
        if not open_.any():
            break
    return Rollouts(prompts, tokens, logp, mask, written, entropy)


def states(policy: Transformer, rollouts: Rollouts) -> Tensor:
    """States [P, G, L, d] from which every token of the rollouts was, or would be, drawn."""
    shared = policy.read(rollouts.prompts[:, :-1])
    last = rollouts.prompts[:, None, -1:].expand(-1, rollouts.tokens.shape[1], -1)
    return policy.respond(torch.cat([last, rollouts.tokens[..., :-1]], -1), shared)


def score(
    policy: Transformer,
    seen: Tensor,
    rollouts: Rollouts,
    *,
    temperature: float = 1.0,
    head: str = "float32",
) -> Tensor:
    """Log-probability [P, G, L] of the tokens, from `states`; 0 where none was chosen."""
    logs = (policy.logits(seen, head) / temperature).log_softmax(-1)
    return torch.where(rollouts.mask, logs.gather(-1, rollouts.tokens[..., None])[..., 0], 0.0)
