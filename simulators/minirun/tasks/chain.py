"""One or two operations on a string of digits, answered at once or after writing down what lies between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulators.minirun.tasks.base import (
    EOS,
    PAD,
    SYMBOLS,
    Phase,
    Prompts,
    Truth,
    Whole,
    change_digit,
    encode,
    equal,
    settle,
)
from simulators.minirun.tasks.listed import ListedTask

_DIGITS = 4
_SLACK = 6
_MARK = SYMBOLS.index(">")
_FIRST = SYMBOLS.index("A")

# Operations A-E: each takes its digit at place j from place _FROM[operation, j], multiplies it and adds to it (mod 10).
_FROM = np.array([[3, 2, 1, 0], [1, 2, 3, 0], [0, 1, 2, 3], [0, 1, 2, 3], [3, 1, 2, 0]])
_TIMES = np.array([1, 1, 1, -1, 1])
_PLUS = np.array([0, 0, 1, 9, 0])
_OPERATIONS = len(_FROM)
_UNDOES_ITSELF = np.array([True, False, False, True, True])
_NONE = _OPERATIONS
"""Stands for the second operation of a prompt that has one."""

_WORKED = np.array([0.25, 0.5])
"""Share of the demonstrations that write a state before the answer, by class."""

_WRONG_OPERATION = 0.5
"""Share of the mistakes that take another operation for the last one; the others change one digit."""


@dataclass(frozen=True, kw_only=True)
class Chain(ListedTask):
    """Apply operations from left to right: ``AC1234=`` is answered by ``5432$`` or, thinking, by ``4321>5432$``.

    Only what follows the last ``>`` is graded.
    """

    def _list(self, stratum: int) -> Whole:
        """Return the keys of a class: first operation, second operation and digits."""
        first, second = np.divmod(np.arange(_OPERATIONS * (_OPERATIONS + 1)), _OPERATIONS + 1)
        # Twice the same reflection leaves everything as it was: that is no task with two operations.
        idle = (first == second) & _UNDOES_ITSELF[first]
        chosen = second == _NONE if stratum == 0 else (second != _NONE) & ~idle
        codes = (first * 10 + second)[chosen]
        return (codes[:, None] * 10**_DIGITS + np.arange(10**_DIGITS)).ravel()

    def _write(self, keys: Whole, stratum: int, rng: np.random.Generator) -> Prompts:
        first, second, digits = _parts(keys)
        tokens = np.empty((len(keys), self.prompt_length), dtype=np.int64)
        tokens[:, 0] = _FIRST + first
        tokens[:, 1] = np.where(second == _NONE, PAD, _FIRST + second)
        tokens[:, 2:-1] = digits
        tokens[:, -1] = encode("=")[0]
        answers = np.full((len(keys), self.answer_length), EOS)
        answers[:, :_DIGITS] = _apply(second, _apply(first, digits))
        return Prompts(tokens, answers, np.full(len(keys), stratum), keys)

    def verify(self, prompts: Prompts, responses: Whole) -> Truth:
        """Grade what follows the last ``>``, see `Task.verify`."""
        settled, ended = settle(responses)
        return ended & equal(prompts.answers[:, : self.answer_tokens], self._answer(settled))

    def prefix_right(self, prompts: Prompts, responses: Whole) -> Truth:
        """Look at the first token after the last ``>``, see `Task.prefix_right`."""
        return self._answer(settle(responses)[0])[:, :, 0] == prompts.answers[:, :1]

    def _answer(self, settled: Whole) -> Whole:
        """Return the tokens [N, G, answer_tokens] after the last mark, or the first ones where there is none."""
        length = settled.shape[2]
        begin = ((settled == _MARK) * np.arange(1, length + 1)).max(axis=2)
        places = begin[:, :, None] + np.arange(self.answer_tokens)
        # Past the end of a response there is nothing; an answer that is cut off there has no EOS and is wrong anyway.
        return np.where(places < length, np.take_along_axis(settled, np.minimum(places, length - 1), 2), PAD)

    def _solve(self, prompts: Prompts, rng: np.random.Generator) -> Whole:
        return self._show(prompts, prompts.answers[:, :_DIGITS], rng)

    def _err(self, prompts: Prompts, rng: np.random.Generator) -> Whole:
        first, second, digits = _parts(prompts.keys)
        double = second != _NONE
        before = np.where(double[:, None], _apply(first, digits), digits)
        last = np.where(double, second, first)
        other = (last + rng.integers(1, _OPERATIONS, size=len(prompts))) % _OPERATIONS
        right = prompts.answers[:, :_DIGITS]
        changed = change_digit(right, np.full(len(prompts), _DIGITS), rng)
        confused = rng.random(len(prompts)) < _WRONG_OPERATION
        return self._show(prompts, np.where(confused[:, None], _apply(other, before), changed), rng)

    def _show(self, prompts: Prompts, final: Whole, rng: np.random.Generator) -> Whole:
        """Write the final strings [N, digits], some of them after the state before the last operation."""
        first, second, digits = _parts(prompts.keys)
        # With one operation there is nothing between: what is written is a useless copy.
        between = np.where((second != _NONE)[:, None], _apply(first, digits), digits)
        worked = rng.random(len(prompts)) < _WORKED[prompts.stratum]
        shown = np.full((len(prompts), self.answer_length), EOS)
        shown[~worked, :_DIGITS] = final[~worked]
        shown[worked, :_DIGITS] = between[worked]
        shown[worked, _DIGITS] = _MARK
        shown[worked, _DIGITS + 1 : 2 * _DIGITS + 1] = final[worked]
        return shown


def _parts(keys: Whole) -> tuple[Whole, Whole, Whole]:
    """Return first operation [N], second operation [N] and digits [N, digits]."""
    codes, number = np.divmod(keys, 10**_DIGITS)
    return codes // 10, codes % 10, number[:, None] // 10 ** np.arange(_DIGITS)[::-1] % 10


def _apply(operation: Whole, digits: Whole) -> Whole:
    """Apply to each string of digits [N, digits] its operation [N]."""
    done = np.minimum(operation, _OPERATIONS - 1)
    moved = np.take_along_axis(digits, _FROM[done], axis=1)
    changed = (moved * _TIMES[done, None] + _PLUS[done, None]) % 10
    return np.where((operation == _NONE)[:, None], digits, changed)


CHAIN = Chain(
    name="chain",
    description="one or two operations (reverse, rotate, add 1, 9 minus, swap ends) on four digits, thinking allowed",
    classes=("one", "two"),
    shares=(0.5, 0.5),
    prompt_length=2 + _DIGITS + 1,
    answer_length=2 * (_DIGITS + 1) + _SLACK,
    ceiling=1.0,
    note=(
        "One final string is right and it can be worked out, so the bound is 1. Two operations are learned later than "
        "one; writing the string between them makes them easier and the response longer."
    ),
    phases=(Phase(600, (0.8, 0.8)), Phase(80, (0.2, 0.05))),
    answer_mark=_MARK,
    answer_tokens=_DIGITS + 1,
)
