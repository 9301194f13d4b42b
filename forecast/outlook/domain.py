"""A fit is a local map: what a plan changes lies outside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from forecast.errors import InputError
from forecast.outlook.predict import FAR
from forecast.runs.table import SEVERAL

if TYPE_CHECKING:
    from forecast.fits import Fit

USUAL = ("model", "context_length", "verifier", "epochs", "prompts_per_batch", "rollouts_per_prompt")
"""What has moved ceilings when it changed, so that silence about it is worth a line."""

FIX = "such as --domain context_length=32768,epochs=4"


def parse_domain(text: str) -> dict[str, str]:
    """Read ``KEY=VALUE,...``.

    Raises
    ------
    InputError
        If it is something else.
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value) or key in given:
            raise InputError(
                "domain not understood",
                found=repr(part),
                expected="KEY=VALUE, several separated by commas",
                fix=FIX,
            )
        given[key] = value
    return given


def outside_map(
    fit: Fit, planned: Mapping[str, str] | None = None, furthest: float | None = None
) -> list[str]:
    """Say what separates a plan from the runs that were fitted.

    Parameters
    ----------
    fit : Fit
    planned : mapping of str to str, optional
        What will hold when the money is spent; what is left out is taken to stay as it was.
    furthest : float, optional
        Largest compute that a forecast is asked for, in the fit's unit.

    Returns
    -------
    list of str
        One sentence per change, then one per usual thing that nobody declared.
    """
    declared = dict(fit.runs.domain)
    table = fit.fitted.table
    models = sorted(set(table["model"].dropna()))
    if models:
        declared.setdefault("model", SEVERAL.join(models))
    planned = dict(planned or {})
    said = []
    for key, value in planned.items():
        seen = declared[key].split(SEVERAL) if key in declared else []
        if not seen:
            said.append(f"{_words(key)} is planned as {value}; the fitted runs do not declare theirs")
        elif not any(_same(value, one) for one in seen):
            said.append(
                f"{_words(key)} changes from {' or '.join(seen)} to {value}: no run here has seen that"
            )
        elif len(seen) > 1:
            said.append(
                f"{_words(key)} is {value} in only some of the fitted runs (the rest: {_rest(seen, value)})"
            )
    upto = float(fit.observations.fitted_upto.max())
    if furthest is not None and furthest > FAR * upto:
        said.append(
            f"compute goes to {furthest / upto:.3g} times what was fitted: nothing here was tested beyond {FAR}"
        )
    silent = [_words(key) for key in USUAL if key not in declared and key not in planned]
    if silent:
        said.append(f"not declared, so not checked: {', '.join(silent)}")
    return said


def _rest(seen: list[str], value: str) -> str:
    return ", ".join(one for one in seen if not _same(one, value))


def _words(key: str) -> str:
    return key.replace("_", " ")


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower()
