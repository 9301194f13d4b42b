"""What a unit of compute costs, which may depend on the model that is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from forecast.errors import InputError

_FORM = "2.5, or MODEL=PRICE,... such as qwen-7b=9,qwen-1b=2.5"


@dataclass(frozen=True)
class Prices:
    """Money per unit of compute.

    Attributes
    ----------
    default : float or None
        For every model that is not named.
    by_model : mapping of str to float
    """

    default: float | None = None
    by_model: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = [*self.by_model.values()] + ([] if self.default is None else [self.default])
        for price in given:
            if not (np.isfinite(price) and price > 0):
                raise InputError("a price must be positive", found=price, expected=_FORM)

    @classmethod
    def parse(cls, text: str) -> Prices:
        """Read one price for all, or ``MODEL=PRICE,...``.

        Raises
        ------
        InputError
            If it is neither.
        """
        default: float | None = None
        by_model: dict[str, float] = {}
        for part in text.split(","):
            model, equals, number = (piece.strip() for piece in part.rpartition("="))
            try:
                price = float(number)
            except ValueError as error:
                raise InputError("price is no number", found=repr(part), expected=_FORM) from error
            if model in by_model or (not equals and default is not None) or (equals and not model):
                raise InputError("prices not understood", found=repr(text), expected=_FORM)
            if equals:
                by_model[model] = price
            else:
                default = price
        return cls(default, by_model)

    @property
    def known(self) -> bool:
        """Whether any price is given."""
        return self.default is not None or bool(self.by_model)

    def of(self, model: str) -> float:
        """Price for a model.

        Raises
        ------
        InputError
            If prices are given and none is for this model.
        """
        price = self.by_model.get(model, self.default)
        if price is None:
            if self.known:
                raise InputError(
                    f"no price for model {model!r}" if model else "no price for runs that declare no model",
                    expected=_FORM,
                    fix="name it, or give one price for the rest",
                )
            return float("nan")
        return price
