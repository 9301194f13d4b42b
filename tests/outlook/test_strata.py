"""The early channel for a second rise: counts of prompt classes, and of single prompts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit

from forecast.errors import InputError
from forecast.outlook.strata import (
    EARLY,
    GROWTH,
    LEAST_BEFORE,
    LEAST_RATIO,
    NEVER_SOLVED,
    change_statistic,
    spectrum,
    stratum_channel,
)
from forecast.runs.table import ComputeAxis, Metric, Runs

CURVES = Path(__file__).parents[3] / "shared" / "minirun" / "curves"
POINTS = 40
COMPUTE = np.geomspace(1.0, 100.0, POINTS)
REST = 0.2 + 0.6 / (1 + (5 / COMPUTE) ** 2)


def wander(rng: np.random.Generator, sd: float, persistence: float = 0.6) -> np.ndarray:
    noise = np.empty(POINTS)
    noise[0] = rng.normal()
    for t in range(1, POINTS):
        noise[t] = persistence * noise[t - 1] + np.sqrt(1 - persistence**2) * rng.normal()
    return sd * noise


def experiment(values: dict[str, np.ndarray], trials: dict[str, int | None], compute=COMPUTE) -> Runs:
    classes = [
        pd.DataFrame(
            {"run": "r", "compute": compute, "value": value, "trials": trials[name], "stratum": name}
        )
        for name, value in values.items()
    ]
    whole = pd.DataFrame({"run": "r", "compute": compute, "value": np.mean(list(values.values()), axis=0)})
    return Runs(pd.concat([whole, *classes]), Metric("pass_rate"), ComputeAxis("gpu_hours"))


def two_classes(rng: np.random.Generator, hard: np.ndarray, sd: float = 0.0, trials: int = 1000) -> Runs:
    rates = {"easy": REST, "hard": np.asarray(expit(logit(hard) + wander(rng, sd)))}
    return experiment(
        {name: rng.binomial(trials, rate) / trials for name, rate in rates.items()},
        dict.fromkeys(rates, trials),
    )


def test_statistic_without_overdispersion_is_the_likelihood_ratio_of_two_binomials():
    rng = np.random.default_rng(1)
    trials = rng.integers(50, 200, 9)
    solved = rng.binomial(trials, np.repeat([0.05, 0.3], [5, 4]))
    compute = np.linspace(1, 2, 9)
    statistic = change_statistic(solved, trials, compute, noise_sd=0, lone_sd=0)

    def log_likelihood(part: slice, rate: float) -> float:
        return float(stats.binom.logpmf(solved[part], trials[part], rate).sum())

    def rate(*parts: slice) -> float:
        return sum(solved[p].sum() for p in parts) / sum(trials[p].sum() for p in parts)

    expected = np.zeros((9, 9))
    for i in range(LEAST_BEFORE, 9):
        for j in range(i, 9):
            found = []
            for start in range(i - LEAST_BEFORE + 1):
                if 4 <= i - start < i and i - start not in (4, 5, 7):
                    continue  # stretches grow in steps of about a third
                before, after = slice(start, i), slice(i, j + 1)
                low, high, both = rate(before), rate(after), rate(before, after)
                least = max(LEAST_RATIO, (compute[after].mean() / compute[before].mean()) ** GROWTH)
                up = high / (1 - high) >= least * low / (1 - low)
                ratio = log_likelihood(before, low) + log_likelihood(after, high)
                ratio -= log_likelihood(before, both) + log_likelihood(after, both)
                found.append(ratio if up else 0.0)
            expected[i, j] = min(found)
    assert expected.max() > 20
    np.testing.assert_allclose(statistic, expected, atol=1e-9)


def test_statistic_ignores_falls_and_has_a_limit_at_zero_counts():
    trials, compute = np.full(10, 100), np.linspace(5, 10, 10)
    assert not change_statistic(np.repeat([40, 2], 5), trials, compute).any()
    assert not change_statistic(np.zeros(10), trials, compute).any()
    assert change_statistic(np.repeat([0, 5], 5), trials, compute)[5, 9] > 5


@pytest.mark.parametrize(
    ("sd", "alarms", "watches"), [(0.0, 0.01, 0.05), (0.3, 0.01, 0.05), (0.5, 0.05, 0.1)]
)
def test_a_constant_class_seldom_raises_a_flag(sd, alarms, watches):
    worlds = 60
    rng = np.random.default_rng([2, int(10 * sd)])
    states = []
    for _ in range(worlds):
        flag = stratum_channel(two_classes(rng, np.full(POINTS, rng.uniform(0.002, 0.02)), sd), "r")
        assert flag is not None
        states.append(flag.state)
    for allowed, share in [(alarms, states.count("alarm")), (watches, worlds - states.count("prior_only"))]:
        # What more often than once in 1,000 such sets of worlds would be seen at the allowed rate.
        assert share <= stats.binom.ppf(0.999, worlds, allowed)


def test_a_second_rise_is_seen_before_it_is_a_tenth_done_and_stays_seen():
    rng = np.random.default_rng(3)
    early = 0
    for _ in range(25):
        hard = 0.004 + 0.9 / (1 + (60 / COMPUTE) ** 6)
        runs = two_classes(rng, hard, 0.3)
        tenth = COMPUTE[np.argmax(hard >= 0.1 * 0.9)]
        flag = stratum_channel(runs.window(upto=tenth), "r")
        late = stratum_channel(runs, "r")
        assert flag is not None
        assert late is not None
        early += flag.state != "prior_only"
        assert late.state == "alarm"
        assert late.stratum == "hard"
        assert late.statistic >= flag.statistic
        assert 20 < late.since < 80
        assert "class 'hard'" in late.sentence
        before = stratum_channel(runs.window(upto=tenth / 2.5), "r")
        assert before is not None
        assert before.state != "alarm"
    assert early >= 19


def test_a_hard_class_that_grows_with_the_first_rise_is_no_second_rise():
    rng = np.random.default_rng(4)
    grows = 0.002 + 0.4 / (1 + (9 / COMPUTE) ** 2)
    states = [stratum_channel(two_classes(rng, grows, 0.2), "r").state for _ in range(40)]
    assert "alarm" not in states
    assert states.count("watch") <= stats.binom.ppf(0.999, 40, 0.05)


def test_classes_evaluated_at_different_times_and_at_their_ceiling():
    rng = np.random.default_rng(5)
    runs = two_classes(rng, 0.003 + 0.9 / (1 + (60 / COMPUTE) ** 6))
    table = runs.table[(runs.table["stratum"] != "easy") | (np.arange(len(runs.table)) % 2 == 0)]
    flag = stratum_channel(Runs(table, runs.metric, runs.compute), "r")
    assert flag.state == "alarm"
    assert stratum_channel(two_classes(rng, np.full(POINTS, 0.99)), "r").state == "prior_only"


def test_a_single_class_is_compared_with_the_rest_of_the_whole_set():
    rng = np.random.default_rng(6)
    hard = 0.003 + 0.9 / (1 + (60 / COMPUTE) ** 6)
    table = two_classes(rng, hard).table
    table = table[table["stratum"] != "easy"].copy()
    table.loc[table["stratum"].isna(), "trials"] = 2000
    assert stratum_channel(Runs(table, Metric("p"), ComputeAxis("flops")), "r").state == "alarm"


def test_what_cannot_be_said():
    rng = np.random.default_rng(7)
    runs = two_classes(rng, np.full(POINTS, 0.01))
    whole = Runs(runs.overall(), runs.metric, runs.compute)
    assert stratum_channel(whole, "r") is None
    with pytest.raises(InputError, match="no such run"):
        stratum_channel(runs, "other")
    unknown = Runs(runs.table.assign(trials=pd.NA), runs.metric, runs.compute)
    flag = stratum_channel(unknown, "r")
    assert flag.state == "prior_only"
    assert "not known" in flag.sentence
    reward = Runs(runs.table, Metric("r", kind="reward"), runs.compute)
    assert "not a share of attempts" in stratum_channel(reward, "r").sentence
    few = stratum_channel(runs.window(upto=COMPUTE[1]), "r")
    assert (few.state, few.stratum, few.statistic) == ("prior_only", "", 0.0)
    assert np.isnan(few.since)


def prompts(rng: np.random.Generator, rates: np.ndarray, samples: int = 8) -> Runs:
    """Rates of shape (prompts, points)."""
    names = [f"prompt {k}" for k in range(len(rates))]
    values = rng.binomial(samples, rates) / samples
    return experiment(dict(zip(names, values, strict=True)), dict.fromkeys(names, samples))


def prompt_rates(rng: np.random.Generator, count: int = 60) -> np.ndarray:
    """Half of the prompts rise, and the other half keep each a small rate."""
    rising = np.repeat(REST[None], count // 2, axis=0)
    constant = np.repeat(rng.beta(0.3, 8.0, count // 2)[:, None], POINTS, axis=1)
    return np.concatenate([rising, constant])


def test_prompts_chosen_because_never_solved_do_not_fire_when_their_rates_stay():
    rng = np.random.default_rng(8)
    states, naive = [], 0
    for _ in range(25):
        runs = prompts(rng, prompt_rates(rng))
        flag = stratum_channel(runs, "r")
        states.append(flag.state)
        # The trap: the same prompts, tested on the evaluations that chose them as well.
        value = runs.table[runs.table["stratum"].notna()].pivot(
            index="stratum", columns="compute", values="value"
        )
        never = value[(value.iloc[:, :EARLY] == 0).all(axis=1)]
        naive += (
            change_statistic(8 * never.sum(), np.full(POINTS, 8 * len(never)), COMPUTE)[EARLY].max() > 2.5
        )
    assert naive >= 8
    assert states.count("prior_only") >= 24
    assert "alarm" not in states


def test_prompts_never_solved_early_that_rise_late_are_seen():
    rng = np.random.default_rng(9)
    rates = prompt_rates(rng)
    rates[-30:] = 0.002 + 0.9 / (1 + (60 / COMPUTE) ** 6)
    runs = prompts(rng, rates)
    flag = stratum_channel(runs, "r")
    assert (flag.state, flag.stratum) == ("alarm", NEVER_SOLVED)
    upto = COMPUTE[np.argmax(rates[-1] >= 0.15)]
    assert stratum_channel(runs.window(upto=upto), "r").state != "prior_only"


def test_a_growing_share_of_rarely_solved_prompts_is_said():
    rng = np.random.default_rng(10)
    rates = prompt_rates(rng)
    rates[-30:] = np.where(COMPUTE > 20, 0.05, 0.0)
    assert "has grown from 0%" in stratum_channel(prompts(rng, rates), "r").sentence
    rates[-30:] = 0.0
    assert "has grown" not in stratum_channel(prompts(rng, rates), "r").sentence


def test_trials_of_single_prompts_are_the_samples_per_prompt():
    rng = np.random.default_rng(11)
    rates = prompt_rates(rng)
    rates[-30:] = 0.002 + 0.9 / (1 + (60 / COMPUTE) ** 6)
    runs = prompts(rng, rates)
    known = stratum_channel(runs, "r")
    metric = Metric("pass_rate", prompts=len(rates), samples_per_prompt=8)
    assert stratum_channel(Runs(runs.table.assign(trials=pd.NA), metric, runs.compute), "r") == known


def test_spectrum_by_hand():
    solved, trials = [0, 0, 1, 1, 8, 12, 15, 16], [16] * 8
    found = spectrum(solved, trials, 8)
    assert found.share_hard == 0.25
    assert found.share_zero == 0.25
    # From what one more solution than 1 of 16 would have been to 8 of 16.
    assert found.gap == pytest.approx(logit(8.5 / 17) - logit(2.5 / 17))
    assert found.share_below == 0.5


def test_spectrum_without_a_gap():
    flat = spectrum(np.arange(17), np.full(17, 16), 8)
    assert flat.gap == 0
    assert np.isnan(flat.share_below)
    # One prompt in 100 is no side of a gap.
    assert spectrum(np.append(0, np.full(99, 16)), np.full(100, 16), 8).gap == 0
    for bad in (([], [], 8), ([3], [2], 8), ([1], [2], 0)):
        with pytest.raises(InputError):
            spectrum(*bad)


def mini_run(path: Path) -> tuple[Runs, np.ndarray, np.ndarray]:
    """A shared curve with the sizes of its classes as the whole set's mean implies them; compute, last class."""
    table = pd.read_csv(path)
    table = table[table["step"] > 0]
    compute = (table["gen_flops"] + table["train_flops"]).to_numpy()
    names = [name for name in table if name.startswith("eval_cls")]
    shares = np.linalg.lstsq(table[names].to_numpy(), table["eval_pass_rate"].to_numpy(), rcond=None)[0]
    trials = {name: 4 * round(256 * share) for name, share in zip(names, shares, strict=True)}
    runs = experiment({name: table[name].to_numpy() for name in names}, trials, compute)
    return runs, compute, table[names[-1]].to_numpy()


