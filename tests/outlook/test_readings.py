"""One cut-off of one run: where a log is read, what the numbers mean, and the sum of one-step errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from weighed_by_hand import curve_runs, hand_weighed, moved, smooth

from forecast.curves import sigmoid
from forecast.inference.observations import Observations, observe
from forecast.inference.particle import Particles
from forecast.inference.priors import PRIORS
from forecast.inference.run_prior import RunPrior, run_prior
from forecast.inference.weighing import MOVES, SMOOTH, weigh
from forecast.outlook import readings
from forecast.outlook.hazard import Hazard
from forecast.outlook.readings import (
    ALARM_LOG_BF,
    ALARM_P,
    MINIMUM,
    SLOW_NOISE,
    STATES,
    WATCH_LOG_BF,
    WATCH_P,
    Reading,
    cusum,
    cut_offs,
    glance,
    has_lost,
    read,
)

DECADES = 1.2


def reading(
    rise: float = -1.0,
    collapse: float = -1.0,
    *,
    slow: tuple[float, float] | None = None,
    begun: tuple[float, float] = (1.0, 1.0),
) -> Reading:
    return Reading(
        compute=1_000.0,
        evaluations=12,
        log_bf={"rise": rise, "collapse": collapse},
        log_bf_se={"rise": 0.1, "collapse": 0.1},
        log_bf_guarded=dict(zip(MOVES, slow or (rise, collapse), strict=True)),
        begun=dict(zip(MOVES, begun, strict=True)),
    )


# Where a log is read


def test_no_cut_off_before_there_is_enough_to_read() -> None:
    for n in range(MINIMUM):
        assert cut_offs(n) == []
    assert cut_offs(MINIMUM) == [MINIMUM]


def test_a_longer_log_is_read_where_the_shorter_one_was() -> None:
    longest = cut_offs(2_000)
    for n in range(MINIMUM, 500):
        found = cut_offs(n)
        assert found[-1] == n
        assert found[0] == MINIMUM
        assert found == sorted(set(found))
        assert found[:-1] == [m for m in longest if m < n]


def test_the_first_twenty_are_read_one_by_one_and_then_five_per_cent_apart() -> None:
    found = np.array(cut_offs(1_000))
    assert list(found[found <= 20]) == list(range(8, 21))
    ratio = found[1:-1] / found[:-2]
    assert (ratio <= 1.05 + 1 / found[:-2]).all()
    assert len(found) < 100


# What the numbers mean


@pytest.mark.parametrize("factors", [(0.0, 0.0), (2.0, -1.0), (-3.0, 4.0), (1.0, 1.0)])
@pytest.mark.parametrize("hazard", [Hazard(), Hazard(0.3, 0.02), Hazard(0, 1)])
def test_the_probability_of_a_begun_move_is_bayes_rule(factors: tuple[float, float], hazard: Hazard) -> None:
    begun = (0.7, 0.4)
    prior = hazard.within(DECADES)
    joint = {kind: prior[kind] * np.exp(f) for kind, f in zip(MOVES, factors, strict=True)}
    total = 1 - sum(prior.values()) + sum(joint.values())
    one = reading(*factors, begun=begun)
    for kind, has in zip(MOVES, begun, strict=True):
        assert one.p_onset(kind, hazard, DECADES) == pytest.approx(has * joint[kind] / total)


def test_the_probability_holds_at_the_ends() -> None:
    assert reading(800.0).p_onset("rise", Hazard(), DECADES) == pytest.approx(1)
    assert reading(-800.0, -900.0).p_onset("rise", Hazard(), DECADES) == 0
    assert reading(800.0, 800.0).p_onset("rise", Hazard(0.2, 0.1), DECADES) == pytest.approx(2 / 3)
    assert reading(30.0).p_onset("rise", Hazard(0, 0), DECADES) == 0
    assert reading(5.0).p_onset("rise", Hazard(10, 10), 50) == pytest.approx(1 / (1 + np.exp(-6.0)))


@pytest.mark.parametrize("hazard", [Hazard(0, 0), Hazard(0, 0.1)])
def test_what_the_hazard_rules_out_has_not_begun_however_strong_the_evidence(hazard: Hazard) -> None:
    with np.errstate(invalid="ignore"):
        assert reading(800.0).p_onset("rise", hazard, DECADES) == 0
        assert np.isfinite(reading(800.0).p_onset("collapse", hazard, DECADES))


def log_bf_of(p: float, hazard: Hazard) -> float:
    """Log Bayes factor of a rise at which it has begun with probability `p`, where collapses are ruled out."""
    prior = hazard.within(DECADES)
    return float(np.log(p / (1 - p)) - np.log(prior["rise"] / (1 - sum(prior.values()))))


def test_states_change_at_their_thresholds() -> None:
    rare, often = Hazard(0.001, 0.001), Hazard(1, 0)
    tiny = 1e-6

    def state(rise: float, hazard: Hazard, **options: tuple[float, float]) -> str:
        return reading(rise, -50.0, **options).state("rise", hazard, DECADES)

    # By the Bayes factor, where a move is hardly expected.
    for threshold, below, above in ((WATCH_LOG_BF, *STATES[:2]), (ALARM_LOG_BF, *STATES[1:])):
        assert state(threshold - tiny, rare) == below
        assert state(threshold + tiny, rare) == above
    # By the probability, where it is.
    at = log_bf_of(WATCH_P, often)
    assert at < WATCH_LOG_BF
    assert state(at - tiny, often) == "prior_only"
    assert state(at + tiny, often) == "watch"
    at = log_bf_of(ALARM_P, often)
    assert at < ALARM_LOG_BF
    assert state(at - tiny, often, slow=(9.0, 0.0)) == "watch"
    assert state(at + tiny, often, slow=(9.0, 0.0)) == "alarm"


def test_slow_noise_that_explains_a_run_as_well_holds_an_alarm_back() -> None:
    tiny = 1e-6
    assert reading(20.0, slow=(ALARM_LOG_BF - tiny, 0.0)).state("rise", Hazard(), DECADES) == "watch"
    assert reading(20.0, slow=(ALARM_LOG_BF + tiny, 0.0)).state("rise", Hazard(), DECADES) == "alarm"
    assert reading(20.0, slow=(-30.0, 0.0)).state("rise", Hazard(), DECADES) == "watch"


def test_a_kind_is_judged_by_its_own_numbers() -> None:
    one = reading(9.0, -2.0)
    assert one.state("rise", Hazard(), DECADES) == "alarm"
    assert one.state("collapse", Hazard(), DECADES) == "prior_only"


def test_slow_noise_is_what_it_says() -> None:
    low, high = (1 / (1 + np.exp(-(SLOW_NOISE.mean + z * SLOW_NOISE.sd))) for z in norm.ppf([0.05, 0.95]))
    assert low == pytest.approx(0.88, abs=0.005)
    assert high == pytest.approx(0.98, abs=0.005)


def test_a_reading_passes_on_what_was_weighed() -> None:
    weighed = hand_weighed({"second_rise": [0.3, 0.1], "collapse": [-1.0, -2.0]}, begins=1.5)
    observations, prior = observed(smooth()[:9])
    found = read(weighed, observations, 0, prior, [1])
    assert found.evaluations == 9
    assert found.compute == weighed.fitted_upto
    for kind in MOVES:
        assert found.log_bf[kind] == weighed.log_bayes_factor(kind)
        assert found.begun[kind] == 0
        assert found.log_bf_guarded[kind] == found.log_bf[kind]  # not asked: nothing to hold back


# A first look


def observed(values: np.ndarray, **options: float) -> tuple[Observations, RunPrior]:
    observations = observe(curve_runs({"a": values}, **options))
    return observations, run_prior(PRIORS["wide"], observations, 0)


def test_a_look_that_finds_something_is_as_careful_as_weighing() -> None:
    observations, prior = observed(moved(0.25, 7_000.0)[:8])
    found = glance(observations, 0, prior, [3, 8])
    weighed = weigh(observations, 0, prior, seed=[3, 8], close=(ALARM_LOG_BF,))
    assert max(found.log_bf.values()) > WATCH_LOG_BF
    assert found == read(weighed, observations, 0, prior, [3, 8])
    slow = readings.sample_run(
        observations, 0, replace(prior, persistence=SLOW_NOISE), family="sigmoid", seed=[3, 8]
    )
    for kind, family in MOVES.items():
        against_slow = weighed.particles[family].log_evidence - slow.log_evidence
        assert found.log_bf_guarded[kind] == min(found.log_bf[kind], against_slow)


def test_a_quiet_look_gives_a_bound_and_says_so() -> None:
    observations, prior = observed(smooth()[:9])
    found = glance(observations, 0, prior, [3, 9])
    weighed = weigh(observations, 0, prior, seed=[3, 9])
    assert np.isnan(list(found.log_bf_se.values())).all()
    assert set(found.begun.values()) == {0.0}
    assert found.compute == pytest.approx(9_000.0)
    for kind, family in MOVES.items():
        assert found.log_bf[kind] < 0.5
        assert found.p_onset(kind, Hazard(), DECADES) == 0
        # The same first repeat against all smooth families is lower.
        first = weighed.particles[family].log_evidences[0] - np.log(
            sum(SMOOTH[name] * np.exp(weighed.particles[name].log_evidences[0]) for name in SMOOTH)
        )
        assert found.log_bf[kind] >= first - 1e-9


def test_a_quiet_look_stops_as_soon_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def once(observations, j, prior, family, seed, repeat=0) -> Particles:
        asked.append(family)
        return hand_weighed({"second_rise": -3.0, "collapse": -3.0}).particles[family]

    monkeypatch.setattr(readings, "sample_once", once)
    observations, prior = observed(smooth()[:9])
    glance(observations, 0, prior, [1])
    assert sorted(asked) == ["collapse", "second_rise", "sigmoid"]


# One-step errors

EVEN = np.linspace(1_000.0, 16_000.0, 16)


def sums(jump: float, seeds: range, *, at: float = 11_500.0) -> np.ndarray:
    found = []
    for seed in seeds:
        curve = smooth(EVEN) + jump * np.asarray(sigmoid(EVEN, 0, 1, 20.0, at))
        observations, prior = observed(curve, compute=EVEN, seed=seed)
        found.append(cusum(observations, 0, prior, [seed]))
    return np.array(found)


def test_the_sum_says_which_way_a_run_went() -> None:
    assert (sums(0.08, range(4)) > 4).all()
    assert (sums(-0.08, range(4)) < -4).all()


def test_on_smooth_runs_the_sum_is_that_of_independent_errors() -> None:
    found = sums(0.0, range(20))
    after = int((EVEN[-1] / 1.6 <= EVEN).sum())
    rng = np.random.default_rng(1)
    expected = []
    for _ in range(4_000):
        up = down = 0.0
        for error in rng.standard_normal(after):
            up, down = max(0.0, up + error - 0.5), max(0.0, down - error - 0.5)
        expected.append(up if up >= down else -down)
    assert np.abs(found).max() < np.quantile(np.abs(expected), 1 - 1e-4) + 1
    # The mean size, with four of its standard errors over twenty runs.
    assert np.abs(found).mean() < np.mean(np.abs(expected)) + 4 * np.std(np.abs(expected)) / np.sqrt(20)
    assert abs(found.mean()) < 4 * np.std(expected) / np.sqrt(20)


def test_a_sum_needs_evaluations_before_and_within_the_stretch() -> None:
    compute = np.array([1_000.0, 2_000.0, 15_000.0, 16_000.0])
    observations, prior = observed(smooth(compute), compute=compute)
    assert np.isnan(cusum(observations, 0, prior, [1]))
    compute = np.array([1_000.0, 2_000.0, 4_000.0, 16_000.0])
    observations, prior = observed(smooth(compute), compute=compute)
    assert np.isfinite(cusum(observations, 0, prior, [1]))
    compute = np.array([1_000.0])
    observations, prior = observed(smooth(compute), compute=compute)
    assert np.isnan(cusum(observations, 0, prior, [1]))


def test_one_step_errors_are_standard_normal_where_the_curve_is_known() -> None:
    """Ornstein-Uhlenbeck noise seen through a binomial, forecast from all evaluations before, by conditioning."""
    observations, _ = observed(smooth(EVEN), compute=EVEN)
    observations = replace(observations, inverse_trials=np.full(16, 1 / 800))
    size = 5
    rng = np.random.default_rng(2)
    draws = {
        "floor": np.full(size, 0.3),
        "ceiling": np.full(size, 0.6),
        "exponent": np.full(size, 1.8),
        "midpoint": np.full(size, 2_500.0),
        "noise": np.full(size, 0.02),
        "persistence": np.full(size, 0.7),
    }
    level = smooth(EVEN)
    time = np.concatenate([[0.0], np.cumsum(observations.distance[1:])])
    covariance = 0.02**2 * 0.7 ** np.abs(time[:, None] - time) + np.diag(level * (1 - level) / 800)
    observations = replace(
        observations, fraction=level + np.linalg.cholesky(covariance) @ rng.standard_normal(16)
    )
    begin = 6
    expected = []
    for i in range(begin, 16):
        before = slice(0, i)
        gain = np.linalg.solve(covariance[before, before], covariance[before, i])
        mean = level[i] + gain @ (observations.fraction[before] - level[before])
        expected.append(
            (observations.fraction[i] - mean) / np.sqrt(covariance[i, i] - gain @ covariance[before, i])
        )
    found = readings._one_step_errors(observations, draws, begin)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# Half of the gain lost


def lost_at(values: list[float], floor: float | None = 0.2) -> bool:
    grid = np.arange(1.0, len(values) + 1)
    runs = curve_runs({"a": np.array(values)}, compute=grid, floor=floor)
    return has_lost(observe(runs), 0)


def test_half_of_the_gain_lost_over_three_evaluations_is_a_collapse() -> None:
    rise = [0.25, 0.3, 0.4, 0.5, 0.6, 0.65, 0.68, 0.7, 0.7]
    assert not lost_at(rise)
    assert not lost_at([*rise, 0.1])  # one bad evaluation
    assert not lost_at([*rise, 0.1, 0.69, 0.7])  # a dip that recovered
    assert not lost_at([*rise, 0.55, 0.54, 0.55])  # a third of the gain
    assert lost_at([*rise, 0.3, 0.25, 0.25])
    assert lost_at([0.99] * 8 + [0.4, 0.4, 0.4], floor=None)  # starts at its ceiling
    assert not lost_at([0.02, 0.03, 0.02, 0.03, 0.02, 0.02, 0.01, 0.02, 0.02])  # noise near 0
