"""How a study ends early."""

from __future__ import annotations

from forecast.errors import ForecastError, printable


class TaskFailed(ForecastError):
    """A task raised, or its worker died; what had finished is kept."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(printable(text).split()))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a study; its message (tasks done, how to go on) has been printed."""
