"""Would the first 8,000 GPU-hours of published runs have told what came after?

``rlforecast demo``: fit the early part of the long runs of Khatri et al. 2025 (arXiv 2510.13786), forecast
the rest, score the forecast on it, and write a figure, a page, a table and the fit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.console import Console

from forecast.files import check_directory, replacing_directory
from forecast.fits import Fit, fit
from forecast.report.figures import fan_chart
from forecast.report.page import write_page
from forecast.runs.receipt import Receipt
from forecast.runs.table import ComputeAxis, Metric, Runs

if TYPE_CHECKING:
    from forecast.inference.sampling import Report

DATA = Path(__file__).parent / "data" / "scalerl_long_runs.csv"
SOURCE = "Khatri et al. 2025, arXiv 2510.13786, read off the figures"
UPTO = 8_000.0
AT = (12_000.0, 16_000.0)
SAME_RUN = {"ScaleRL-16gen": "ScaleRL", "ScaleRL-math": "ScaleRL"}
"""Series that redraw another series: fitted as three runs they would count one run's luck three times."""
SAME_EVALUATION = 100.0
"""GPU-hours within which two points of a redrawn run are one evaluation; evaluations are 257 apart."""
OWNED = ("report.html", "forecast.png", "forecast.svg", "forecast.csv", "demo.json", "fit")
"""What the demo writes into its folder."""


@dataclass(frozen=True)
class Score:
    """How the forecast did on evaluations that were not fitted.

    Attributes
    ----------
    evaluations, runs : int
        Evaluations scored, and the runs they belong to.
    inside_50, inside_90 : int
        Evaluations inside their 50 % and 90 % equal-tailed intervals.
    width_90 : float
        Mean width of the 90 % intervals, in pass rate.
    rmse, rmse_apart, rmse_least_squares : float
        Root mean squared error of the mean forecast, of the one in which recipes teach each other nothing
        (None where that fit did not converge), and of the incumbent, in pass rate.
    runs_closer : int
        Runs in which the mean forecast has the smaller root mean squared error.
    furthest : float
        Largest compute scored, in multiples of the run's last fitted compute.
    """

    evaluations: int
    runs: int
    inside_50: int
    inside_90: int
    width_90: float
    rmse: float
    rmse_apart: float | None
    rmse_least_squares: float
    runs_closer: int
    furthest: float

    def sentences(self) -> list[str]:
        """Say the score and how far it can be trusted."""
        n = self.evaluations
        apart = "not known (it did not converge)" if self.rmse_apart is None else f"{self.rmse_apart:.4f}"
        return [
            f"{self.inside_90} of {n} later evaluations ({100 * self.inside_90 / n:.0f} %) lie inside their "
            f"90 % interval and {self.inside_50} ({100 * self.inside_50 / n:.0f} %) inside their 50 % "
            f"interval, up to {self.furthest:.1f} times the fitted compute. The 90 % intervals are "
            f"{self.width_90:.3f} wide on average.",
            f"Root mean squared error in pass rate: {self.rmse:.4f} for the mean forecast, "
            f"{apart} with recipes fitted apart, {self.rmse_least_squares:.4f} for least squares. The mean "
            f"forecast is closer than least squares in {self.runs_closer} of {self.runs} runs.",
            f"Errors within a run move together, so this is evidence from {self.runs} runs, not from {n} "
            "independent evaluations. The priors were chosen with these published runs in view: this "
            "illustrates the method, it does not validate it.",
        ]


def merge_redrawn(table: pd.DataFrame) -> pd.DataFrame:
    """Columns run, gpu_hours, pass_rate, with the series that redraw one run merged and repeats averaged."""
    table = table.assign(run=table["series"].replace(SAME_RUN)).sort_values(["run", "gpu_hours"])
    apart = table.groupby("run")["gpu_hours"].diff() > SAME_EVALUATION
    redrawn = table["run"].isin(list(SAME_RUN.values()))
    evaluation = (apart | ~redrawn).cumsum().rename("evaluation")
    merged = table.groupby(["run", evaluation], as_index=False)[["gpu_hours", "pass_rate"]].mean()
    return merged[["run", "gpu_hours", "pass_rate"]]


def load_runs() -> Runs:
    """Return the bundled runs, each its own recipe; see studies/data/README.md."""
    table = pd.read_csv(DATA)
    merged = merge_redrawn(table)
    receipt = Receipt(DATA.name, "csv", rows_read=len(table), runs=list(dict.fromkeys(merged["run"])))
    receipt.drop("the same evaluation read off another figure (averaged)", len(table) - len(merged))
    receipt.note(f"{', '.join(SAME_RUN)} and ScaleRL are one run drawn in several figures: merged")
    return Runs(
        table=merged.rename(columns={"gpu_hours": "compute", "pass_rate": "value"}),
        metric=Metric("pass_rate", prompts=1000, samples_per_prompt=16),
        compute=ComputeAxis("gpu_hours", SOURCE),
        receipts=(receipt,),
    )


