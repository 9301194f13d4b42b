"""Diagnostics on draws whose defects are known."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from forecast.inference.diagnostics import Check, all_passed, check_sampling, failures

CHAINS, DRAWS = 4, 600


def tree(rng: np.random.Generator, *, chains: int = CHAINS, draws: int = DRAWS) -> xr.DataTree:
    """Independent normal draws of everything: a sampler without fault."""
    shape = (chains, draws, 2)
    per_run = {
        name: (("chain", "draw", "run"), rng.standard_normal(shape))
        for name in ("floor", "ceiling", "exponent", "midpoint", "noise")
    }
    posterior = xr.Dataset(
        per_run | {"gain_within_sd": (("chain", "draw"), rng.standard_normal(shape[:2]))},
        coords={"run": ["alpha", "beta"]},
    )
    stats = xr.Dataset(
        {
            "diverging": (("chain", "draw"), np.zeros(shape[:2], dtype=bool)),
            "energy": (("chain", "draw"), rng.standard_normal(shape[:2])),
        }
    )
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})


def changed(sampled: xr.DataTree, name: str, change: object, group: str = "posterior") -> xr.DataTree:
    """The same tree with `change` applied in place to one variable's array."""
    dataset = sampled[group].to_dataset().copy(deep=True)
    dataset[name].values = change(dataset[name].to_numpy().copy())  # type: ignore[operator]
    others = {key: sampled[key].to_dataset() for key in ("posterior", "sample_stats") if key != group}
    return xr.DataTree.from_dict({group: dataset} | others)


def failed(sampled: xr.DataTree) -> dict[str, Check]:
    return {check.name: check for check in check_sampling(sampled) if check.passed is not True}


def test_independent_draws_pass_everything() -> None:
    checks = check_sampling(tree(np.random.default_rng(0)))
    assert all_passed(checks), failures(checks)
    assert failures(checks) == ""
    rhat = next(check for check in checks if check.name == "R-hat, curves")
    assert rhat.value == pytest.approx(1.0, abs=0.01)
    ess = next(check for check in checks if check.name == "ESS, curves")
    assert ess.value is not None
    assert 0.5 * CHAINS * DRAWS < ess.value < 1.5 * CHAINS * DRAWS


def test_one_chain_elsewhere_fails_r_hat_and_names_the_run() -> None:
    def shift(values: np.ndarray) -> np.ndarray:
        values[0, :, 1] += 3.0
        return values

    found = failed(changed(tree(np.random.default_rng(1)), "ceiling", shift))
    assert found["R-hat, curves"].passed is False
    assert "ceiling[beta]" in found["R-hat, curves"].text
    assert "R-hat, spreads and noise" not in found


def test_slow_draws_fail_the_effective_size() -> None:
    def slow(values: np.ndarray) -> np.ndarray:
        for i in range(1, values.shape[1]):
            values[:, i, 0] = 0.97 * values[:, i - 1, 0] + np.sqrt(1 - 0.97**2) * values[:, i, 0]
        return values

    found = failed(changed(tree(np.random.default_rng(2)), "exponent", slow))
    assert found["ESS, curves"].passed is False
    assert "exponent[alpha]" in found["ESS, curves"].text
    # (1 - .97) / (1 + .97) of 2,400 draws.
    assert found["ESS, curves"].value == pytest.approx(37, abs=25)


def test_spreads_are_held_to_wider_limits_than_curves() -> None:
    # 350 independent draws: enough for a spread (300), not for a curve (400).
    small = tree(np.random.default_rng(3), draws=600)

    def thin(values: np.ndarray) -> np.ndarray:
        return np.repeat(values[:, ::7], 7, axis=1)[:, : values.shape[1]]

    def ess_check(sampled: xr.DataTree, which: str) -> Check:
        return next(check for check in check_sampling(sampled) if check.name == f"ESS, {which}")

    curve = ess_check(changed(small, "ceiling", thin), "curves")
    spread = ess_check(changed(small, "gain_within_sd", thin), "spreads and noise")
    assert curve.value is not None
    assert spread.value is not None
    assert 300 < curve.value < 400
    assert 300 < spread.value < 400
    assert curve.passed is False
    assert spread.passed is True


@pytest.mark.parametrize("name", ["midpoint", "noise"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5], ids=str)
def test_one_bad_or_constant_parameter_is_never_a_pass(name: str, value: float) -> None:
    def spoil(values: np.ndarray) -> np.ndarray:
        if np.isfinite(value):
            values[:, :, 0] = value
        else:
            values[2, 17, 0] = value
        return values

    checks = check_sampling(changed(tree(np.random.default_rng(4)), name, spoil))
    assert not all_passed(checks)
    assert f"{name}[alpha]" in failures(checks)


def test_a_stuck_chain_is_found() -> None:
    def stick(values: np.ndarray) -> np.ndarray:
        values[3, :, 1] = 0.0
        return values

    assert not all_passed(check_sampling(changed(tree(np.random.default_rng(5)), "floor", stick)))


def test_one_divergence_fails() -> None:
    def diverge(values: np.ndarray) -> np.ndarray:
        values[1, 3] = True
        return values

    found = failed(changed(tree(np.random.default_rng(6)), "diverging", diverge, "sample_stats"))
    assert list(found) == ["divergences"]
    assert found["divergences"].text.startswith("1 divergent")


def test_energy_that_moves_in_small_steps_fails() -> None:
    def creep(values: np.ndarray) -> np.ndarray:
        return np.cumsum(values, axis=1) / 10

    found = failed(changed(tree(np.random.default_rng(7)), "energy", creep, "sample_stats"))
    assert list(found) == ["E-BFMI"]
    assert found["E-BFMI"].passed is False


def test_energy_fraction_is_that_of_independent_energies() -> None:
    # Variance of a first difference over the variance: 2 for independent energies.
    checks = check_sampling(tree(np.random.default_rng(8), draws=5000))
    assert next(c for c in checks if c.name == "E-BFMI").value == pytest.approx(2.0, abs=0.15)


def test_constant_energy_was_not_checked() -> None:
    spoiled = changed(tree(np.random.default_rng(9)), "energy", np.zeros_like, "sample_stats")
    assert failed(spoiled)["E-BFMI"].passed is None


def test_a_single_chain_or_a_handful_of_draws_is_not_a_pass() -> None:
    assert not all_passed(check_sampling(tree(np.random.default_rng(10), chains=1)))
    assert not all_passed(check_sampling(tree(np.random.default_rng(11), draws=3)))


def test_not_checked_is_not_passed() -> None:
    good = Check("a", True, 1.0, 2.0, "fine")
    unknown = Check("b", None, None, 2.0, "could not be told")
    assert all_passed([good])
    assert not all_passed([good, unknown])
    assert failures([good, unknown]) == "could not be told"
