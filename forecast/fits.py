"""A fit: what was fitted, the posterior, and how to keep it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from forecast.errors import InputError, Withheld
from forecast.files import replacing_directory
from forecast.inference.diagnostics import Check, all_passed, failures
from forecast.inference.observations import Observations, observe
from forecast.inference.priors import Priors, get_priors, pooled_parameters
from forecast.runs.table import Runs

if TYPE_CHECKING:
    import pandas as pd

    from forecast.inference.sampling import Report
    from forecast.inference.weighing import Weighed
    from forecast.outlook.hazard import Hazard

FORMAT = 1
"""Version of the saved files; every earlier one stays readable."""

ENGINES = ("auto", "hierarchical", "particle")
MOST_EVALUATIONS = 300
"""Of a single run that the particle engine takes unasked: its time grows with them, where the other's hardly does."""

FILES = ("fit.json", "runs.parquet", "posterior.nc")
_BASE = re.compile(r"(?<![\d.])\d+(?:\.\d+)?b(?![a-z])|llama|qwen|gemma|mistral|olmo|deepseek|phi-?\d")
_VERSIONS = ("rlforecast", "pymc", "nutpie", "arviz", "numpy", "pandas", "numba")


@dataclass(frozen=True)
class Settings:
    """What the user asked for.

    Attributes
    ----------
    start, upto : float or None
        Fitted range of compute.
    prior : str
        Name of a preset in `forecast.inference.priors`.
    pool : str
        As asked (``auto``, ``none``, ``all`` or names).
    floor : str or float
        ``measured``, ``latent`` or a stated value.
    seed : int
    forced : bool
        Runs that screening refused were fitted all the same.
    engine : str
        ``hierarchical`` or ``particle``: the one that was used.
    """

    start: float | None = None
    upto: float | None = None
    prior: str = "wide"
    pool: str = "auto"
    floor: str | float = "measured"
    seed: int = 0
    forced: bool = False
    engine: str = "hierarchical"


