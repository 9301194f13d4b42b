"""What a budget buys, with which probability, and whether to look before choosing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.outlook.comparison import LIKELY
from forecast.outlook.experiments import Outcome, worth_of_looking
from forecast.outlook.hazard import Hazard
from forecast.outlook.options import Option, make_options
from forecast.outlook.predict import FAR, QUANTILES, TRANSITIONS
from forecast.outlook.prices import Prices
from forecast.outlook.reliability import left_out
from forecast.records import records

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.runs.table import Metric

Array = NDArray[np.float64]

CLOSE = 0.005
"""Expected loss (fraction) below which the leading option is as good as any: no evaluation shows so little."""

MEASURES = ("at", "spend", "money")
"""How a budget is meant: compute that a run is to reach in all, compute to spend from now on, or money to spend."""

SHARES = (0.125, 0.25, 0.5)
"""Of the budget, that an experiment gives to each option it tries."""

LEADERS = 3
"""Options that experiments try: those most likely to be the best."""

CHANGES = 0.2
"""Probability of another choice from which an experiment counts as one that could change the decision."""

MOST_BEYOND = 1000.0
"""Times the fitted compute beyond which no budget is answered."""

LEAST_LOOK = 0.01
"""Of the fitted compute, that an experiment must give each option: with less it is one more evaluation of the same."""

LEAST_GAIN = 0.001
"""Expected gain (fraction) below which no experiment is called worth its trouble."""

_FEWEST_REACHING = 0.02  # of the draws: quantiles of a handful are none
_ROUNDING = 1e-9
_POINT, _DEAREST = 0.01, 1e9
_STEP, _LEAST_STEP = 0.01, 1e-4  # of the spending; of all compute, below which differences are rounding
_GRID = 300


@dataclass(frozen=True)
class Decision:
    """What each budget buys by option, and which to choose; tables, JSON and sentences are all made from this.

    Attributes
    ----------
    measure : str
        Of `MEASURES`: what ``budget`` means in the tables.
    options : pandas.DataFrame
        One row per budget and option: ``budget, option, action, name, model``; ``compute`` (in all, of the run),
        ``extra`` (to be spent from now on) and ``cost`` (money, NaN without a price); ``times_fitted``; ``mean`` and
        quantiles ``q05 ... q95`` of the true value on the metric's scale; ``gain_mean, gain_q05, gain_q50, gain_q95``
        over stopping now;
        ``p_target``; ``p_best`` (probability that no other option comes out better, `worth` considered); ``regret``
        (expected loss against the best option, on the metric's scale); ``gain_per_unit`` (expected gain of the next
        unit of compute at the end of the budget); ``ceiling`` (how well the data know it: ``identified``, ``roughly
        known``, ``poorly known`` or ``not identified``), ``warning`` and ``left_out`` (runs of its recipe that were refused).
    choices : pandas.DataFrame
        One row per budget: ``budget, option`` (of the smallest regret), ``p_best, regret, second, p_second`` (the
        most likely other best) and ``verdict``: ``decided`` (p_best >= .8), ``close`` (not decided, but the expected
        loss is below .005 of the scale) or ``not decided``; ``passed`` (runs that have used as much already, and are
        no options).
    targets : pandas.DataFrame
        One row per option but stopping, empty without a target: ``option, target, p_now`` (reached already),
        ``p_never`` (not within `horizon`), ``q05, q50, q95`` of the compute in all at which it is reached, given that
        it is (NaN where less than .02 of the draws reach it), and ``extra_q50, cost_q50``.
    experiments : pandas.DataFrame
        One row per budget and experiment: ``budget, options, share`` (of the budget, for each option), ``extra``
        and ``cost`` in all, ``p_change`` (probability of another choice afterwards), ``gain, gain_se`` (expected
        gain over choosing now, less what the experiment uses up, which without `worth` is nothing where runs are to
        reach some compute (``at``): there it comes on top of the budget; metric's scale), ``effective`` draws and
        ``verdict``: ``worth it`` (gain above two standard errors and .001 of the scale), ``not worth it`` or ``not computed``.
    metric, unit : Metric, str
        The axes.
    target, worth, horizon : float or None
        As asked; `horizon` is where ``p_never`` ends.
    transitions, hazard : str
        As asked.
    """

    measure: str
    options: pd.DataFrame
    choices: pd.DataFrame
    targets: pd.DataFrame
    experiments: pd.DataFrame
    metric: Metric
    unit: str
    target: float | None
    worth: float | None
    horizon: float
    transitions: str
    hazard: str

    def furthest(self) -> list[float]:
        """Largest compute that an option reaches, by budget, rising; what is stopped reaches nothing."""
        bought = self.options.query("extra > 0")
        return sorted(set(bought.groupby("budget")["compute"].max()))

    def experiment(self, budget: float) -> pd.Series | None:
        """Return the cheapest experiment (in money, where that is known) that could change the decision and is worth it."""
        table = self.experiments
        good = table[
            (table["budget"] == budget) & (table["verdict"] == "worth it") & (table["p_change"] >= CHANGES)
        ]
        cheapest = good.sort_values(["cost", "extra", "gain"], ascending=[True, True, False])
        return None if good.empty else cheapest.iloc[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            "measure": self.measure,
            "unit": self.unit,
            "metric": {
                "name": self.metric.name,
                "kind": self.metric.kind,
                "split": self.metric.split,
                "scale": list(self.metric.scale),
            },
            "target": self.target,
            "worth": self.worth,
            "horizon": self.horizon,
            "transitions": self.transitions,
            "hazard": self.hazard,
            "options": records(self.options),
            "choices": records(self.choices),
            "targets": records(self.targets),
            "experiments": records(self.experiments),
        }


def budget(
    fit: Fit,
    at: Sequence[float] | None = None,
    *,
    spend: Sequence[float] | None = None,
    money: Sequence[float] | None = None,
    target: float | None = None,
    price: Prices | float | None = None,
    worth: float | None = None,
    names: Sequence[str] | None = None,
    transitions: str = "excluded",
    hazard: Hazard | None = None,
    experiments: bool = True,
    force: bool = False,
) -> Decision:
    """Compare what can be done with a budget: continue a run, start a new run of a recipe, or stop.

    Parameters
    ----------
    fit : Fit
    at, spend, money : sequence of float
        One of the three: compute that the run is to reach in all (options then cost different amounts), compute to
        spend from now on, or money to spend from now on.
    target : float, optional
        Value on the metric's scale.
    price : Prices or float, optional
        Money per unit of compute, by model if need be; default what the runs declare.
    worth : float, optional
        What .01 of the scale is worth, in money (in compute, where there is no price). Options are then compared
        by value less what they cost; left out, by value alone.
    names : sequence of str, optional
        Only these runs and recipes.
    transitions : {"excluded", "averaged"}
        As in `predict`. Averaged draws of different options are not joint.
    hazard : Hazard, optional
    experiments : bool
        Whether to work out what it is worth to run the leading options a little further first.
    force : bool
        Answer although diagnostics failed.

    Returns
    -------
    Decision

    Raises
    ------
    InputError
        If an argument is wrong.
    Withheld
        If the sampler's diagnostics failed and `force` is false.
    """
    measure, budgets = _asked({"at": at, "spend": spend, "money": money})
    worth = (
        None if worth is None else _number("what .01 of the scale is worth must be a positive amount", worth)
    )
    target = None if target is None else _number("target must be a number", target)
    if transitions not in TRANSITIONS:
        raise InputError("unknown transitions", found=repr(transitions), expected=" | ".join(TRANSITIONS))
    if hazard is not None and transitions == "excluded":
        raise InputError(
            "a hazard has no effect where transitions are excluded", fix="ask for transitions averaged"
        )
    expected = Hazard.given(hazard)
    metric = fit.runs.metric
    prices = _prices(fit, price)
    if measure == "money" and not prices.known:
        raise InputError("a budget in money needs a price per unit of compute", fix="add --price")
    if worth is not None and worth <= 0:
        raise InputError("what .01 of the scale is worth must be a positive amount", found=worth)
    if target is not None and not 0 <= metric.to_fraction(target) <= 1:
        raise InputError(
            "target outside the metric's scale",
            found=f"{target:g}",
            expected="{:g} to {:g}".format(*metric.scale),
        )
    if not force:
        fit.require_passed()
    choices = make_options(fit, prices, names=names, transitions=transitions, hazard=hazard)
    rows, chosen, tried = [], [], []
    for size in budgets:
        plan = _Plan(choices, measure, size, worth)
        own = _option_rows(plan, target, metric)
        rows += own
        chosen.append(_choice(size, own, abs(metric.scale[1] - metric.scale[0])) | {"passed": plan.passed})
        if experiments:
            leaders = [
                row["position"]
                for row in sorted(own, key=lambda row: -row["p_best"])
                if row["action"] != "stop"
            ]
            # One stream per budget: what is said of it does not depend on which others were asked for.
            rng = np.random.default_rng([fit.settings.seed, 7])
            tried += _experiment_rows(plan, leaders[:LEADERS], metric, rng)
    horizon = _horizon(choices, rows)
    options = pd.DataFrame(rows).drop(columns="position")
    return Decision(
        measure=measure,
        options=options.merge(_known_of(fit, choices), on="option", how="left"),
        choices=pd.DataFrame(chosen),
        targets=_target_table(choices, target, metric, horizon),
        experiments=pd.DataFrame(tried, columns=list(_EXPERIMENT)),
        metric=metric,
        unit=fit.runs.compute.unit,
        target=target,
        worth=worth,
        horizon=horizon,
        transitions=transitions,
        hazard=str(expected) if transitions == "averaged" else "",
    )


class _Plan:
    """Options that a budget allows, what each would use up, and its draws."""

    def __init__(self, options: Sequence[Option], measure: str, size: float, worth: float | None) -> None:
        self.measure, self.size, self.worth = measure, size, worth
        extras = {i: _extra(one, measure, size) for i, one in enumerate(options)}
        self.options = [one for i, one in enumerate(options) if extras[i] is not None]
        self.extra = np.array([extra for extra in extras.values() if extra is not None])
        self.passed = len(options) - len(self.options)
        if len(self.options) < 2:
            raise InputError(
                "every run has used that much already",
                found=f"{size:g}",
                fix="name a larger --at, or --spend",
            )
        reach = max(one.spent + extra for one, extra in zip(self.options, self.extra, strict=True))
        upto = max(one.curve.fitted_upto for one in options)
        if reach > MOST_BEYOND * upto:
            raise InputError(
                f"more than {MOST_BEYOND:,.0f} times the fitted compute, where nothing can be said",
                found=f"{reach:g}",
                expected=f"at most {MOST_BEYOND * upto:g}",
            )
        self.price = np.array([one.price for one in self.options])
        self.values = np.column_stack(
            [one.value(extra) for one, extra in zip(self.options, self.extra, strict=True)]
        )

    @property
    def utilities(self) -> Array:
        """Value less what is paid for it, shape (S, J), as fractions."""
        return self.values - self._worth_of(np.array([self._cost(j) for j in range(len(self.options))]))

    def later(self, tried: Sequence[int], share: float) -> Array:
        """The same after an experiment that gave `share` of its budget to each option tried, shape (S, J)."""
        options = range(len(self.options))
        others = np.array([sum(k != j for k in tried) for j in options])
        # Where a run is to reach some compute, the experiment comes on top; else it uses the budget up.
        left = np.ones(len(options)) if self.measure == "at" else 1 - share * others
        used = np.array([sum(share * self._cost(k) for k in tried if k != j) for j in options])
        values = np.column_stack([self.options[j].value(self.extra[j] * left[j]) for j in options])
        return values - self._worth_of(np.array([self._cost(j) for j in options]) * left + used)

    def _cost(self, j: int) -> float:
        """What an option uses up: money where there are prices, else compute."""
        return float(self.extra[j] * (1.0 if np.isnan(self.price[j]) else self.price[j]))

    def _worth_of(self, cost: Array) -> Array:
        """What a cost is worth as a fraction of the scale; nothing, where nobody said."""
        if self.worth is None:
            return np.zeros_like(cost)
        with np.errstate(over="ignore"):
            return np.minimum(_POINT * cost / self.worth, _DEAREST)


def _asked(given: dict[str, Sequence[float] | None]) -> tuple[str, list[float]]:
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        raise InputError(
            "give one of at, spend and money",
            found=" and ".join(named) or "none",
            fix="such as --at 16000 (compute that a run is to reach) or --spend 8000 (compute from now on)",
        )
    measure, value = next(iter(named.items()))
    sizes = [
        _number(f"a budget ({measure}) must be positive", size)
        for size in np.atleast_1d(np.asarray(value, dtype=object))
    ]
    if not sizes or min(sizes) <= 0:
        raise InputError(
            f"a budget ({measure}) must be positive",
            found=", ".join(f"{size:g}" for size in sizes) or "none",
            expected="finite numbers above 0",
        )
    return measure, list(dict.fromkeys(sizes))


def _number(problem: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise InputError(problem, found=value, expected="a finite number")
    return number


def _prices(fit: Fit, price: Prices | float | None) -> Prices:
    declared = fit.runs.compute.price_per_unit or None
    if price is None:
        return Prices(declared)
    if not isinstance(price, Prices):
        return Prices(_number("a price must be positive", price))
    models = set(fit.runs.table["model"].dropna())
    if unknown := sorted(set(price.by_model) - models):
        raise InputError(
            "a price for a model that no run declares",
            found=unknown[0],
            expected=" | ".join(sorted(models)) or "one price for all: the runs declare no model",
        )
    return Prices(declared, price.by_model) if price.default is None else price


def _extra(option: Option, measure: str, size: float) -> float | None:
    """Compute that an option uses from now on; None where the run is there already."""
    if option.action == "stop":
        return 0.0
    if measure == "at":
        return size - option.spent if size > option.spent * (1 + _ROUNDING) else None
    return size if measure == "spend" else size / option.price


def _option_rows(plan: _Plan, target: float | None, metric: Metric) -> list[dict[str, Any]]:
    span = metric.scale[1] - metric.scale[0]
    utilities = plan.utilities
    best = utilities.max(axis=1)
    leading = utilities >= best[:, None] - _ROUNDING  # of equals each has its share
    p_best = (leading / leading.sum(axis=1, keepdims=True)).mean(axis=0)
    stop = plan.values[:, -1]
    rows = []
    for j, option in enumerate(plan.options):
        value, extra = plan.values[:, j], float(plan.extra[j])
        reach = option.spent + extra
        quantiles = metric.from_fraction(np.quantile(value, QUANTILES))
        # Of an error rate the high fraction is the low value.
        quantiles = quantiles if span > 0 else quantiles[::-1]
        step = max(extra * _STEP, reach * _LEAST_STEP)
        more = option.value(extra + step) if extra else value
        rows.append(
            {
                "budget": plan.size,
                "option": option.label,
                "action": option.action,
                "name": option.name,
                "model": option.model,
                "compute": reach,
                "extra": extra,
                "cost": extra * option.price if extra else 0.0 if np.isfinite(option.price) else np.nan,
                "times_fitted": reach / option.curve.fitted_upto,
                "mean": float(metric.from_fraction(value.mean())),
                **{f"q{100 * q:02.0f}": float(x) for q, x in zip(QUANTILES, quantiles, strict=True)},
                **_gain(value - stop, span),
                "p_target": float(np.mean(value >= metric.to_fraction(target)))
                if target is not None
                else np.nan,
                "p_best": float(p_best[j]),
                "regret": float(np.mean(best - utilities[:, j])) * abs(span),
                "gain_per_unit": float((more - value).mean() * span / step) if extra else 0.0,
                "position": j,
            }
        )
    return rows


def _known_of(fit: Fit, options: Sequence[Option]) -> pd.DataFrame:
    """What must be said of each option besides its numbers."""
    levels = {"continue": "run", "stop": "run", "start": "new_run"}
    tables = {
        level: fit.parameters(level=level, force=True).query("parameter == 'ceiling'").set_index("name")
        for level in dict.fromkeys(levels[one.action] for one in options)
    }
    rows = []
    for one in options:
        level = levels[one.action]
        known = tables[level].loc[one.name]
        rows.append(
            {
                "option": one.label,
                "ceiling": str(known["verdict"]).partition(":")[0],
                "warning": known["warning"],
                "left_out": left_out(fit, level, one.name),
            }
        )
    return pd.DataFrame(rows)


def _gain(draws: Array, span: float) -> dict[str, float]:
    gains = draws * span
    return {"gain_mean": float(gains.mean())} | {
        f"gain_q{q:02d}": float(np.quantile(gains, q / 100)) for q in (5, 50, 95)
    }


def _choice(size: float, rows: Sequence[dict[str, Any]], span: float) -> dict[str, Any]:
    # Of options that lose the same, to stop: it costs nothing.
    first = min(rows, key=lambda row: (round(row["regret"] / span, 9), row["action"] != "stop"))
    second = max((row for row in rows if row is not first), key=lambda row: row["p_best"])
    decided = first["p_best"] >= LIKELY
    return {
        "budget": size,
        "option": first["option"],
        "p_best": first["p_best"],
        "regret": first["regret"],
        "second": second["option"],
        "p_second": second["p_best"],
        "verdict": "decided" if decided else "close" if first["regret"] < CLOSE * span else "not decided",
    }


_EXPERIMENT = (
    *("budget", "options", "share", "extra", "cost", "p_change", "gain", "gain_se", "effective", "verdict"),
)


def _experiment_rows(
    plan: _Plan, leaders: Sequence[int], metric: Metric, rng: np.random.Generator
) -> list[dict[str, Any]]:
    span = abs(metric.scale[1] - metric.scale[0])
    now = plan.utilities
    rows = []
    for count in (1, 2):
        for tried in combinations(leaders, count):
            for share in SHARES:
                looks_again = [
                    share * plan.extra[k] < LEAST_LOOK * plan.options[k].curve.fitted_upto for k in tried
                ]
                if share * count >= 1 or any(looks_again):
                    continue
                outcomes = []
                for k in tried:
                    one = plan.options[k]
                    truth = one.value(share * plan.extra[k])
                    outcomes.append(Outcome(truth, one.curve.evaluation_sd(truth[:, None], one.trials)[:, 0]))
                worth = worth_of_looking(outcomes, now, plan.later(tried, share), rng)
                better = worth.gain > max(2 * worth.gain_se, LEAST_GAIN)
                rows.append(
                    {
                        "budget": plan.size,
                        "options": " + ".join(plan.options[k].label for k in tried),
                        "share": share,
                        "extra": float(sum(share * plan.extra[k] for k in tried)),
                        "cost": float(sum(share * plan.extra[k] * plan.price[k] for k in tried)),
                        "p_change": worth.p_change,
                        "gain": worth.gain * span,
                        "gain_se": worth.gain_se * span,
                        "effective": worth.effective,
                        "verdict": "not computed"
                        if not worth.computed
                        else "worth it"
                        if better
                        else "not worth it",
                    }
                )
    return rows


def _horizon(options: Sequence[Option], rows: Sequence[dict[str, Any]]) -> float:
    """Ten times what any run has used: nothing was tested further out, unless a budget goes there."""
    return max(FAR * max(one.curve.fitted_upto for one in options), *(row["compute"] for row in rows))


def _target_table(
    options: Sequence[Option], target: float | None, metric: Metric, horizon: float
) -> pd.DataFrame:
    columns = ["option", "target", "p_now", "p_never", "q05", "q50", "q95", "extra_q50", "cost_q50"]
    if target is None:
        return pd.DataFrame(columns=columns)
    rows = []
    for option in options[:-1]:
        needed = compute_to(option, metric.to_fraction(target), horizon)
        reached = needed[np.isfinite(needed)]
        told = len(reached) > _FEWEST_REACHING * len(needed)
        low, middle, high = np.quantile(reached, (0.05, 0.5, 0.95)) if told else (np.nan,) * 3
        rows.append(
            {
                "option": option.label,
                "target": target,
                "p_now": float(np.mean(needed <= option.spent)) if option.spent else 0.0,
                "p_never": float(np.mean(~np.isfinite(needed))),
                **{"q05": float(low), "q50": float(middle), "q95": float(high)},
                "extra_q50": float(middle - option.spent),
                "cost_q50": float((middle - option.spent) * option.price),
            }
        )
    return pd.DataFrame(rows, columns=columns)


def compute_to(option: Option, level: float, horizon: float) -> Array:
    """Compute in all at which an option first reaches a level, shape (S,); inf where it does not by `horizon`.

    Parameters
    ----------
    option : Option
        What a run has used already counts: a level that it has reached is reached there. So is a level below the floor
        of a new run, at 0.
    level : float
        Pass rate, 0-1.
    horizon : float
        Compute, in the fit's unit.
    """
    start = option.spent or option.curve.fitted_upto / 1000
    grid = np.geomspace(start, horizon, _GRID)
    path = option.curve.curve(grid)
    there = path >= level
    first = there.argmax(axis=1)
    before = np.maximum(first - 1, 0)
    rows = np.arange(len(path))
    low, high = path[rows, before], path[rows, first]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(first > 0, (level - low) / (high - low), 1.0)
    log_grid = np.log(grid)
    needed = np.exp(log_grid[before] + share * (log_grid[first] - log_grid[before]))
    needed = np.where(there[:, 0], option.spent, needed)
    return np.where(there.any(axis=1), needed, np.inf)
