"""Figures as SVG text: outlines in place of fonts, no comments, the same bytes every time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure


def svg_markup(figure: Figure, salt: str) -> Markup:
    """Return a figure as an ``<svg>`` element.

    Parameters
    ----------
    figure : Figure
    salt : str
        Must differ between figures of one page, whose element ids would clash otherwise.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}), boxes_for_missing_letters():
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = buffer.getvalue()
    # matplotlib repeats every text in a comment, and run names come from logs.
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return Markup(text)


@contextmanager
def boxes_for_missing_letters() -> Iterator[None]:
    """Draw letters that the font lacks as boxes without a warning: tables beside the figure have the name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield
