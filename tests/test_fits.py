"""Fitting, refusing, keeping and reading back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fits_by_hand import fit_by_hand, hand_runs

import forecast as fc
from forecast.errors import InputError, Withheld
from forecast.fits import FORMAT, Fit, fit, load
from forecast.inference import sampling
from forecast.inference.diagnostics import Check
from forecast.inference.hierarchical import ESCALATED
from forecast.inference.observations import Observations
from forecast.inference.priors import DRIFT_MEAN, drift_sd
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

AT = [4_000.0, 16_000.0]
DATA = Path(__file__).parent / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Keeping and reading back


@pytest.mark.parametrize(
    "made",
    [
        lambda: fit_by_hand(independent_shift=0.03),
        lambda: fit_by_hand(pooled=(), refused={"alpha": "flat"}, prior="llm-rl", floor=0.4),
        lambda: fit_by_hand(hand_runs({"é/α 1": "r", "b": "a very long recipe name, with comma"}), upto=None),
        lambda: fit_by_hand(refused={"alpha": "flat"}, forced=True, passed=False),
    ],
)
def test_a_saved_fit_forecasts_the_same(tmp_path: Path, made: Callable[[], Fit]) -> None:
    original = made()
    original.save(tmp_path / "deep" / "fit")
    back = load(tmp_path / "deep" / "fit")
    for level in ("run", "recipe", "new_run"):
        for quantity in ("curve", "evaluation"):
            asked = {"level": level, "quantity": quantity, "force": True}
            pd.testing.assert_frame_equal(original.predict(AT, **asked), back.predict(AT, **asked))
        pd.testing.assert_frame_equal(
            original.parameters(level=level, force=True), back.parameters(level=level, force=True)
        )
    assert back.settings == original.settings
    assert back.checks == original.checks
    assert back.passed == original.passed
    assert dict(back.refused) == dict(original.refused)
    assert dict(back.provenance) == dict(original.provenance)
    assert back.runs.hash() == original.runs.hash()


def test_a_loaded_fit_can_be_saved_over_itself(tmp_path: Path, hand_fit: Fit) -> None:
    path = tmp_path / "fit"
    hand_fit.save(path)
    load(path).save(path, overwrite=True)
    pd.testing.assert_frame_equal(load(path).predict(AT), hand_fit.predict(AT))
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_a_folder_holds_three_files_that_can_be_read_without_us(tmp_path: Path, hand_fit: Fit) -> None:
    hand_fit.save(tmp_path / "fit")
    assert sorted(contents(tmp_path / "fit")) == ["fit.json", "posterior.nc", "runs.parquet"]
    summary = json.loads((tmp_path / "fit" / "fit.json").read_text())
    assert summary["format"] == FORMAT
    assert summary["passed"] is True
    assert {"settings", "priors", "pooled", "checks", "provenance", "receipts", "files"} <= set(summary)
    assert summary["provenance"]["data_sha256"] == hand_fit.runs.hash()
    assert summary["receipts"][0]["dropped"] == {"no value": 3}


@pytest.mark.parametrize("broken", ["runs", "posterior"])
def test_a_failing_save_leaves_nothing_and_keeps_the_old(
    tmp_path: Path, hand_fit: Fit, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    hand_fit.save(tmp_path / "fit")
    before = contents(tmp_path)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    owner, name = {"runs": (Runs, "save"), "posterior": (type(hand_fit.posterior), "to_netcdf")}[broken]
    monkeypatch.setattr(owner, name, fail)
    for target in ("fit", "new"):
        with pytest.raises(InputError, match=r"cannot be written.*No space left"):
            hand_fit.save(tmp_path / target, overwrite=True)
    assert contents(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_an_existing_folder_is_replaced_only_when_asked_and_only_a_fit(tmp_path: Path, hand_fit: Fit) -> None:
    hand_fit.save(tmp_path / "fit")
    with pytest.raises(InputError, match="--overwrite"):
        hand_fit.save(tmp_path / "fit")
    hand_fit.save(tmp_path / "fit", overwrite=True)
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        hand_fit.save(papers, overwrite=True)
    assert contents(papers) == {"thesis.tex": b"precious"}


def edit(**changes: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "fit.json"
        summary = json.loads(path.read_text())
        for key, value in changes.items():
            if value is None:
                del summary[key]
            else:
                summary[key] = value
        path.write_text(json.dumps(summary))

    return apply


def truncate(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def other_data(folder: Path) -> None:
    hand_runs(seed=99).save(folder / "runs.parquet")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "posterior.nc").unlink(), "not a saved fit.*no posterior.nc"),
        (lambda folder: (folder / "runs.parquet").unlink(), "not a saved fit.*no runs.parquet"),
        (lambda folder: (folder / "fit.json").unlink(), "not a saved fit.*no fit.json"),
        (shutil.rmtree, "not a saved fit"),
        (truncate("posterior.nc"), "posterior.nc: changed after the fit was saved"),
        (truncate("runs.parquet"), "runs.parquet: changed after the fit was saved"),
        (other_data, "runs.parquet: changed after the fit was saved"),
        (truncate("fit.json"), "fit.json: damaged"),
        (lambda folder: (folder / "fit.json").write_text("[]"), "fit.json: damaged"),
        (lambda folder: (folder / "fit.json").write_text('{"name": "my-package"}'), "fit.json: damaged"),
        (edit(format="two"), "fit.json: damaged"),
        (edit(format=FORMAT + 1), f"later rlforecast.*format {FORMAT + 1}.*at most {FORMAT}"),
        (edit(files={}), "changed after the fit was saved"),
        (edit(files=None), "fit.json: damaged"),
        (edit(settings=None), "fit.json: damaged"),
        (edit(settings={"unheard_of": 1}), "fit.json: damaged"),
        (edit(checks=[{"name": "R-hat"}]), "fit.json: damaged"),
        (edit(pooled=None), "fit.json: damaged"),
    ],
)
def test_what_is_not_the_saved_fit_is_refused_in_one_line(
    tmp_path: Path, hand_fit: Fit, damage: Callable[[Path], None], words: str
) -> None:
    hand_fit.save(tmp_path / "fit")
    damage(tmp_path / "fit")
    with pytest.raises(InputError, match=words) as caught:
        load(tmp_path / "fit")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "fit") in str(caught.value)


def test_a_file_from_an_earlier_version_keeps_loading(tmp_path: Path) -> None:
    """Never regenerate this folder: it stands for the files that users have."""
    expected = json.loads((DATA / "fit_format_1_expected.json").read_text())
    old = load(DATA / "fit_format_1")
    assert old.passed
    assert list(old.pooled) == expected["pooled"]
    for key, value in expected["settings"].items():
        assert getattr(old.settings, key) == value
    found = old.predict([2_000, 6_000, 8_000, 16_000, 64_000])
    wanted = pd.DataFrame(expected["predict"])
    assert found["name"].tolist() == wanted["name"].tolist()
    assert found["region"].tolist() == wanted["region"].tolist()
    inside = wanted["compute"] <= 8_000
    numbers = ["mean", "sd", "q05", "q50", "q95", "times_fitted", "least_squares", "independent"]
    np.testing.assert_allclose(
        found.loc[inside, numbers].to_numpy(float), wanted.loc[inside, numbers].to_numpy(float), rtol=1e-6
    )
    # Beyond the data the drift is drawn anew (200 draws), and was centred on none when the file was written.
    creep = DRIFT_MEAN * drift_sd(16_000)
    shift = creep * np.log(np.maximum(wanted["compute"] / 8_000, 1.0))
    error = 5 * wanted["sd"] / np.sqrt(200)
    assert (np.abs(found["mean"] - wanted["mean"] - shift) < error + 1e-9).all()
    table = old.parameters()
    wanted = pd.DataFrame(expected["parameters"])
    assert table[["name", "parameter"]].equals(wanted[["name", "parameter"]])
    numbers = ["mean", "sd", "q05", "q50", "q95"]
    ceiling = table["parameter"] == "ceiling"
    np.testing.assert_allclose(table.loc[~ceiling, numbers], wanted.loc[~ceiling, numbers], rtol=1e-6)
    # A ceiling is shown with the drift of one e-fold, which is drawn anew: wider than the sigmoid's own.
    error = 5 * table.loc[ceiling, "sd"] / np.sqrt(200)
    assert (np.abs(table.loc[ceiling, "mean"] - wanted.loc[ceiling, "mean"] - creep) < error).all()
    assert (table.loc[ceiling, "sd"] > wanted.loc[ceiling, "sd"]).all()
    old.save(tmp_path / "again")
    pd.testing.assert_frame_equal(load(tmp_path / "again").predict(AT), old.predict(AT))


# Fitting


@pytest.mark.parametrize(
    ("engine", "sampler"),
    [
        ("hierarchical", {"sampler": "nutpie", "chains": 4}),
        ("particle", {"sampler": "sequential Monte Carlo", "repeats": 4}),
    ],
)
def test_a_sampled_fit_survives_its_files(
    tmp_path: Path, plateau_fit: Fit, engine: str, sampler: dict[str, object]
) -> None:
    sampled = plateau_fit if engine == plateau_fit.settings.engine else fit(plateau_fit.runs, engine=engine)
    sampled.save(tmp_path / "fit")
    back = load(tmp_path / "fit")
    assert back.settings.engine == engine
    assert back.passed
    for level in ("run", "recipe", "new_run"):
        for quantity in ("curve", "evaluation"):
            asked = {"level": level, "quantity": quantity}
            pd.testing.assert_frame_equal(sampled.predict(AT, **asked), back.predict(AT, **asked))
        pd.testing.assert_frame_equal(sampled.parameters(level=level), back.parameters(level=level))
    assert sampler.items() <= back.provenance["sampler"].items()
    assert {"python", "pymc", "nutpie", "numpy", "numba"} <= set(back.provenance["versions"])


class Sampler:
    """Stands in for the sampler and remembers what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Observations, tuple[str, ...], int]] = []
        monkeypatch.setattr(sampling, "sample_checked", self)

    def __call__(self, observations: Observations, priors, pooled, *, seed, stage, report, **_):
        self.asked.append((observations, pooled, seed))
        report(stage, 0, 0)
        recipe_of = dict(
            zip(
                observations.runs,
                (observations.recipes[r] for r in observations.recipe_of_run),
                strict=True,
            )
        )
        made = fit_by_hand(hand_runs(recipe_of), pooled=())
        posterior = made.posterior["posterior"].to_dataset()
        stats = posterior[["persistence"]]
        tree = type(made.posterior).from_dict({"posterior": posterior, "sample_stats": stats})
        return sampling.Sampled(tree, [Check("R-hat", True, 1.0, 1.01, "")], ESCALATED)


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Sampler:
    return Sampler(monkeypatch)


