"""What is measured of a run and what becomes of it: sizes, spacing, glitches, gaps and restarts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from simulators.ranges import Range, check_choice, check_number, check_range

_MOST_TRIALS = 10**12


@dataclass(frozen=True)
class Evaluations:
    """How each run is evaluated and logged.

    Attributes
    ----------
    points : int
        Evaluations per run, before `start` and `missing` take some away.
    horizon : float
        Compute of the last evaluation, GPU-hours.
    start : float
        Evaluations below this compute (GPU-hours) are not logged; 0 keeps all.
    spacing : {"even", "log"}
        Evenly spaced from ``horizon / points``, or log-spaced from ``max(start, horizon / 100)``.
    prompts, samples_per_prompt : int
        Size of one evaluation.
    floors : bool
        Whether the step-0 evaluation was measured.
    glitches : float
        Probability that an evaluation is off by `glitch_size` (a broken verifier, a truncated answer).
    glitch_size : tuple of float
        Range (uniform) of what a glitch adds, pass rate; values stay within 0-1.
    missing : float
        Probability that an evaluation is not logged; the last one always is.
    restarts : float
        Mean number of crashes per run (Poisson), each after a random evaluation. The run goes back to its
        last checkpoint and repeats what came after it; the run table holds the repeats.
    checkpoint : int
        Evaluations between checkpoints.
    """

    points: int = 75
    horizon: float = 16_000.0
    start: float = 1_500.0
    spacing: str = "even"
    prompts: int = 1_000
    samples_per_prompt: int = 16
    floors: bool = True
    glitches: float = 0.0
    glitch_size: Range = (-0.3, -0.05)
    missing: float = 0.0
    restarts: float = 0.0
    checkpoint: int = 5

    def __post_init__(self) -> None:
        if not (np.isfinite(self.horizon) and self.horizon > 0):
            raise InputError("horizon must be above 0", found=f"{self.horizon:g}", expected="GPU-hours")
        if not 0 <= self.start <= self.horizon:
            raise InputError(
                "logging must start within the run", found=self.start, expected=f"0 to {self.horizon:g}"
            )
        check_choice("spacing of evaluations", self.spacing, ("even", "log"))
        for what in ("points", "prompts", "samples_per_prompt", "checkpoint"):
            check_number(what, getattr(self, what), 1)
        if self.trials > _MOST_TRIALS:
            raise InputError(
                "prompts x samples_per_prompt is no evaluation",
                found=self.trials,
                expected=f"at most {_MOST_TRIALS:,}",
            )
        if self.spacing == "log" and self.points > 1 and self.start == self.horizon:
            raise InputError(
                "evaluations spaced by log need room", found=f"start = horizon = {self.horizon:g}"
            )
        for what in ("glitches", "missing"):
            check_number(f"probability of {what}", getattr(self, what), 0.0, 1.0)
        check_range("glitch_size", self.glitch_size, -1.0, 1.0)
        check_number("restarts", self.restarts, 0.0, 1_000.0, unit=" per run")

    @property
    def trials(self) -> int:
        """Bernoulli trials behind one evaluation."""
        return self.prompts * self.samples_per_prompt

    def compute(self) -> NDArray[np.float64]:
        """Compute of each evaluation, logged or not, GPU-hours."""
        if self.spacing == "even":
            return self.horizon * np.arange(1, self.points + 1) / self.points
        first = max(self.start, self.horizon / 100)
        # geomspace may round its ends outward, and an evaluation at exactly `start` must be kept.
        return np.clip(np.geomspace(first, self.horizon, self.points), first, self.horizon)

    def steps(self) -> NDArray[np.int_]:
        """Training step of each evaluation: proportional to compute, as far as whole numbers can be."""
        number = np.arange(1, self.points + 1)
        if self.spacing == "even" or self.points == 1:
            return number
        compute = self.compute()
        return np.round(2 * compute / np.diff(compute, prepend=0.0).min()).astype(int)

    def draw_glitches(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """What is added to each evaluation of a run: pass rate, 0 where nothing went wrong."""
        hit = rng.random(self.points) < self.glitches
        return np.where(hit, rng.uniform(*self.glitch_size, self.points), 0.0)

    def draw_gaps(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which evaluations of a run are missing."""
        gone = rng.random(self.points) < self.missing
        gone[-1] = False
        return gone

    def draw_repeats(self, rng: np.random.Generator) -> list[tuple[int, int]]:
        """Evaluations that each crash of a run makes again, in the order of the crashes.

        Returns
        -------
        list of tuple of int
            First evaluation repeated, counted from 0, and the one after the last.
        """
        crashes = int(rng.poisson(self.restarts)) if self.points > 1 else 0
        # A crash after an evaluation leaves no checkpoint of it, so at least this one is repeated.
        ends = np.sort(rng.integers(1, self.points, crashes))
        return [(int((end - 1) // self.checkpoint * self.checkpoint), int(end)) for end in ends]
