"""Sums and products, least significant digit first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulators.minirun.tasks.base import EOS, PAD, Phase, Prompts, Whole, change_digit, encode
from simulators.minirun.tasks.listed import ListedTask

_DIGITS = 3
_PLUS, _TIMES, _EQUALS = encode("+*=")


@dataclass(frozen=True)
class Pairs:
    """A class: pairs of numbers of as many digits, and the mistakes that are typical of it.

    Attributes
    ----------
    name : str
    digits : int
        Of both numbers.
    times : bool
        Multiply modulo 100 instead of adding.
    carries : bool or None
        Only sums with (without) a carry; None for all.
    dropped : float
        Share of the mistakes that drop all carries; the others change one digit.
    changed_too : float
        Share of those that drop carries and then change one digit as well.
    """

    name: str
    digits: int
    times: bool = False
    carries: bool | None = None
    dropped: float = 0.0
    changed_too: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Arithmetic(ListedTask):
    """Calculate with two numbers: ``21_+9__=`` asks for 12 + 9 and is answered by ``12$``."""

    prompt_length: int = 2 * _DIGITS + 2
    answer_length: int = _DIGITS + 2
    pairs: tuple[Pairs, ...]

    def _list(self, stratum: int) -> Whole:
        """Return all unordered pairs of a class, as keys."""
        kind = self.pairs[stratum]
        numbers = np.arange(10 ** (kind.digits - 1) if kind.digits > 1 else 0, 10**kind.digits)
        first, second = np.triu_indices(len(numbers))
        low, high = numbers[first], numbers[second]
        if kind.carries is not None:
            carries = (_digits(low) + _digits(high) > 9).any(axis=1)
            low, high = low[carries == kind.carries], high[carries == kind.carries]
        return (kind.times * 1000 + low) * 1000 + high

    def _write(self, keys: Whole, stratum: int, rng: np.random.Generator) -> Prompts:
        times, low, high = _operands(keys)
        swapped = rng.random(len(keys)) < 0.5
        tokens = np.empty((len(keys), self.prompt_length), dtype=np.int64)
        tokens[:, :_DIGITS] = _spell(np.where(swapped, high, low), _DIGITS, PAD)
        tokens[:, _DIGITS] = np.where(times, _TIMES, _PLUS)
        tokens[:, _DIGITS + 1 : -1] = _spell(np.where(swapped, low, high), _DIGITS, PAD)
        tokens[:, -1] = _EQUALS
        result = np.where(times, low * high % 100, low + high)
        answers = _spell(result, self.answer_length, EOS)
        return Prompts(tokens, answers, np.full(len(keys), stratum), keys)

    def _err(self, prompts: Prompts, rng: np.random.Generator) -> Whole:
        _, low, high = _operands(prompts.keys)
        draws = rng.random((2, len(prompts)))
        dropping = draws[0] < np.array([kind.dropped for kind in self.pairs])[prompts.stratum]
        changing = draws[1] < np.array([kind.changed_too for kind in self.pairs])[prompts.stratum]
        texts = prompts.answers.copy()
        # Without carries a sum has as many digits as its numbers, zeros at the end included.
        sums = np.where(
            10 ** np.arange(_DIGITS) <= np.maximum(high, 1)[:, None],
            (_digits(low) + _digits(high)) % 10,
            EOS,
        )
        texts[dropping, :_DIGITS] = sums[dropping]
        texts[dropping, _DIGITS:] = EOS
        changed = change_digit(texts, (texts != EOS).sum(axis=1), rng)
        return np.where((changing | ~dropping)[:, None], changed, texts)


def _operands(keys: Whole) -> tuple[Whole, Whole, Whole]:
    """Return whether to multiply, the smaller and the larger number."""
    return keys // 1_000_000, keys // 1000 % 1000, keys % 1000


def _digits(numbers: Whole, width: int = _DIGITS) -> Whole:
    """Return digits [N, width], least significant first."""
    return numbers[:, None] // 10 ** np.arange(width) % 10


def _spell(numbers: Whole, width: int, fill: int) -> Whole:
    """Return digits [N, width], least significant first, filled up where a number has fewer."""
    return np.where(10 ** np.arange(width) <= np.maximum(numbers, 1)[:, None], _digits(numbers, width), fill)


_CARRIES = (
    Pairs("easy", 3, carries=False),
    Pairs("carry", 3, carries=True, dropped=1.0, changed_too=0.5),
)
_CARRY_NOTE = (
    "One answer is right and it can be calculated, so the bound is 1. The skill is taught and then hidden by the "
    "warm start, whose second phase sets how late the sums with carries are learned."
)

ADDMUL = Arithmetic(
    name="addmul",
    description="sums of numbers of one, two or three digits, and products modulo 100",
    classes=("add1", "add2", "add3", "mul"),
    shares=(0.25, 0.25, 0.25, 0.25),
    ceiling=1.0,
    note=(
        "One answer is right and it can be calculated, so the bound is 1. A model of this size does not learn "
        "products that it was not shown: the mean over all classes has been seen to level off at 0.75 to 0.78."
    ),
    phases=(Phase(500, (0.8, 0.8, 0.8, 1.0)), Phase(80, (0.25, 0.1, 0.04, 1.0))),
    pairs=(
        Pairs("add1", 1, dropped=0.5),
        Pairs("add2", 2, dropped=0.5),
        Pairs("add3", 3, dropped=0.5),
        Pairs("mul", 2, times=True),
    ),
)

CARRY = Arithmetic(
    name="carry",
    description="sums of numbers of three digits, two in five of them without a carry",
    classes=("easy", "carry"),
    shares=(0.4, 0.6),
    ceiling=1.0,
    note=_CARRY_NOTE,
    phases=(Phase(400, (0.7, 0.6)), Phase(80, (0.2, 0.003))),
    pairs=_CARRIES,
)

CARRY_LATE = Arithmetic(
    name="carry_late",
    description="the sums of carry, after a warm start that hides the skill deeper",
    classes=("easy", "carry"),
    shares=(0.4, 0.6),
    ceiling=1.0,
    note=_CARRY_NOTE,
    phases=(Phase(500, (0.7, 0.6)), Phase(240, (0.15, 0.0001))),
    pairs=_CARRIES,
)
