"""What a task is: an alphabet, prompts with right answers, a split that never moves, a verifier, demonstrations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from simulators.ranges import check_choice

Whole = NDArray[np.int64]
Truth = NDArray[np.bool_]

SYMBOLS = "0123456789+=_$*>#ABCDEFGHI"
"""The alphabet of all tasks: a token is an index into it, and the token of a digit is that digit."""

PAD = SYMBOLS.index("_")
EOS = SYMBOLS.index("$")
SPLITS = ("train", "heldout")
_SPLIT_SALT = 55
"""The first that holds out a quarter even of the 55 sums of two one-digit numbers (14); never change it."""

_TOKEN = {symbol: token for token, symbol in enumerate(SYMBOLS)}


def encode(text: str) -> Whole:
    """Return the tokens of a text."""
    unknown = sorted(set(text) - set(SYMBOLS))
    if unknown:
        raise InputError("not in the alphabet of the tasks", found=" ".join(unknown), expected=SYMBOLS)
    return np.array([_TOKEN[symbol] for symbol in text], dtype=np.int64)


def decode(tokens: Sequence[int] | Whole) -> str:
    """Return the text of tokens."""
    return "".join(SYMBOLS[token] for token in tokens)


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts of one task.

    Attributes
    ----------
    tokens : int [N, prompt_length]
        All of one length, ending in ``=``.
    answers : int [N, answer_length]
        A right answer to each, ended by `EOS` and filled with `EOS`.
    stratum : int [N]
        Index into the classes of the task.
    keys : int [N]
        What a prompt is, whatever the order it is written in (2+3 and 3+2 share a key): splits go by it.
    """

    tokens: Whole
    answers: Whole
    stratum: Whole
    keys: Whole

    def __len__(self) -> int:
        """Return how many prompts there are."""
        return len(self.tokens)

    def __getitem__(self, index: NDArray[np.generic] | slice) -> Prompts:
        """Return those that an array of indices, a mask or a slice picks."""
        return Prompts(self.tokens[index], self.answers[index], self.stratum[index], self.keys[index])


def join(parts: Sequence[Prompts]) -> Prompts:
    """Return the prompts of several draws, in their order."""
    return Prompts(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.answers for part in parts]),
        np.concatenate([part.stratum for part in parts]),
        np.concatenate([part.keys for part in parts]),
    )


@dataclass(frozen=True)
class Phase:
    """Of a warm start: supervised steps, and the share of right demonstrations in each class."""

    steps: int
    right: tuple[float, ...]


def mixed(keys: Whole, salt: int) -> NDArray[np.uint64]:
    """Return 64 well mixed bits for each key: the same in every process, on every machine, for good.

    Two rounds of the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
    """
    bits = keys.astype(np.uint64) ^ np.uint64(salt)
    for _ in range(2):
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    return bits


def is_heldout(keys: Whole) -> Truth:
    """Say of each key whether it is held out: a quarter of them is."""
    return mixed(keys, _SPLIT_SALT) >> np.uint64(62) == 0


def settle(responses: Whole) -> tuple[Whole, Truth]:
    """Replace all that follows the first `EOS` by `EOS`.

    Parameters
    ----------
    responses : int [..., L]

    Returns
    -------
    settled : int [..., L]
    ended : bool [...]
        Whether there is an `EOS`.
    """
    over = np.logical_or.accumulate(responses == EOS, axis=-1)
    return np.where(over, EOS, responses), over[..., -1]