def test_only_the_window_is_fitted(sampler: Sampler) -> None:
    result = fit(hand_runs(), start=3_000, upto=9_000)
    observations = sampler.asked[0][0]
    compute = np.exp(observations.log_compute + observations.log_reference[0])
    assert compute.min() == pytest.approx(3_000)
    assert compute.max() == pytest.approx(9_000)
    assert result.runs.table["compute"].max() == 16_000
    assert result.fitted.table["compute"].max() == 9_000


def test_what_lies_outside_the_window_does_not_matter(sampler: Sampler) -> None:
    whole = hand_runs()
    fit(whole, upto=8_000)
    fit(whole.window(upto=8_000))
    first, second = (asked[0] for asked in sampler.asked[::2])
    for name in ("log_compute", "fraction", "distance", "floor", "log_reference"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    ("pool", "recipes", "pooled"),
    [
        ("auto", 1, ()),
        ("auto", 3, ("ceiling", "exponent")),
        ("auto", 5, ("ceiling", "exponent", "midpoint")),
        ("none", 5, ()),
        ("midpoint", 2, ("midpoint",)),
    ],
)
def test_a_pooled_fit_is_always_accompanied_by_an_independent_one(
    sampler: Sampler, pool: str, recipes: int, pooled: tuple[str, ...]
) -> None:
    runs = hand_runs([f"r{i}" for i in range(recipes)])
    result = fit(runs, pool=pool, engine="hierarchical", seed=7)
    assert result.pooled == pooled
    assert [asked[1] for asked in sampler.asked] == ([pooled, ()] if pooled else [()])
    assert (result.independent_draws is not None) == bool(pooled)


