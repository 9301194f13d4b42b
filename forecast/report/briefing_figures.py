"""The figures of a briefing, by name: the page shows them, and they lie beside it for slides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from forecast.report.briefing import Briefing
from forecast.report.gap_figure import gap_figure
from forecast.report.speed_figure import speed_figure

if TYPE_CHECKING:
    from forecast.fits import Fit


def briefing_figures(
    fit: Fit, briefing: Briefing | None, *, force: bool = False
) -> dict[str, tuple[str, Figure]]:
    """Draw ceilings against midpoints (where there is more than one curve) and gaps (where a proxy was logged).

    Returns
    -------
    dict
        ``ceilings`` and ``reward_gap``, as far as there is something to draw -> caption and figure.
    """
    drawn: dict[str, tuple[str, Figure]] = {}
    if briefing is None:
        return drawn
    if not briefing.pairs.empty:
        level = "recipe" if "recipe_gain" in fit.draws else "run"
        drawn["ceilings"] = (
            "Ceiling against midpoint, with 90 % intervals: higher ends higher, further left is faster.",
            speed_figure(fit, fit.parameters(level=level, force=force)),
        )
    if briefing.gaps:
        drawn["reward_gap"] = (
            "Proxy that training optimises and the value it stands for; shaded: value plus their gap, 90 % interval.",
            gap_figure(fit, briefing.gaps),
        )
    return drawn