@pytest.mark.skipif(not CURVES.exists(), reason="the curves of the mini-runs lie outside the repository")
@pytest.mark.parametrize("name", ["carry_base_s0", "carry_base_s1", "carry_base_s2", "carry_late_s0"])
def test_carry_runs_raise_the_alarm_by_the_evaluation_after_a_tenth_of_the_rise(name):
    runs, compute, carry = mini_run(CURVES / f"{name}.csv")
    tenth = int(np.argmax(carry >= 0.1 * carry[-1]))
    first = next(c for c in compute if stratum_channel(runs.window(upto=c), "r").state == "alarm")
    assert compute[tenth] / 2 <= first <= compute[tenth + 1]
    flag = stratum_channel(runs, "r")
    assert (flag.state, flag.stratum) == ("alarm", "eval_cls1")


@pytest.mark.skipif(not CURVES.exists(), reason="the curves of the mini-runs lie outside the repository")
def test_runs_without_a_second_rise_raise_no_alarm():
    paths = [path for path in sorted(CURVES.glob("addmul_*.csv")) if "lr1e-3" not in path.name]
    assert len(paths) >= 20
    for path in paths:
        runs, _, _ = mini_run(path)
        # A flag never falls when evaluations are added, so the whole run speaks for all cut-offs.
        assert stratum_channel(runs, "r").state == "prior_only", path.name
