"""What a run has used: floating-point operations, tokens, rollouts and seconds, generation apart from training.

A token costs 2 N operations forward and 4 N backward, N the matrix parameters; attention adds 4 x layers x width x
context forward and twice that backward (Kaplan et al. 2020, arXiv 2001.08361, table 1). Warm start and evaluation are
not training compute, and are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulators.minirun.model import Transformer


@dataclass
class Ledger:
    """Sums since the start of a run.

    Attributes
    ----------
    gen_flops, train_flops, eval_flops : float
        Spent; generation also for batches that wait.
    tokens : int
        Generated for the batches that were trained on, thrown away for them or not: prompts without their last token,
        once per group, and every token of a response.
    train_tokens : int
        Trained on, whatever was filtered out of the loss.
    rollouts : int
        As `tokens`.
    device_seconds, eval_seconds : float
        Of one GPU; on a CPU, seconds of one core.
    """

    gen_flops: float = 0.0
    train_flops: float = 0.0
    eval_flops: float = 0.0
    tokens: int = 0
    train_tokens: int = 0
    rollouts: int = 0
    device_seconds: float = 0.0
    eval_seconds: float = 0.0

    @property
    def flops(self) -> float:
        """Generation and training together."""
        return self.gen_flops + self.train_flops


@dataclass(frozen=True)
class Work:
    """Tokens that go through the model once, and the tokens that they attend to, summed."""

    tokens: int
    attended: int

    def forward(self, policy: Transformer) -> float:
        """Floating-point operations of one forward pass."""
        size = policy.size
        return 2.0 * policy.matmul_parameters * self.tokens + 4.0 * size.layers * size.width * self.attended


def work(prompt: int, count: int, lengths: list[int]) -> Work:
    """Work of reading `count` prompts once and their responses.

    Parameters
    ----------
    prompt : int
        Tokens of a prompt. Its last one is fed to each response, as the token before its first.
    count : int
        Prompts.
    lengths : list of int
        Tokens of each response to any of them, the end included.
    """
    shared = prompt - 1
    # A token sees itself and all before it: 1 + 2 + ... within the prompt, then shared + 1, shared + 2, ...
    own = sum(length * shared + length * (length + 1) // 2 for length in lengths)
    return Work(count * shared + sum(lengths), count * shared * (shared + 1) // 2 + own)
