"""Simulation-based calibration: the study's own arithmetic, and whether it would notice a wrong engine."""

import numpy as np
import pandas as pd
import pytest

from studies.executor import Task
from studies.sbc import DESIGNS, bands, figure, markdown, work


def pits(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"design": "a", "run": np.arange(len(values)), "parameter": "x", "pit": values})


def test_uniform_values_stay_inside_and_others_leave():
    uniform = np.random.default_rng(0).random(300)
    assert bands(pits(uniform))["inside"].item()
    # Intervals too narrow, and a bias of .15 of the scale.
    assert not bands(pits(np.random.default_rng(1).beta(0.5, 0.5, 300)))["inside"].item()
    assert not bands(pits(uniform**1.4))["inside"].item()
    assert "| a | 300 | 1 |" in markdown(bands(pits(uniform)))


@pytest.mark.parametrize("design", DESIGNS)
def test_every_parameter_of_a_family_is_ranked(design: str):
    rows = work(Task("t", {"design": design, "first": 4, "runs": 1, "seed": 0}))
    added = {"burr": 1, "second rise": 3, "collapse": 3}.get(design, 0)
    assert len(rows) == 6 + added
    assert rows["pit"].between(0, 1).all()
    again = work(Task("t", {"design": design, "first": 4, "runs": 1, "seed": 0}))
    pd.testing.assert_frame_equal(rows, again)
    assert figure(rows.loc[rows.index.repeat(5)]).axes[0].get_title(loc="left") == design


@pytest.mark.slow
def test_the_sigmoid_posterior_is_calibrated():
    """120 runs, six parameters: at 99 % bands, more than one outside has a probability below .2 %."""
    rows = work(Task("t", {"design": "sigmoid", "first": 0, "runs": 120, "seed": 21}))
    assert (~bands(rows)["inside"]).sum() <= 1
