"""The one family of exceptions that the package raises on purpose.

The command line prints ``str(error)`` as one line and leaves with ``error.exit_code``; everything else is a
bug and keeps its traceback.
"""


def printable(text: str) -> str:
    """Return `text` with surrogates spelled out: file names that are no UTF-8 hold them, and broken JSON texts."""
    return text.encode("utf-8", "backslashreplace").decode()


class ForecastError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 2


class InputError(ForecastError):
    """Input or usage that cannot be worked with.

    Parameters
    ----------
    what : str
        What is wrong, without a full stop.
    where : str, optional
        File, and row or column where known (``"log.jsonl, row 12, column acc"``).
    found, expected : str, optional
        What was there and what should have been.
    fix : str, optional
        What to do next, as an imperative sentence.
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = "",
        found: object = None,
        expected: object = None,
        fix: str = "",
    ) -> None:
        self.what, self.where, self.found, self.expected, self.fix = what, str(where), found, expected, fix
        parts = [f"{where}: {what}" if str(where) else what]
        if found is not None:
            parts.append(f"found {found}" if str(found) else "found nothing")
        if expected is not None:
            parts.append(f"expected {expected}")
        text = ", ".join(parts)
        if fix:
            text += f". {fix[0].upper()}{fix[1:]}"
        # A log may hold any character: one error stays one line.
        super().__init__(" ".join(printable(text).split()))


class Withheld(ForecastError):
    """The input was sound, but no forecast is given: the diagnostics failed or the data cannot carry one."""

    exit_code = 1
