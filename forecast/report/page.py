"""One self-contained HTML page: the forecast, what it rests on, and what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from forecast.files import replacing
from forecast.report import content
from forecast.report.briefing import Briefing
from forecast.report.briefing_figures import briefing_figures
from forecast.report.decision_content import briefing_content, sensitivity
from forecast.report.figures import fan_chart
from forecast.report.stress import read_stress
from forecast.report.svg import svg_markup

if TYPE_CHECKING:
    from forecast.fits import Fit


def write_page(
    path: str | Path,
    fit: Fit,
    *,
    at: Sequence[float],
    title: str = "Forecast of RL training runs",
    figures: Sequence[tuple[str, Figure]] | None = None,
    level: str = "run",
    quantity: str = "evaluation",
    extra: Sequence[tuple[str, Sequence[str]]] = (),
    command: str | None = None,
    stress: str | Path | None = None,
    briefing: Briefing | None = None,
    force: bool = False,
) -> None:
    """Write the page; it loads nothing from elsewhere.

    Parameters
    ----------
    path : path
    fit : Fit
    at : sequence of float
        Compute to forecast at, in the fit's unit.
    title : str
    figures : sequence of (caption, Figure), optional
        Default: one fan chart to the largest of `at`.
    level : {"run", "recipe", "new_run"}
    quantity : {"evaluation", "curve"}
        What tables and figure forecast.
    extra : sequence of (heading, paragraphs)
        Sections to put after the ceilings.
    command : str, optional
        How to make this page again; default the commands for the fit and the forecast.
    stress : path, optional
        Folder that ``rlforecast stress`` wrote for this fit, to be shown after the ceilings.
    briefing : Briefing, optional
        Decisions, comparisons and risks, see `forecast.report.briefing.brief`; left out, the page is a forecast only.
    force : bool
        Write the page although diagnostics failed; it then says so at the top, in the figure and in each row.

    Raises
    ------
    InputError
        If an argument is wrong, `path` cannot be written, or `stress` is no stress test of this fit.
    Withheld
        If diagnostics failed and `force` is false.
    """
    stressed = None if stress is None else read_stress(stress, fit)
    forecast = fit.predict(at, level=level, quantity=quantity, force=force)
    parameters = fit.parameters(level=level, force=force)
    if figures is None:
        chart = fan_chart(fit, to=max(at), level=level, quantity=quantity, force=force)
        figures = [("Evaluations, forecast and ceiling, one panel per run.", chart)]
    beside = {
        name: (caption, svg_markup(figure, name))
        for name, (caption, figure) in briefing_figures(fit, briefing, force=force).items()
    }
    receipts, more_receipts = content.sources(fit)
    environment = Environment(
        loader=PackageLoader("forecast.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.jinja").render(
        title=title,
        passed=fit.passed,
        words=content.summary(fit, forecast),
        figures=[(caption, svg_markup(figure, f"figure {i}")) for i, (caption, figure) in enumerate(figures)],
        facts=content.fitted_facts(fit),
        forecast=content.forecast_rows(fit, forecast),
        notes=content.forecast_notes(fit, forecast),
        ceilings=content.ceiling_rows(fit, parameters),
        extra=extra,
        stressed=stressed,
        exclusions=content.exclusions(fit),
        diagnostics=content.diagnostics(fit),
        priors=content.priors(fit),
        sensitivity=sensitivity(fit, parameters),
        refused=dict(fit.refused),
        refused_short=content.refused_short(fit),
        forced=fit.settings.forced,
        receipts=receipts,
        more_receipts=more_receipts,
        provenance=content.provenance(fit),
        command=command if command is not None else content.reproduce(fit, at, level, quantity),
        **briefing_content(briefing, fit),
        beside=beside,
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