@dataclass(frozen=True)
class Fit:
    """Posterior over the curves of some runs.

    Attributes
    ----------
    runs : Runs
        Everything that was read, also what lies outside the fitted range.
    settings : Settings
    pooled : tuple of str
        Parameters that recipes taught each other.
    posterior : xarray.DataTree
        Groups ``posterior`` and ``sample_stats``, and ``independent/posterior`` (recipes not pooled) when
        `pooled` is not empty.
    checks, independent_checks : list of Check
        Sampler diagnostics of both.
    refused : mapping of str to str
        Run -> why no curve was fitted to it (with `Settings.forced`: why it should not have been).
    provenance : mapping
        Versions, time, hashes, sampler settings.
    """

    runs: Runs
    settings: Settings
    pooled: tuple[str, ...]
    posterior: xr.DataTree
    checks: list[Check]
    independent_checks: list[Check] = field(default_factory=list)
    refused: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "passed" if self.passed else "diagnostics FAILED"
        return (
            f"Fit({len(self.observations.runs)} runs in {len(self.observations.recipes)} recipes, "
            f"{len(self.observations.run)} evaluations, pooled: {', '.join(self.pooled) or 'nothing'}, {state}, "
            f"{len(self.refused)} refused)"
        )

    @cached_property
    def fitted(self) -> Runs:
        """Evaluations that the posterior is conditioned on."""
        return fitted_part(self.runs, self.settings, self.refused)

    @cached_property
    def observations(self) -> Observations:
        """The same as arrays."""
        return observe(self.fitted, self.settings.floor)

    @property
    def passed(self) -> bool:
        """Whether every sampler diagnostic was made and passed."""
        return all_passed(self.checks)

    @property
    def draws(self) -> xr.Dataset:
        """Posterior draws, dimensions chain, draw, run, recipe."""
        return self.posterior["posterior"].to_dataset()

    @property
    def independent_draws(self) -> xr.Dataset | None:
        """Draws of the fit in which recipes learn nothing from each other, if it is another fit and sound."""
        if not self.pooled or not all_passed(self.independent_checks):
            return None
        return self.posterior["independent/posterior"].to_dataset()

    @cached_property
    def weighed(self) -> dict[str, Weighed]:
        """Evidence for each curve family by run, which forecasts with transitions need; some seconds per run."""
        from forecast.outlook.evidence import weigh_fit

        return weigh_fit(self)

    def require_passed(self) -> None:
        """Refuse to speak from a posterior that the sampler did not explore.

        Raises
        ------
        Withheld
            If a diagnostic failed or was not made.
        """
        if not self.passed:
            raise Withheld(f"forecast withheld, the sampler's diagnostics failed: {failures(self.checks)}")

    def predict(
        self,
        at: Sequence[float],
        *,
        level: str = "run",
        quantity: str = "curve",
        names: Sequence[str] | None = None,
        transitions: str = "excluded",
        hazard: Hazard | None = None,
        force: bool = False,
    ) -> pd.DataFrame:
        """Forecast at some compute; see `forecast.outlook.predict.predict`."""
        from forecast.outlook.predict import predict

        return predict(
            self,
            at,
            level=level,
            quantity=quantity,
            names=names,
            transitions=transitions,
            hazard=hazard,
            force=force,
        )

    def parameters(self, *, level: str = "run", force: bool = False) -> pd.DataFrame:
        """Summarise floor, ceiling, exponent and midpoint; see `forecast.outlook.parameters.parameters`."""
        from forecast.outlook.parameters import parameters

        return parameters(self, level=level, force=force)

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write ``fit.json``, ``runs.parquet`` and ``posterior.nc`` into a folder, all or nothing.

        Raises
        ------
        InputError
            If the folder exists (and `overwrite` is false) or cannot be written.
        """
        with replacing_directory(directory, overwrite=overwrite, owned=FILES) as folder:
            self.runs.save(folder / "runs.parquet")
            self.posterior.to_netcdf(folder / "posterior.nc", engine="h5netcdf")
            summary = self._summary(folder)
            summary["sha256"] = _seal(summary)
            (folder / "fit.json").write_text(json.dumps(summary, indent=2) + "\n")

    def _summary(self, folder: Path) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "priors": get_priors(self.settings.prior).to_dict(),
            "pooled": list(self.pooled),
            "passed": self.passed,
            "checks": [check.to_dict() for check in self.checks],
            "independent_checks": [check.to_dict() for check in self.independent_checks],
            "refused": dict(self.refused),
            "provenance": dict(self.provenance),
            "receipts": [receipt.to_dict() for receipt in self.runs.receipts],
            "files": {name: _sha256(folder / name) for name in FILES[1:]},
        }


def fit(
    runs: Runs,
    *,
    start: float | None = None,
    upto: float | None = None,
    prior: str = "wide",
    pool: str = "auto",
    floor: str | float = "measured",
    engine: str = "auto",
    seed: int = 0,
    force: bool = False,
    report: Report | None = None,
) -> Fit:
    """Fit the sigmoid to every run, with what runs and recipes teach each other.

    Parameters
    ----------
    runs : Runs
        From `forecast.read_runs`, or built from a table.
    start, upto : float, optional
        Fit only evaluations with ``start <= compute <= upto``.
    prior : {"wide", "llm-rl"}
        Prior of the ceiling.
    pool : {"auto", "none", "all"} or names
        What recipes teach each other: of ``ceiling,exponent,midpoint``. Pooling assumes recipes of one
        experiment (same base model and data); ``auto`` pools all three with five recipes or more, ceiling and
        exponent with two to four, nothing when runs declare different models or tasks, or are named after
        different base models (``0.6b``, ``llama``) without declaring any.
    floor : {"measured", "latent"} or float
        Where the pass rate before training comes from.
    engine : {"auto", "hierarchical", "particle"}
        ``hierarchical`` samples all runs together, ``particle`` (seconds) each by itself; ``auto`` takes the
        latter for a single run of up to 300 evaluations.
    seed : int
        Of the sampler. The same seed gives the same draws in one process, and in every process with the same
        ``PYTHONHASHSEED`` (which the command line fixes); without it draws agree to Monte-Carlo error.
    force : bool
        Also fit runs that screening refuses (flat, collapsed, too short); outputs then carry the reason.
    report : callable, optional
        Called with (stage, draws done, draws in all) while sampling, from another thread.

    Returns
    -------
    Fit
        Also when diagnostics failed; it then refuses to `predict`.

    Raises
    ------
    InputError
        If an argument is wrong or no evaluation lies in the fitted range.
    Withheld
        If no run can carry a forecast; the message says why for each.
    """
    from forecast.inference.screening import screen

    priors = get_priors(prior)
    if seed < 0:
        raise InputError("seed must not be negative", found=seed)
    if engine not in ENGINES:
        raise InputError("unknown engine", found=repr(engine), expected=" | ".join(ENGINES))
    pooled_parameters(pool, 1)  # fail on a wrong name before any work
    if engine == "particle" and pool not in ("auto", "none"):
        raise InputError(
            "the particle engine fits each run by itself and pools nothing",
            found=f"--pool {pool}",
            fix="leave --pool out, or use --engine hierarchical",
        )
    settings = Settings(start=start, upto=upto, prior=prior, pool=pool, floor=floor, seed=seed, forced=force)
    for option, end in (("--from", start), ("--upto", upto)):
        if end is not None and np.isnan(end):
            raise InputError(f"{option} is no number", found=end)
    window = runs.window(start, upto)
    if window.table.empty:
        raise InputError(
            "no evaluation in the fitted range",
            found=f"compute {runs.table['compute'].min():g} to {runs.table['compute'].max():g} {runs.compute.unit}",
            expected=f"some between {start if start is not None else 0:g} and {upto if upto is not None else float('inf'):g}",
            fix="change --from or --upto",
        )
    refused = {name: "no evaluation in the fitted range" for name in runs.names if name not in window.names}
    screened = observe(window, floor)
    refused |= {
        name: "no evaluation of the whole prompt set" for name in window.names if name not in screened.runs
    }
    refused |= screen(screened, runs.metric)
    usable = [name for name in screened.runs if force or name not in refused]
    if not usable:
        raise Withheld(f"no forecast: {_listed([f'{name} {reason}' for name, reason in refused.items()])}")
    fitted = fitted_part(runs, settings, refused)
    if engine == "auto":
        alone = len(usable) == 1 and len(fitted.overall()) <= MOST_EVALUATIONS
        engine = "particle" if alone else "hierarchical"
    settings = replace(settings, engine=engine)
    quiet: Report = report or (lambda stage, done, total: None)
    if engine == "particle":
        sampled = _sample_apart(fitted, settings, priors, quiet)
    else:
        sampled = _sample_together(fitted, settings, priors, quiet)
    return Fit(
        runs=runs,
        settings=settings,
        pooled=sampled.pooled,
        posterior=xr.DataTree.from_dict(sampled.groups),
        checks=sampled.checks,
        independent_checks=sampled.independent_checks,
        refused=refused,
        provenance={
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version()} | {name: _version(name) for name in _VERSIONS},
            "data_sha256": runs.hash(),
            **sampled.efforts,
            "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        },
    )


@dataclass(frozen=True)
class _Posterior:
    """What either engine hands over; `groups` by path in the tree, `efforts` for the provenance."""

    pooled: tuple[str, ...]
    groups: dict[str, xr.Dataset]
    checks: list[Check]
    independent_checks: list[Check]
    efforts: dict[str, Any]


def _sample_apart(fitted: Runs, settings: Settings, priors: Priors, report: Report) -> _Posterior:
    from forecast.inference.runs_apart import sample_apart

    found = sample_apart(observe(fitted, settings.floor), priors, seed=settings.seed, report=report)
    return _Posterior((), _groups("", found.tree), found.checks, [], {"sampler": found.effort.to_dict()})


def _sample_together(fitted: Runs, settings: Settings, priors: Priors, report: Report) -> _Posterior:
    from forecast.inference.sampling import sample_checked

    pool, seed = settings.pool, settings.seed
    apart = pool == "auto" and several_bases(fitted)
    observations = observe(fitted, settings.floor, one_start=pool != "none" and not apart)
    pooled = () if apart else pooled_parameters(pool, len(observations.recipes))
    main = sample_checked(observations, priors, pooled, seed=seed, stage="sampling", report=report)
    groups, efforts = _groups("", main.tree), {"sampler": main.effort.to_dict()}
    if not pooled:
        return _Posterior(pooled, groups, main.checks, [], efforts)
    separate = sample_checked(
        observations, priors, (), seed=seed, stage="sampling, recipes apart", report=report
    )
    groups |= _groups("/independent", separate.tree)
    efforts["independent_sampler"] = separate.effort.to_dict()
    return _Posterior(pooled, groups, main.checks, separate.checks, efforts)


def _groups(under: str, tree: xr.DataTree) -> dict[str, xr.Dataset]:
    return {f"{under}/{name}": tree[name].to_dataset() for name in ("posterior", "sample_stats")}


def load(directory: str | Path) -> Fit:
    """Read a fit written by `Fit.save`, also by earlier versions.

    Raises
    ------
    InputError
        If a file is missing, comes from a later version, or was changed after it was written.
    """
    folder = Path(directory)
    for name in FILES:
        if not (folder / name).is_file():
            raise InputError(
                "not a saved fit", where=folder, found=f"no {name}", fix="name the folder given to fit -o"
            )
    try:
        summary = json.loads((folder / "fit.json").read_text())
        file_format, files = int(summary["format"]), dict(summary["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            "damaged", where=folder / "fit.json", found=str(error), fix="run fit again"
        ) from error
    if file_format > FORMAT:
        raise InputError(
            "written by a later rlforecast",
            where=folder,
            found=f"format {file_format}",
            expected=f"at most {FORMAT}",
            fix="update rlforecast",
        )
    for name in FILES[1:]:
        if _sha256(folder / name) != files.get(name):
            raise InputError("changed after the fit was saved", where=folder / name, fix="run fit again")
    try:
        settings = Settings(**summary["settings"])
        checks, independent_checks = (
            [Check(**check) for check in summary[key]] for key in ("checks", "independent_checks")
        )
        pooled, refused, provenance = (summary[key] for key in ("pooled", "refused", "provenance"))
    except (KeyError, TypeError) as error:
        raise InputError(
            "damaged", where=folder / "fit.json", found=str(error), fix="run fit again"
        ) from error
    if summary.get("sha256", _seal(summary)) != _seal(summary):  # earlier versions wrote none
        raise InputError("changed after the fit was saved", where=folder / "fit.json", fix="run fit again")
    with xr.open_datatree(folder / "posterior.nc", engine="h5netcdf") as lazy:
        posterior = lazy.load()
    return Fit(
        runs=Runs.load(folder / "runs.parquet"),
        settings=settings,
        pooled=tuple(pooled),
        posterior=posterior,
        checks=checks,
        independent_checks=independent_checks,
        refused=refused,
        provenance=provenance,
    )


def fitted_part(runs: Runs, settings: Settings, refused: Mapping[str, str]) -> Runs:
    """Evaluations in the fitted range of the runs that were not refused (or all of them, if forced)."""
    window = runs.window(settings.start, settings.upto)
    if settings.forced:
        return window
    return window.select(name for name in window.names if name not in refused)


def _listed(sentences: list[str], shown: int = 5) -> str:
    more = f"; and {len(sentences) - shown} more runs" if len(sentences) > shown else ""
    return "; ".join(sentences[:shown]) + more


def several_bases(runs: Runs) -> bool:
    """Whether runs declare different base models or tasks, or else are named after different base models."""
    if any(runs.table[column].nunique() > 1 for column in ("model", "task")):
        return True
    if runs.table["model"].notna().all():
        return False
    named = [frozenset(_BASE.findall(name.lower())) for name in runs.names]
    return all(named) and len(set(named)) > 1


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _seal(summary: Mapping[str, Any]) -> str:
    """SHA-256 over what fit.json says: an edited setting would change the forecast."""
    rest = {key: value for key, value in summary.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
