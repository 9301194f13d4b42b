"""The receipt of reading: what happened to every row of a log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from forecast.errors import printable


@dataclass
class Receipt:
    """What became of the rows of one source.

    Attributes
    ----------
    source : str
        File or folder read.
    format : str
        Name of the reader (``"csv"``, ``"tensorboard"``, ...).
    rows_read : int
        Records found: table rows, JSON objects, console lines with metrics, scalar events.
    dropped : dict of str to int
        Reason -> number of rows that were left out for it.
    runs : list of str
        Runs found in this source.
    notes : list of str
        Sentences a person should read: restarts, overlaps and the rule that resolved them, duplicated
        evaluations, clock resets, guesses made.
    """

    source: str
    format: str
    rows_read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = printable(self.source)

    @property
    def rows_kept(self) -> int:
        """Rows read that were not dropped; no row is lost without a reason in `dropped`."""
        return self.rows_read - sum(self.dropped.values())

    def drop(self, reason: str, count: int = 1) -> None:
        """Account for `count` rows left out for `reason`; nothing is noted for a count of zero."""
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(count)

    def note(self, sentence: str) -> None:
        """Add a sentence, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with ``rows_kept`` written out."""
        return asdict(self) | {"rows_kept": self.rows_kept}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Receipt:
        """Rebuild from `to_dict`."""
        return cls(**{k: v for k, v in data.items() if k != "rows_kept"})