def forecast_later(fitted: Fit) -> pd.DataFrame:
    """Forecast every evaluation beyond the fitted range, beside what was ``measured``."""
    later = fitted.runs.overall().query("compute > @UPTO")
    parts = []
    for name, group in later.groupby("run"):
        part = fitted.predict(list(group["compute"]), names=[str(name)], quantity="evaluation")
        parts.append(part.assign(measured=group["value"].to_numpy()))
    table = pd.concat(parts, ignore_index=True)
    table["inside_90"] = table["measured"].between(table["q05"], table["q95"])
    return table


def score(table: pd.DataFrame) -> Score:
    """Score a table of `forecast_later`."""
    errors = pd.DataFrame(
        {
            "name": table["name"],
            "ours": (table["mean"] - table["measured"]) ** 2,
            "apart": (table["independent"] - table["measured"]) ** 2,
            "theirs": (table["least_squares"] - table["measured"]) ** 2,
        }
    )
    by_run = errors.groupby("name").mean()
    return Score(
        evaluations=len(table),
        runs=len(by_run),
        inside_50=int(table["measured"].between(table["q25"], table["q75"]).sum()),
        inside_90=int(table["inside_90"].sum()),
        width_90=float((table["q95"] - table["q05"]).mean()),
        rmse=float(np.sqrt(errors["ours"].mean())),
        rmse_apart=None if errors["apart"].isna().any() else float(np.sqrt(errors["apart"].mean())),
        rmse_least_squares=float(np.sqrt(errors["theirs"].mean())),
        runs_closer=int((by_run["ours"] < by_run["theirs"]).sum()),
        furthest=float(table["times_fitted"].max()),
    )


def write_results(folder: Path, fitted: Fit) -> Score:
    """Write figure, page, table, fit and score into an existing folder."""
    table = forecast_later(fitted)
    result = score(table)
    figure = fan_chart(fitted, to=float(fitted.runs.table["compute"].max()))
    figure.savefig(folder / "forecast.png")
    figure.savefig(folder / "forecast.svg")
    table.to_csv(folder / "forecast.csv", index=False)
    fitted.save(folder / "fit")
    write_page(
        folder / "report.html",
        fitted,
        at=AT,
        title=f"What {UPTO:,.0f} GPU-hours told about the rest: ScaleRL runs",
        figures=[
            ("Evaluations, forecast and ceiling, one panel per run. Open points were not fitted.", figure)
        ],
        extra=[("How the forecast did", result.sentences())],
        command=f"rlforecast demo --seed {fitted.settings.seed}",
    )
    (folder / "demo.json").write_text(
        json.dumps({"source": SOURCE, "upto": UPTO} | asdict(result), indent=2) + "\n"
    )
    return result


def run_demo(
    directory: str | Path,
    *,
    overwrite: bool = False,
    seed: int = 0,
    console: Console,
    report: Report | None = None,
) -> list[Path]:
    """Fit, forecast, score and write everything into `directory`, all or nothing.

    Parameters
    ----------
    directory : path
    overwrite : bool
        Replace the folder of an earlier demo.
    seed : int
        Of the sampler.
    console : rich.console.Console
        Where the score and the files are printed.
    report : callable, optional
        Progress; see `forecast.fits.fit`.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced.
    Withheld
        If the sampler's diagnostics failed.
    """
    directory = Path(directory)
    check_directory(directory, overwrite=overwrite, owned=OWNED)
    fitted = fit(load_runs(), upto=UPTO, seed=seed, report=report)
    fitted.require_passed()
    with replacing_directory(directory, overwrite=overwrite, owned=OWNED) as folder:
        result = write_results(folder, fitted)
    console.print("\n".join(result.sentences()), markup=False)
    written = []
    for name, what in (
        ("report.html", "the page to read: open it in a browser"),
        ("forecast.png", "the figure (also as forecast.svg)"),
        ("forecast.csv", "each later evaluation, its forecast and whether it lies inside"),
        ("fit", f"the fit: rlforecast predict {directory / 'fit'} --at 20000"),
    ):
        console.print(f"  {directory / name}  {what}", markup=False)
        written.append(directory / name)
    return [*written, directory / "forecast.svg", directory / "demo.json"]