@pytest.mark.parametrize("column", ["model", "task"])
def test_runs_of_different_experiments_are_not_pooled_unasked(sampler: Sampler, column: str) -> None:
    runs = hand_runs()
    mixed = replace(
        runs, table=runs.table.assign(**{column: np.where(runs.table["run"] == "alpha", "m", "n")})
    )
    assert fit(mixed).pooled == ()
    assert fit(mixed, pool="ceiling").pooled == ("ceiling",)
    # A refused run of another model does not stand between the others.
    flat = runs.table[runs.table["run"] == "beta"].assign(run="flat", recipe="flat", value=0.4, model="other")
    three = replace(runs, table=pd.concat([runs.table.assign(model="m"), flat]))
    assert fit(three).pooled == ("ceiling", "exponent")


def with_bad_runs() -> Runs:
    """Of five runs, one is flat, one begins after 8,000, and one has only been evaluated on a stratum."""
    good = hand_runs()
    alpha = good.table[good.table["run"] == "alpha"]
    flat = alpha.assign(run="flat", recipe="flat", value=0.4)
    late = alpha[alpha["compute"] > 10_000].assign(run="late", recipe="late")
    part = alpha.assign(run="part", recipe="part", stratum="hard")
    return replace(good, table=pd.concat([good.table, flat, late, part]))