def equal(answers: Whole, settled: Whole) -> Truth:
    """Compare settled responses [N, G, L] with the one right answer [N, M] to each prompt."""
    length = min(answers.shape[1], settled.shape[2])
    # Where L > M, only EOS can follow the EOS that ends every answer; where L < M, the caller asks for an end.
    return (settled[:, :, :length] == answers[:, None, :length]).all(axis=2)


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A family of prompts that a program can grade.

    Attributes
    ----------
    name, description : str
    classes : tuple of str
        Strata of difficulty.
    shares : tuple of float
        Of the classes among prompts; they sum to 1.
    prompt_length, answer_length : int
        Tokens of every prompt, and of the longest response, its end included.
    ceiling : float or None
        Expected pass rate on held-out prompts that no policy can exceed, where it is known by construction.
    note : str
        What the ceiling rests on, and what so small a model is not expected to learn.
    phases : tuple of Phase
        Of the warm start.
    answer_mark : int or None
        Token after which a thinking response gives its answer; None where responses do not think.
    answer_tokens : int
        Tokens that an answer needs after its mark, the end included; 0 where there is no mark.
    """

    name: str
    description: str
    classes: tuple[str, ...]
    shares: tuple[float, ...]
    prompt_length: int
    answer_length: int
    ceiling: float | None
    note: str
    phases: tuple[Phase, ...]
    answer_mark: int | None = None
    answer_tokens: int = 0

    def draw(
        self, split: str, counts: Sequence[int], rng: np.random.Generator, distinct: bool = False
    ) -> Prompts:
        """Draw prompts of a split.

        Parameters
        ----------
        split : str
            ``train`` or ``heldout``.
        counts : sequence of int
            Prompts of each class; the result keeps the order of the classes.
        rng : Generator
        distinct : bool
            No key twice; all prompts of a class that has fewer than asked for.
        """
        check_choice("split", split, SPLITS)
        if len(counts) != len(self.classes) or min(counts) < 0:
            raise InputError(
                f"counts do not fit the classes of {self.name}",
                found=", ".join(str(count) for count in counts),
                expected=f"a whole number for each of {', '.join(self.classes)}",
            )
        heldout = split == "heldout"
        return join(
            [self._draw_class(stratum, heldout, count, rng, distinct) for stratum, count in enumerate(counts)]
        )

    @abstractmethod
    def _draw_class(
        self, stratum: int, heldout: bool, count: int, rng: np.random.Generator, distinct: bool
    ) -> Prompts:
        """Draw prompts of one class."""

    def verify(self, prompts: Prompts, responses: Whole) -> Truth:
        """Grade responses: the truth.

        A response counts up to and including its first `EOS`; one without is wrong.

        Parameters
        ----------
        prompts : Prompts
        responses : int [N, G, L]

        Returns
        -------
        bool [N, G]
        """
        settled, ended = settle(responses)
        return ended & equal(prompts.answers, settled)

    def prefix_right(self, prompts: Prompts, responses: Whole) -> Truth:
        """Say whether the first token of the answer is that of a right one: the rule of a lenient verifier.

        Parameters
        ----------
        prompts : Prompts
        responses : int [N, G, L]

        Returns
        -------
        bool [N, G]
        """
        return responses[:, :, 0] == prompts.answers[:, :1]

    def demonstrate(self, prompts: Prompts, right: Truth, rng: np.random.Generator) -> Whole:
        """Write the responses that a warm start imitates.

        Parameters
        ----------
        prompts : Prompts
        right : bool [N]
            Whether the demonstration is right, or a typical mistake.
        rng : Generator

        Returns
        -------
        int [N, answer_length]
        """
        shown = self._solve(prompts, rng)
        wanted = np.flatnonzero(~right)
        # What was meant as a mistake can be right by chance: those are made again.
        while wanted.size:
            shown[wanted] = self._err(prompts[wanted], rng)
            wanted = wanted[self.verify(prompts[wanted], shown[wanted, None])[:, 0]]
        return shown

    def _solve(self, prompts: Prompts, rng: np.random.Generator) -> Whole:
        """Write right responses [N, answer_length]."""
        return prompts.answers.copy()

    @abstractmethod
    def _err(self, prompts: Prompts, rng: np.random.Generator) -> Whole:
        """Write responses [N, answer_length] with a typical mistake, each wrong with positive probability."""


def counts(task: Task, total: int) -> list[int]:
    """Share `total` prompts among the classes of a task, by the method of largest remainders."""
    exact = total * np.array(task.shares)
    # Rounded first: 0.6 * 5 may fall short of 3 by the last bit.
    shared = np.floor(np.round(exact, 9)).astype(int)
    largest = np.argsort(shared - exact, kind="stable")
    shared[largest[: total - shared.sum()]] += 1
    return shared.tolist()


def change_digit(texts: Whole, lengths: Whole, rng: np.random.Generator) -> Whole:
    """Replace one digit among the first `lengths` [N] of each text [N, L] by another digit."""
    changed = texts.copy()
    rows, where = np.arange(len(texts)), rng.integers(0, lengths)
    changed[rows, where] = (texts[rows, where] + rng.integers(1, 10, size=len(texts))) % 10
    return changed
