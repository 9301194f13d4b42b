"""How often transitions are expected before any is seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from forecast.errors import InputError

_FORM = "rise=.05,collapse=.05, or one number for both"


@dataclass(frozen=True)
class Hazard:
    """Expected second moves per decade of compute; the first one that happens is the one a curve has.

    Attributes
    ----------
    rise, collapse : float
        Per decade (factor of ten) of compute, at least 0. Data cannot tell them before a move begins: they are
        what the user knows of runs like these.
    """

    rise: float = 0.05
    collapse: float = 0.05

    def __post_init__(self) -> None:
        for kind, rate in asdict(self).items():
            if not (np.isfinite(rate) and 0 <= rate <= 10):
                raise InputError(
                    f"hazard of a {kind} must be a number of moves per decade of compute",
                    found=rate,
                    expected="0 to 10, usually .02 to .3",
                )

    @classmethod
    def parse(cls, text: str) -> Hazard:
        """Read ``rise=.05,collapse=.05`` (what is left out keeps its default) or one number for both.

        Raises
        ------
        InputError
            If it is neither.
        """
        given: dict[str, float] = {}
        for part in text.split(","):
            kind, equals, number = (piece.strip() for piece in part.rpartition("="))
            try:
                rate = float(number)
            except ValueError as error:
                raise InputError("hazard is no number", found=repr(part), expected=_FORM) from error
            kinds = [kind] if equals else ["rise", "collapse"]
            if kinds[0] not in ("rise", "collapse") or given.keys() & set(kinds):
                raise InputError("hazard not understood", found=repr(text), expected=_FORM)
            given |= dict.fromkeys(kinds, rate)
        return cls(**given)

    @classmethod
    def given(cls, hazard: Hazard | None) -> Hazard:
        """Return what a caller gave, or the default.

        Raises
        ------
        InputError
            If it is something else, such as a number.
        """
        if hazard is not None and not isinstance(hazard, cls):
            raise InputError(
                "hazard must be a forecast.Hazard", found=repr(hazard), fix="write Hazard(rise=.05)"
            )
        return hazard or cls()

    def __str__(self) -> str:
        return f"rise={self.rise:g},collapse={self.collapse:g}"

    @property
    def total(self) -> float:
        """Moves of any kind per decade."""
        return self.rise + self.collapse

    def within(self, decades: float) -> dict[str, float]:
        """Probability that the first move falls within so many decades and is of each kind."""
        if self.total == 0:
            return {"rise": 0.0, "collapse": 0.0}
        any_kind = -np.expm1(-self.total * max(decades, 0.0))
        return {kind: float(any_kind * rate / self.total) for kind, rate in asdict(self).items()}