def test_runs_that_cannot_carry_a_forecast_are_left_out_with_a_reason(sampler: Sampler) -> None:
    result = fit(with_bad_runs(), upto=8_000)
    assert sampler.asked[0][0].runs == ("alpha", "beta")
    assert set(result.refused) == {"flat", "late", "part"}
    assert "flat" in result.refused["flat"]
    assert "fitted range" in result.refused["late"]
    assert "whole prompt set" in result.refused["part"]
    assert set(result.predict(AT)["name"]) == {"alpha", "beta"}


def test_force_fits_what_screening_refused_and_marks_it(sampler: Sampler) -> None:
    result = fit(with_bad_runs(), upto=8_000, force=True)
    assert set(sampler.asked[0][0].runs) == {"alpha", "beta", "flat"}
    table = result.predict(AT)
    assert (table["warning"].str.contains("NOT RELIABLE, flat") == (table["name"] == "flat")).all()


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_nothing_to_forecast_is_withheld_with_every_reason(sampler: Sampler, value: float) -> None:
    runs = hand_runs()
    flat = replace(runs, table=runs.table.assign(value=value), floors={})
    with pytest.raises(Withheld, match=r"alpha flat.*beta flat") as caught:
        fit(flat)
    assert caught.value.exit_code == 1
    assert not sampler.asked


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"prior": "narrow"}, "unknown prior"),
        ({"pool": "everything"}, "unknown --pool"),
        ({"floor": "guess"}, "unknown floor"),
        ({"floor": 40.0}, "floor outside"),
        ({"seed": -1}, "seed must not be negative"),
        ({"upto": 10.0}, r"no evaluation in the fitted range.*1000 to 16000 gpu_hours.*between 0 and 10"),
        ({"start": 1e6}, "no evaluation in the fitted range"),
        ({"start": 9_000, "upto": 3_000}, "no evaluation in the fitted range"),
        ({"upto": float("nan")}, "--upto is no number"),
        ({"engine": "nuts"}, r"unknown engine.*'nuts'.*auto \| hierarchical \| particle"),
        *(
            ({"engine": "particle", "pool": pool}, f"pools nothing.*--pool {pool}.*--engine hierarchical")
            for pool in ("all", "ceiling", "exponent,midpoint")
        ),
    ],
)
def test_wrong_requests_are_refused_before_any_work(sampler: Sampler, asked: dict, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        fit(hand_runs(), **asked)
    assert "\n" not in str(caught.value)
    assert not sampler.asked


# Engines


@pytest.mark.parametrize("engine", ["auto", "hierarchical", "particle"])
def test_a_single_usable_run_is_fitted_by_itself_unless_asked(sampler: Sampler, engine: str) -> None:
    good = hand_runs()
    flat = good.table[good.table["run"] == "beta"].assign(value=0.4)
    runs = replace(good, table=pd.concat([good.table[good.table["run"] == "alpha"], flat]))
    result = fit(runs, engine=engine)
    assert set(result.refused) == {"beta"}
    assert result.settings.engine == ("particle" if engine == "auto" else engine)
    assert bool(sampler.asked) == (engine == "hierarchical")
    assert set(result.predict(AT)["name"]) == {"alpha"}


def test_several_runs_are_fitted_together_unless_asked(sampler: Sampler) -> None:
    assert fit(hand_runs()).settings.engine == "hierarchical"
    assert len(sampler.asked) == 2


def test_particle_fits_of_several_runs_pool_nothing_and_do_not_depend_on_each_other(
    sampler: Sampler,
) -> None:
    """A run's own draws are those of the run alone: the second has another seed, the first the same."""
    both = fit(hand_runs(), upto=8_000, engine="particle", pool="none", seed=4)
    alone = fit(hand_runs(["alpha"]), upto=8_000, seed=4)
    assert not sampler.asked
    assert both.pooled == ()
    assert both.independent_draws is None
    for name in ("ceiling", "midpoint", "noise"):
        np.testing.assert_array_equal(both.draws[name].sel(run="alpha"), alone.draws[name].sel(run="alpha"))
    assert both.passed
    for level in ("run", "recipe", "new_run"):
        assert set(both.predict(AT, level=level)["name"]) == {"alpha", "beta"}
    again = fit(hand_runs(), upto=8_000, engine="particle", seed=4)
    np.testing.assert_array_equal(again.draws["ceiling"], both.draws["ceiling"])


def test_a_recipe_of_several_particle_fits_has_no_curve_and_says_what_to_do(tmp_path: Path) -> None:
    runs = hand_runs({"s0": "cispo", "s1": "cispo", "t0": "dapo"})
    fit(runs, upto=8_000, engine="particle").save(tmp_path / "fit")
    result = load(tmp_path / "fit")
    assert set(result.predict(AT)["name"]) == {"s0", "s1", "t0"}
    for level in ("recipe", "new_run"):
        for ask in (lambda at: result.predict(AT, level=at), lambda at: result.parameters(level=at)):
            with pytest.raises(InputError, match=f"each run by itself.*level {level}.*--engine hierarchical"):
                ask(level)


def test_an_unmeasured_floor_is_not_below_chance() -> None:
    """The early rise leaves the floor open, down to 0 unless guessing scores something."""
    made = hand_runs(["alpha"])
    floors = {}
    for chance in (0.0, 0.3):
        metric = Metric("acc", prompts=1000, samples_per_prompt=16, chance=chance)
        runs = replace(made, metric=metric, floors={})
        floors[chance] = fit(runs, start=3_000, upto=8_000, seed=2).draws["floor"].to_numpy()
    assert floors[0.3].min() >= 0.3
    assert np.mean(floors[0.0] < 0.3) > 0.05
    # A measured floor is believed, whatever chance is said to be.
    believed = replace(made, metric=Metric("acc", prompts=1000, samples_per_prompt=16, chance=0.5))
    assert fit(believed, upto=8_000, seed=2).draws["floor"].to_numpy().max() < 0.5


def test_a_run_with_nothing_but_strata_is_an_error() -> None:
    table = pd.DataFrame({"run": "a", "compute": [1.0, 2.0], "value": 0.5, "stratum": "hard"})
    with pytest.raises(InputError, match="whole prompt set"):
        fit(Runs(table, Metric("acc"), ComputeAxis("steps"), {"a": Floor(0.1)}))


def test_importing_is_light() -> None:
    heavy = ["pymc", "pytensor", "numba", "pandas", "nutpie", "arviz", "xarray", "scipy"]
    code = f"import sys, forecast; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_exist() -> None:
    for name in fc.__all__:
        assert getattr(fc, name) is not None
    with pytest.raises(AttributeError, match="no_such_thing"):
        fc.no_such_thing  # noqa: B018
