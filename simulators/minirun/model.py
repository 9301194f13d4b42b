"""A small decoder-only transformer whose rollouts share the keys and values of their prompt.

Sequences have two parts: a prompt, read once, and G responses to it, which attend to the prompt and to themselves.
Generation (one token at a time) and training (all tokens at once) are the same function with more or fewer tokens.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simulators.minirun.settings import Size

Pair = tuple[Tensor, Tensor]
"""Keys and values of one layer."""


class Block(nn.Module):
    """Pre-LayerNorm attention and GELU network; no biases (Radford et al. 2019, without them)."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(size.width)) for _ in range(2)])
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.mix = nn.Linear(size.width, size.width, bias=False)
        self.up = nn.Linear(size.width, 4 * size.width, bias=False)
        self.down = nn.Linear(4 * size.width, size.width, bias=False)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [P, H, G, T, d/H] of states [P, G, T, d]."""
        normed = F.layer_norm(x, x.shape[-1:], self.norms[0])
        q, k, v = self.qkv(normed).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 4, 1, 2, 5)
        return q, k, v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add what was attended to [P, H, G, T, d/H] and the network's output to states [P, G, T, d]."""
        x = x + self.mix(attended.permute(0, 2, 3, 1, 4).flatten(3))
        return x + self.down(F.gelu(self.up(F.layer_norm(x, x.shape[-1:], self.norms[1]))))


def attend(q: Tensor, prompt: Pair, own: Pair, visible: Tensor | None) -> Tensor:
    """Attention of responses to their prompt and to themselves.

    Parameters
    ----------
    q : tensor [P, H, G, T, e]
    prompt : pair of tensors [P, H, S, e]
        Keys and values of the prompt, the same for its G responses.
    own : pair of tensors [P, H, G, U, e]
        Those of the response so far.
    visible : bool tensor [T, U] or None
        What each token may see of its response; None: everything.
    """
    groups, tokens = q.shape[2:4]
    keys, values = prompt
    to_prompt = (q.flatten(2, 3) @ keys.mT).unflatten(2, (groups, tokens))
    to_own = q @ own[0].mT
    if visible is not None:
        to_own = to_own.masked_fill(~visible, -torch.inf)
    scores = torch.cat([to_prompt, to_own], -1) / math.sqrt(q.shape[-1])
    weight = scores.float().softmax(-1).to(values.dtype)
    of_prompt, of_own = weight.split([keys.shape[2], own[0].shape[3]], -1)
    from_prompt = (of_prompt.flatten(2, 3) @ values).unflatten(2, (groups, tokens))
    return from_prompt + of_own @ own[1]


def rounded(x: Tensor, precision: str) -> Tensor:
    """Round to what `precision` can hold; gradients pass as if nothing had been rounded."""
    if precision == "float32":
        return x
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float8_e4m3fn
    return x + (x.to(kind).to(x.dtype) - x).detach()


class Transformer(nn.Module):
    """Decoder-only transformer with learned positions and an untied head.

    Parameters
    ----------
    size : Size
    symbols : int
        Size of the vocabulary.
    positions : int
        Longest prompt plus longest response.
    generator : torch.Generator
        Of the initial weights: normal, sd .1 for embeddings, else 1 / sqrt(inputs); what is added to the residual
        stream has that divided by sqrt(2 layers).
    trunk : {"float32", "bfloat16"}
        Precision of everything but the head.
    """

    def __init__(
        self, size: Size, symbols: int, positions: int, generator: torch.Generator, trunk: str = "float32"
    ) -> None:
        super().__init__()
        self.size, self.trunk = size, trunk
        self.symbols = nn.Embedding(symbols, size.width)
        self.positions = nn.Embedding(positions, size.width)
        self.blocks = nn.ModuleList([Block(size) for _ in range(size.layers)])
        self.norm = nn.Parameter(torch.ones(size.width))
        self.head = nn.Linear(size.width, symbols, bias=False)
        self.value = nn.Linear(size.width, 1)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                embedding = name.startswith(("symbols", "positions"))
                deep = name.endswith(("mix.weight", "down.weight"))
                sd = 0.1 if embedding else parameter.shape[1] ** -0.5
                sd = sd / math.sqrt(2 * size.layers) if deep else sd
                nn.init.normal_(parameter, std=sd, generator=generator)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def _layers(self) -> list[Block]:
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def matmul_parameters(self) -> int:
        """Parameters that are multiplied with every token: no embeddings, no norms, no value head."""
        return self.head.weight.numel() + sum(p.numel() for p in self.blocks.parameters() if p.ndim == 2)

    def read(self, prompt: Tensor) -> list[Pair]:
        """Keys and values [P, H, S, e] of every layer, of prompt tokens [P, S]."""
        with self._precision(prompt):
            x = (self.symbols(prompt) + self.positions.weight[: prompt.shape[1]])[:, None]
            pairs = []
            for block in self._layers():
                q, k, v = (part.squeeze(2) for part in block.split(x))
                pairs.append((k, v))
                x = block.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, None])
        return pairs

    def respond(self, tokens: Tensor, prompt: list[Pair]) -> Tensor:
        """States [P, G, T, d] of response tokens [P, G, T], each seeing the prompt and those before it."""
        length = tokens.shape[2]
        visible = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        begin = prompt[0][0].shape[2]
        with self._precision(tokens):
            x = self.symbols(tokens) + self.positions.weight[begin : begin + length]
            for block, pair in zip(self._layers(), prompt, strict=True):
                q, k, v = block.split(x)
                x = block.finish(x, attend(q, pair, (k, v), visible))
        return F.layer_norm(x.float(), x.shape[-1:], self.norm)

    def step(self, token: Tensor, at: int, prompt: list[Pair], cache: list[Pair]) -> Tensor:
        """States [P, G, d] of the token [P, G] at place `at` of the response; its keys and values go into `cache`.

        Parameters
        ----------
        cache : list of pairs of tensors [P, H, G, L, e]
            Filled up to `at`.
        """
        begin = prompt[0][0].shape[2]
        with self._precision(token):
            x = (self.symbols(token) + self.positions.weight[begin + at])[:, :, None]
            for block, pair, (keys, values) in zip(self._layers(), prompt, cache, strict=True):
                q, k, v = block.split(x)
                keys[:, :, :, at : at + 1] = k
                values[:, :, :, at : at + 1] = v
                seen = keys[:, :, :, : at + 1], values[:, :, :, : at + 1]
                x = block.finish(x, attend(q, pair, seen, None))
        return F.layer_norm(x.float(), x.shape[-1:], self.norm)[:, :, 0]

    def cache(self, prompt: list[Pair], groups: int, longest: int) -> list[Pair]:
        """Room for the keys and values of `groups` responses to each prompt, of `longest` tokens each."""
        count, heads, _, each = prompt[0][0].shape
        shape = (count, heads, groups, longest, each)
        return [(k.new_empty(shape), v.new_empty(shape)) for k, v in prompt]

    def logits(self, states: Tensor, precision: str = "float32") -> Tensor:
        """Logits of states [..., d], in the precision of a head that holds its inputs and outputs in `precision`."""
        weight = rounded(self.head.weight, precision)
        return rounded(F.linear(rounded(states, precision), weight), precision)

    def _precision(self, like: Tensor) -> AbstractContextManager[None]:
        return torch.autocast(like.device.type, dtype=torch.bfloat16, enabled=self.trunk == "bfloat16")
