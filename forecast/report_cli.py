"""The command that writes the page for the budget meeting."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from forecast.cli_options import HazardChoice, VerifierChoice, budget_options, check_new, twice
from forecast.errors import InputError


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "-o",
    "--output",
    "page",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="HTML page to write; numbers and figures go into FILE-data beside it.",
)
@click.option(
    "--pdf", type=click.Path(path_type=Path), metavar="FILE", help="Print it also as PDF (needs Chromium)."
)
@click.option("--overwrite", is_flag=True, help="Replace what an earlier report wrote.")
@budget_options
@click.option(
    "--hazard",
    type=HazardChoice(),
    help="Transitions expected per decade of compute. [default: rise=.05,collapse=.05]",
)
@click.option(
    "--verifier",
    type=VerifierChoice(),
    help="Measured error rates of the verifier, with the counts they come from: true pass rates are then shown too.",
)
@click.option(
    "--level",
    default="run",
    show_default=True,
    help="Of figure and forecast table: run, recipe (its mean curve) or new_run (one more seed).",
)
@click.option(
    "--quantity",
    default="evaluation",
    show_default=True,
    help="Of figure and forecast table: evaluation (what one would show) or curve (true pass rate).",
)
@click.option(
    "--stress",
    type=click.Path(path_type=Path),
    metavar="DIR2",
    help="Show the stress test that rlforecast stress wrote into DIR2.",
)
@click.option("--title", default="Forecast of RL training runs", show_default=True, help="Heading.")
@click.option("--quick", is_flag=True, help="Leave out transitions (some seconds per run) and the backtest.")
@click.option("--force", is_flag=True, help="Write it although diagnostics failed; the page then says so.")
def report(
    directory: Path,
    page: Path,
    pdf: Path | None,
    overwrite: bool,
    at: list[float] | None,
    spend: list[float] | None,
    money: list[float] | None,
    target: float | None,
    price: Any,
    worth: float | None,
    domain: dict[str, str] | None,
    hazard: Any,
    verifier: Any,
    level: str,
    quantity: str,
    stress: Path | None,
    title: str,
    quick: bool,
    force: bool,
) -> None:
    """Write one self-contained HTML page for the budget meeting, and the numbers beside it.

    What the money buys and with which probability, ceilings against speed, what could go wrong (transitions, flags,
    reward against proxy, what lies outside the map), how the last forecast did, and an appendix with axes, receipts,
    diagnostics and the command that makes it again. A budget is given as for rlforecast budget; left out, it is twice
    the largest fitted compute.

    Exit codes: 0 done; 1 the fit's diagnostics failed (see --force); 2 bad input.

    \b
    rlforecast report fit --spend 8000,32000 --target .65 --price 2.5 -o report.html --pdf report.pdf
    rlforecast report fit --quick -o report.html
    """
    from forecast.files import check_directory
    from forecast.fits import load
    from forecast.outlook.hazard import Hazard
    from forecast.report.briefing import brief
    from forecast.report.briefing_figures import briefing_figures
    from forecast.report.data_files import OWNED, data_folder, write_data
    from forecast.report.figures import fan_chart, panels_shown
    from forecast.report.page import write_page
    from forecast.report.pdf import find_browser, print_pdf
    from forecast.report.stress import read_stress
    from forecast.terminal import messages, progress_reporter

    check_new(page, overwrite, "-o")
    folder = data_folder(page)
    check_directory(folder, overwrite=overwrite, owned=OWNED)
    if pdf is not None:
        check_new(pdf, overwrite, "--pdf")
        if pdf.resolve() == page.resolve() or folder.resolve() in pdf.resolve().parents:
            raise InputError("--pdf would replace another output", found=pdf, fix="choose another --pdf")
        find_browser()
    say = messages()
    result = load(directory)
    # What would fail at the end fails now, before what takes long.
    result.predict([twice(result)], level=level, quantity=quantity, force=force)
    if stress is not None:
        read_stress(stress, result)
    if at is None and spend is None and money is None:
        at = [twice(result)]
    with progress_reporter(say) as progress:
        briefing = brief(
            result,
            at,
            spend=spend,
            money=money,
            target=target,
            price=price,
            worth=worth,
            domain=domain,
            hazard=hazard,
            verifier=verifier,
            quick=quick,
            force=force,
            report=progress,
        )
    to = briefing.decision.furthest()
    names, left_out = panels_shown(result, briefing.decision, level)
    caption = "Evaluations, forecast and ceiling, one panel per run; shaded: the fitted range."
    if left_out:
        caption += f" {left_out} more are not drawn."
    chart = fan_chart(
        result,
        to=to[-1],
        names=names,
        level=level,
        quantity=quantity,
        target=target,
        price=briefing.price,
        hazard=None if quick else Hazard.given(hazard),
        force=force,
    )
    command = "rlforecast " + shlex.join(sys.argv[1:])
    write_page(
        page,
        result,
        at=to,
        title=title,
        figures=[(caption, chart)],
        level=level,
        quantity=quantity,
        stress=stress,
        briefing=briefing,
        command=command,
        force=force,
    )
    tables = {
        "forecast": result.predict(to, level=level, quantity=quantity, force=force),
        "parameters": result.parameters(level=level, force=force),
    }
    beside = briefing_figures(result, briefing, force=force)
    figures = {"forecast": chart} | {name: figure for name, (_, figure) in beside.items()}
    write_data(folder, result, briefing, tables, figures, command=command, overwrite=overwrite)
    say.print(f"wrote {page}: open it in a browser; numbers and figures are in {folder}", markup=False)
    if pdf is not None:
        print_pdf(page, pdf)
        say.print(f"wrote {pdf}", markup=False)
