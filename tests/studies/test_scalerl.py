"""The published runs: forecasts of the extensions, and the comparison columns of the study."""

import numpy as np
import pandas as pd
import pytest

import forecast as fc
from studies.scalerl import PUBLISHED, STATED_FLOOR, fit_segments, points, score_fit, score_points


def test_eleven_series_draw_nine_runs():
    series, runs = points(merged=False), points(merged=True)
    assert series["run"].nunique() == 11
    assert runs["run"].nunique() == 9
    # This run was evaluated every 257 GPU-hours: no evaluation is left that was read off twice.
    assert runs.loc[runs["run"] == "ScaleRL", "gpu_hours"].sort_values().diff().min() > 200


def test_published_parameters_and_least_squares_predict_the_extensions():
    table = points(merged=False)
    published, _ = score_points(table, STATED_FLOOR, pd.read_csv(PUBLISHED))
    incumbent, within = score_points(table, None)
    assert published.rmse < 0.006  # the parameters were fitted with the extension in view
    assert 0.005 < incumbent.rmse < 0.02
    assert 0.5 < within <= 1


@pytest.mark.slow
@pytest.mark.parametrize("floor", ["latent", STATED_FLOOR])
def test_extensions_are_forecast_within_their_intervals(floor):
    table = points(merged=False)
    fit = fc.fit(fit_segments(table), floor=floor, seed=0)
    assert fit.passed
    result = score_fit(fit, table, seed=0)
    assert result.points == len(table[table["segment"] == "extended"])
    assert result.rmse <= 0.0085
    assert result.crps <= 0.0050
    assert result.coverage[95] >= 0.95
    assert result.width[95] <= 0.055
    assert np.isfinite(result.bias)
