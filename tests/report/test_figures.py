import warnings

import matplotlib
import numpy as np
import pytest
from fits_by_hand import fit_by_hand, hand_runs

from forecast.errors import InputError, Withheld
from forecast.report.axes import grid_shape, log_ticks
from forecast.report.figures import fan_chart
from forecast.runs.table import ComputeAxis, Metric


def panels(figure):
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def lines(axes, label):
    return [line for line in axes.lines if line.get_label() == label]


def all_text(figure):
    texts = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        texts += [text.get_text() for text in axes.texts]
    for legend in figure.legends:
        texts += [text.get_text() for text in legend.get_texts()]
    return "\n".join(texts)


def test_one_panel_per_run_with_fitted_and_later_points_told_apart(hand_fit):
    figure = fan_chart(hand_fit, to=16_000)
    assert list(panels(figure)) == ["alpha", "beta"]
    for name, axes in panels(figure).items():
        table = hand_fit.runs.table[hand_fit.runs.table["run"] == name]
        (fitted,), (later,) = lines(axes, "evaluation, fitted"), lines(axes, "evaluation, not fitted")
        np.testing.assert_array_equal(fitted.get_xdata(), table.query("compute <= 8000")["compute"])
        np.testing.assert_array_equal(later.get_xdata(), table.query("compute > 8000")["compute"])
        # Told apart by fill, not by colour alone.
        assert fitted.get_markerfacecolor() != later.get_markerfacecolor()
        assert later.get_markerfacecolor() == "white"


def test_axes_units_interval_kind_and_range_are_written(hand_fit):
    figure = fan_chart(hand_fit, to=16_000)
    text = all_text(figure)
    for part in (
        "compute (GPU-hours, log scale)",
        "pass rate on held-out prompts",
        "50 % and 90 % equal-tailed intervals",
        "1,000 prompts × 16 samples",
        "fitted up to 8,000",
        "jumps and collapses beyond the data are not included",
        "least squares (grid), no interval",
        "ceiling, 90 % interval",
    ):
        assert part in text
    assert len(figure.legends) == 1


def test_bands_median_and_ceiling_are_the_tables_numbers(hand_fit):
    figure = fan_chart(hand_fit, to=16_000, names=["beta"])
    (axes,) = figure.axes
    (median,) = [line for line in axes.lines if len(line.get_xdata()) > 20 and line.get_linestyle() == "-"]
    at = np.asarray(median.get_xdata())
    table = hand_fit.predict(at, names=["beta"], quantity="evaluation")
    np.testing.assert_allclose(median.get_ydata(), table["q50"])
    wide, narrow = axes.collections
    for band, low, high in ((wide, "q05", "q95"), (narrow, "q25", "q75")):
        ys = band.get_paths()[0].vertices[:, 1]
        assert ys.min() == pytest.approx(table[low].min())
        assert ys.max() == pytest.approx(table[high].max())
    ceiling = hand_fit.parameters().query("name == 'beta' and parameter == 'ceiling'").iloc[0]
    drawn = np.concatenate(
        [np.asarray(line.get_ydata(), float) for line in axes.lines if list(line.get_xdata()) == [1, 1]]
    )
    assert set(np.round(drawn, 9)) == set(np.round([ceiling["q05"], ceiling["q95"]], 9))


def test_refused_run_is_points_only_with_the_reason():
    fit = fit_by_hand(hand_runs(["good", "bad"]), refused={"bad": "flat: no measurable rise"})
    figure = fan_chart(fit, to=16_000)
    axes = panels(figure)["bad"]
    assert not axes.collections
    assert len(lines(axes, "evaluation of a run without a curve")[0].get_xdata()) == 16
    assert "NO CURVE: flat: no measurable rise" in axes.texts[0].get_text()
    assert not panels(figure)["good"].texts[1:]


