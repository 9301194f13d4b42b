import pytest
from fits_by_hand import fit_by_hand

from forecast.fits import Fit


@pytest.fixture(scope="session")
def hand_fit() -> Fit:
    """Two runs fitted up to 8,000 of 16,000 GPU-hours; see `fits_by_hand` for others."""
    return fit_by_hand()
