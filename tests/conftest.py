import numpy as np
import pytest
from command import command  # noqa: F401
from fits_by_hand import fit_by_hand

from forecast.fits import Fit, fit
from forecast.runs.table import Runs
from simulators.worlds import sigmoid_world


@pytest.fixture(scope="session")
def hand_fit() -> Fit:
    """Two runs fitted up to 8,000 of 16,000 GPU-hours; see `fits_by_hand` for others."""
    return fit_by_hand()


@pytest.fixture(scope="session")
def early_fit() -> Fit:
    """One sampled run whose data end at half of its midpoint."""
    return fit(_one_run(midpoint_share=0.5), upto=4_000, seed=1)


@pytest.fixture(scope="session")
def plateau_fit() -> Fit:
    """One sampled run whose data end at twelve midpoints."""
    return fit(_one_run(midpoint_share=0.08), seed=1)


def _one_run(midpoint_share: float) -> Runs:
    rng = np.random.default_rng(3)
    world = sigmoid_world(
        1,
        1,
        points=64,
        start=250.0,
        rng=rng,
        ceiling=(0.6, 0.6),
        floor_share=(0.4, 0.4),
        midpoint_share=(midpoint_share, midpoint_share),
        seed_sd={"ceiling": 0.0, "exponent": 0.0, "midpoint": 0.0},
    )
    return world.runs
