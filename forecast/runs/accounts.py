"""Rows on their way from logs to the run table, with every loss entered in a receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from forecast.runs.receipt import Receipt

LOG = "__log__"
"""Column that says which receipt a row belongs to."""

SOURCE = "__source__"
"""Column that names the source of a row."""


class Accounts:
    """The receipts of one reading; rows leave a table only through `drop`."""

    def __init__(self, receipts: Iterable[Receipt]) -> None:
        """Go on from the readers' receipts; runs are entered anew as they are told apart."""
        self.receipts = [replace(r, dropped=dict(r.dropped), runs=[], notes=list(r.notes)) for r in receipts]

    def drop(self, frame: pd.DataFrame, mask: np.ndarray, reason: str) -> pd.DataFrame:
        """Return `frame` without the rows in `mask`, which are entered under `reason`."""
        if not mask.any():
            return frame
        for log, count in frame.loc[mask, LOG].value_counts().items():
            self.receipts[int(str(log))].drop(reason, int(count))
        return frame[~mask].reset_index(drop=True)

    def dropped(self) -> Counter[str]:
        """Return reason -> rows over all receipts."""
        total: Counter[str] = Counter()
        for receipt in self.receipts:
            total.update(receipt.dropped)
        return total

    def note(self, frame: pd.DataFrame, sentence: str) -> None:
        """Enter a sentence, once, in the receipt of the first log that `frame` draws on."""
        if sentence and not any(sentence in receipt.notes for receipt in self.receipts):
            self.receipts[int(frame[LOG].iloc[0])].note(sentence)