def test_forced_run_is_marked_not_reliable():
    fit = fit_by_hand(hand_runs(["good", "bad"]), refused={"bad": "collapsed"}, forced=True)
    axes = panels(fan_chart(fit, to=16_000))["bad"]
    assert any("NOT RELIABLE" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize("passed", [False, None])
def test_failed_or_unchecked_diagnostics_withhold_or_watermark(passed):
    fit = fit_by_hand(passed=passed)
    with pytest.raises(Withheld):
        fan_chart(fit, to=16_000)
    assert "DIAGNOSTICS FAILED" in all_text(fan_chart(fit, to=16_000, force=True))


def test_sound_fit_has_no_watermark(hand_fit):
    assert "DIAGNOSTICS" not in all_text(fan_chart(hand_fit, to=16_000))


def test_unidentified_ceiling_is_drawn_differently():
    wide = fit_by_hand(hand_runs(["a"]), ceiling_sd=0.15)
    assert wide.parameters().query("parameter == 'ceiling'")["verdict"].iloc[0].startswith("not identified")
    assert "ceiling not identified, 90 % interval" in all_text(fan_chart(wide, to=16_000))


def test_recipe_panels_hold_the_points_of_all_their_runs():
    fit = fit_by_hand(hand_runs({"a0": "a", "a1": "a", "b0": "b"}))
    shown = panels(fan_chart(fit, to=16_000, level="recipe"))
    assert list(shown) == ["a", "b"]
    assert len(lines(shown["a"], "evaluation, fitted")[0].get_xdata()) == 16


@pytest.mark.parametrize("count", [1, 4, 11, 20])
def test_nothing_is_cut_off_and_panels_do_not_touch(count):
    fit = fit_by_hand(hand_runs([f"run {i:02d}" for i in range(count)]), pooled=())
    figure = fan_chart(fit, to=16_000)
    figure.canvas.draw()
    page = figure.bbox
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for box in [
        *boxes,
        *(text.get_window_extent() for text in figure.texts),
        figure.legends[0].get_window_extent(),
    ]:
        assert min(box.x0, box.y0) >= -1
        assert box.x1 <= page.x1 + 1
        assert box.y1 <= page.y1 + 1
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])
    for text in figure.texts:
        assert not any(text.get_window_extent().overlaps(box) for box in boxes)
        assert not text.get_window_extent().overlaps(figure.legends[0].get_window_extent())
    rows, columns = grid_shape(count)
    assert (rows - 1) * columns < count <= rows * columns


def test_hostile_names_are_drawn_literally():
    name = r"$\frac{1$ _^{<b>" + "x" * 80
    fit = fit_by_hand(hand_runs([name]), pooled=())
    figure = fan_chart(fit, to=16_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    (axes,) = figure.axes
    title = axes.title if axes.title.get_text() else axes._left_title
    assert title.get_text().startswith(r"$\frac{1$ _^{<b>")
    assert title.get_window_extent().x1 <= figure.bbox.x1


def test_percent_scale_and_other_units():
    metric = Metric("acc", kind="accuracy", split="train", scale=(0, 100))
    runs = hand_runs(["a"], metric=metric, axis=ComputeAxis("flops"), compute=np.geomspace(1e20, 2e21, 12))
    figure = fan_chart(fit_by_hand(runs, upto=1e21, pooled=()), to=2e21)
    text = all_text(figure)
    assert "accuracy on training prompts (%)" in text
    assert "compute (FLOPs, log scale)" in text
    assert "fitted up to 10²¹" in text
    assert "held-out performance may be lower" in text


def test_error_rate_runs_downwards():
    metric = Metric("err", kind="error_rate", scale=(1, 0))
    figure = fan_chart(fit_by_hand(hand_runs(["a"], metric=metric), pooled=()), to=16_000)
    low, high = figure.axes[0].get_ylim()
    assert 0.3 < low < high < 0.65


def test_global_state_is_left_alone(hand_fit):
    before = dict(matplotlib.rcParams)
    fan_chart(hand_fit, to=16_000)
    assert dict(matplotlib.rcParams) == before
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": 500}, "beyond the first evaluation"),
        ({"to": float("nan")}, "beyond the first evaluation"),
        ({"to": 16_000, "bands": (0.5, 0.95)}, "unknown band"),
        ({"to": 16_000, "names": ["gamma"]}, "no such run"),
        ({"to": 16_000, "names": []}, "no run"),
        ({"to": 16_000, "level": "seed"}, "level"),
        ({"to": 16_000, "quantity": "area"}, "quantity"),
    ],
)
def test_wrong_arguments_are_named(hand_fit, arguments, message):
    with pytest.raises(InputError, match=message):
        fan_chart(hand_fit, **arguments)


@pytest.mark.parametrize("low", [0.03, 900.0, 1.7e18])
@pytest.mark.parametrize("ratio", [1.3, 4.0, 18.0, 1e3, 1e9])
@pytest.mark.parametrize("gap", [0.08, 0.25])
def test_ticks_are_inside_apart_and_at_least_one(low, ratio, gap):
    high = low * ratio
    ticks = np.array(log_ticks(low, high, gap))
    assert len(ticks) >= (2 if ratio > 2 else 1)
    assert ((ticks >= low * 0.999) & (ticks <= high * 1.001)).all()
    assert (np.diff(np.log(ticks)) >= gap * np.log(ratio) * 0.999).all()
