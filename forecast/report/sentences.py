"""What a speaker says: sentences made from the decision and from comparisons, each with number and probability."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forecast.outlook.budget import CHANGES, Decision
from forecast.outlook.comparison import SURE
from forecast.outlook.reliability import WARNING_SEPARATOR
from forecast.report.words import (
    KIND_NAMES,
    UNIT_NAMES,
    compute_text,
    interval_text,
    money_text,
    probability_text,
    value_text,
)
from forecast.runs.table import Metric


def budget_text(decision: Decision, size: float) -> str:
    """A budget in words, such as ``4,000 more GPU-hours``."""
    unit = UNIT_NAMES[decision.unit]
    if decision.measure == "at":
        return f"{compute_text(size)} {unit} in all"
    if decision.measure == "money":
        return f"{money_text(size)} in money"
    costs = decision.options.query("budget == @size and extra > 0")["cost"]
    one_price = costs.notna().all() and len(costs) > 0 and np.allclose(costs, costs.iloc[0])
    money = f" ({money_text(costs.iloc[0])} in money)" if one_price else ""
    return f"{compute_text(size)} more {unit}{money}"


def decision_sentences(decision: Decision) -> list[tuple[str, list[str]]]:
    """Say what each budget buys and what to choose.

    Parameters
    ----------
    decision : Decision

    Returns
    -------
    list of (headline, sentences)
        One per budget.
    """
    told: set[str] = set()
    parts = []
    for _, choice in decision.choices.iterrows():
        details = _details(decision, choice)
        # The compute that an option needs to the target does not depend on the budget: once is enough.
        if decision.target is not None and choice["option"] not in told:
            details += _compute_sentences(decision, choice["option"])
        told.add(choice["option"])
        if (decision.experiments["budget"] == choice["budget"]).any():
            details.append(_experiment_sentence(decision, choice["budget"]))
        parts.append((_headline(decision, choice), details))
    return parts


def _headline(decision: Decision, choice: pd.Series) -> str:
    what = f"With {budget_text(decision, choice['budget'])}"
    if decision.worth is not None:
        what += f", at {money_text(decision.worth)} per .01 of the scale"
    if "NOT RELIABLE" in _chosen(decision, choice)["warning"]:
        what = f"NOT RELIABLE. {what}"
    name, p = choice["option"], probability_text(choice["p_best"])
    if choice["verdict"] == "decided":
        return f"{what}: {name} (best with probability {p})."
    rival = f"{choice['second']} {probability_text(choice['p_second'])}"
    loss = value_text(choice["regret"], decision.metric)
    if choice["verdict"] == "close":
        return (
            f"{what}: {name} is as good as any (it loses {loss} on average against the best; best with probability {p}, "
            f"{rival})."
        )
    return (
        f"{what}: not decided. {name} loses least on average against the best, {loss} (best with probability {p}, "
        f"{rival})."
    )


def _details(decision: Decision, choice: pd.Series) -> list[str]:
    metric = decision.metric
    kind = KIND_NAMES[metric.kind]
    kind = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
    own = _chosen(decision, choice)
    interval = interval_text(own["q05"], own["q95"], metric)
    said = []
    if own["action"] == "stop":
        said.append(
            f"It keeps {kind} of {value_text(own['q50'], metric)} (90 % interval {interval}) and costs nothing."
        )
    else:
        priced = decision.measure == "at" and pd.notna(own["cost"])
        cost = f" ({money_text(own['cost'])} in money)" if priced else ""
        gain = interval_text(own["gain_q05"], own["gain_q95"], metric)
        said.append(
            f"It takes {compute_text(own['extra'])} more {UNIT_NAMES[decision.unit]}{cost} and comes to {kind} of "
            f"{value_text(own['q50'], metric)} (90 % interval {interval}): "
            f"{value_text(own['gain_q50'], metric, signed=True)} over stopping now (90 % interval {gain})."
        )
    if decision.target is not None:
        said.append(_target_sentence(decision, choice, own))
    if choice["passed"]:
        many = choice["passed"] > 1
        said.append(
            f"{choice['passed']} run{'s' * many} {'have' if many else 'has'} used as much already, and "
            f"{'are' if many else 'is'} not among the options."
        )
    if own["left_out"]:
        said.append(f"{own['left_out']}: what holds for the others need not hold for the next run.")
    if own["ceiling"] == "not identified" and own["action"] != "stop":
        said.append(
            "Its ceiling is not identified by these data: the further from them, the more these numbers are the prior's."
        )
    return said


def _chosen(decision: Decision, choice: pd.Series) -> pd.Series:
    options = decision.options
    return options[(options["budget"] == choice["budget"]) & (options["option"] == choice["option"])].iloc[0]


def _target_sentence(decision: Decision, choice: pd.Series, own: pd.Series) -> str:
    assert decision.target is not None
    target = value_text(decision.target, decision.metric)
    rows = decision.options[decision.options["budget"] == choice["budget"]]
    likeliest = rows.loc[rows["p_target"].idxmax()]
    said = f"It reaches {target} with probability {probability_text(own['p_target'])}"
    if likeliest["p_target"] > own["p_target"] + 0.01:
        said += f"; the likeliest to is {likeliest['option']}, {probability_text(likeliest['p_target'])}"
    return f"{said}."


def _compute_sentences(decision: Decision, option: str) -> list[str]:
    mine = decision.targets[decision.targets["option"] == option]
    if mine.empty:  # to stop
        return []
    row, unit = mine.iloc[0], UNIT_NAMES[decision.unit]
    target = value_text(row["target"], decision.metric)
    if row["p_now"] >= 0.995:
        return [f"{target} is reached already."]
    never = (
        f"Compute to {target}: not by {compute_text(decision.horizon)} {unit} with probability "
        f"{probability_text(row['p_never'])}"
    )
    if pd.isna(row["q50"]):
        return [f"{never}."]
    return [
        f"{never}; where it gets there, at {compute_text(row['q50'])} (90 % interval {compute_text(row['q05'])} to "
        f"{compute_text(row['q95'])})."
    ]


def _experiment_sentence(decision: Decision, size: float) -> str:
    best = decision.experiment(size)
    free = decision.measure == "at" and decision.worth is None
    on_top = ", what it costs on top of the budget not deducted" if free else ""
    if best is not None:
        cost = f" ({money_text(best['cost'])} in money)" if pd.notna(best["cost"]) else ""
        return (
            f"Look first: {best['options']}, with {compute_text(best['extra'])} {UNIT_NAMES[decision.unit]}{cost} together, "
            f"changes the choice with probability {probability_text(best['p_change'])} and gains "
            f"{value_text(best['gain'], decision.metric, decimals=1)} ± "
            f"{value_text(best['gain_se'], decision.metric, decimals=1)} on average{on_top}."
        )
    own = decision.experiments[decision.experiments["budget"] == size]
    unknown = int((own["verdict"] == "not computed").sum())
    rest = f" ({unknown} of {len(own)} could not be computed from these draws)" if unknown else ""
    return (
        f"Look first? None of {len(own)} experiments is both worth {'its trouble' if free else 'what it uses up'} and has "
        f"{CHANGES:.0%} or more to change the choice{rest}."
    ).replace("20%", "20 %")


def comparison_sentence(row: pd.Series, metric: Metric) -> str:
    """Say how the second of a pair differs from the first.

    Parameters
    ----------
    row : pandas.Series
        Of `forecast.outlook.comparison.compare`.
    metric : Metric
    """
    said = _difference(row, metric)
    if row["left_out"]:
        said += f" But {row['left_out'].replace(WARNING_SEPARATOR, '; ')}."
    return f"NOT RELIABLE: {said}" if row["warning"] else said


def _difference(row: pd.Series, metric: Metric) -> str:
    first, second, verdict = row["first"], row["second"], row["verdict"]
    low, middle, high = (row[f"difference_{q}"] for q in ("q05", "q50", "q95"))
    slow, speed, fast = (row[f"speed_{q}"] for q in ("q05", "q50", "q95"))
    within = f"within {row['margin']:g} of the scale with probability {probability_text(row['p_within'])}"
    if verdict in ("raises the ceiling", "lowers the ceiling"):
        p = row["p_higher"]
        if verdict == "lowers the ceiling":
            first, second, p = second, first, 1 - p
            low, middle, high = -high, -middle, -low
        return (
            f"{second} raises the ceiling over {first}: {value_text(middle, metric, signed=True)} "
            f"(90 % interval {interval_text(low, high, metric)}), probability {probability_text(p)}."
        )
    if verdict in ("only faster", "only slower"):
        p = row["p_faster"]
        if verdict == "only slower":
            first, second, p = second, first, 1 - p
            slow, speed, fast = 1 / fast, 1 / speed, 1 / slow
        return (
            f"{second} is only faster than {first}: ceilings {within}; {first} needs {speed:.2f} times its compute "
            f"(90 % interval {slow:.2f} to {fast:.2f}) for half of the gain, probability {probability_text(p)}."
        )
    by = f"{value_text(middle, metric, signed=True)} (90 % interval {interval_text(low, high, metric)})"
    times = (
        f"speed {speed:.2f} (90 % interval {slow:.2f} to {fast:.2f})"
        if np.isfinite(speed)
        else "speeds cannot be compared: one ends below where the other begins"
    )
    sure = max(row["p_faster"], 1 - row["p_faster"])
    if sure >= SURE:
        order = f"{second} is {'faster' if row['p_faster'] >= SURE else 'slower'}, probability {probability_text(sure)}"
        head = f"{second} against {first}: ceilings not decided, but {order}"
    else:
        head = f"{second} against {first}: not decided"
    better = "higher" if metric.scale[1] > metric.scale[0] else "better"
    return f"{head}. Ceiling {by}, {better} with probability {probability_text(row['p_higher'])}, {within}; {times}."


def choice_under_transitions(decision: Decision, averaged: Decision) -> list[str]:
    """Say what becomes of each choice when the curves may move a second time.

    Parameters
    ----------
    decision, averaged : Decision
        The same budgets, without and with transitions.
    """
    said = []
    for _, choice in decision.choices.iterrows():
        rows = averaged.options[averaged.options["budget"] == choice["budget"]]
        mine = rows[rows["option"] == choice["option"]].iloc[0]
        other = averaged.choices.set_index("budget").loc[choice["budget"]]
        same = other["option"] == choice["option"]
        now = (
            f"{choice['option']} still loses least"
            if same
            else f"{other['option']} would lose least instead of {choice['option']}"
        )
        text = (
            f"With {budget_text(decision, choice['budget'])} and transitions averaged (expected per decade of compute: "
            f"{averaged.hazard}): {now}; {choice['option']} comes to {value_text(mine['q50'], decision.metric)} "
            f"(90 % interval {interval_text(mine['q05'], mine['q95'], decision.metric)})"
        )
        if decision.target is not None:
            text += f" and reaches {value_text(decision.target, decision.metric)} with probability {probability_text(mine['p_target'])}"
        said.append(text + ".")
    return said
