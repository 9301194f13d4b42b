"""What the study of decisions found: reliability, Brier scores, verdicts, regrets and looks, as text and figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from studies.backtest_rows import bar, shown
from studies.decision_worlds import BANDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
TENTHS = tuple(np.round(np.arange(0, 1.01, 0.1), 1))
SEEN = (1.0, 2.0, 3.5, 6.0)
MARGIN = 0.02
"""Of the rule of thumb: least-squares ceilings further apart than this differ."""

CEILINGS = 0.25
"""Width of the range from which ceilings are drawn."""

RULES = {
    "regret": "rlforecast",
    "regret_least_squares": "least squares",
    "regret_leader": "current leader",
    "regret_leader_of_3": "leader, mean of last 3",
}
_PAIRS = {"pairs": "one run each", "together": "2 runs each, fitted together"}
_CHOICES = {"choices": "within a factor of 2", "spread": "within a factor of 6"}
_CEILING, _SPEED = ("raises the ceiling", "lowers the ceiling"), ("only faster", "only slower")


def mean_se(values: ArrayLike) -> tuple[float, float]:
    """Mean of independent values and its standard error; NaN where there are too few."""
    x = np.asarray(values, dtype=float)
    mean = float(x.mean()) if len(x) else float("nan")
    return mean, float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")


def mean_se_of_worlds(values: pd.Series, world: pd.Series) -> tuple[float, float]:
    """Mean over rows and its standard error, where rows of one world move together."""
    if values.empty:
        return float("nan"), float("nan")
    away = (values - values.mean()).groupby(world).sum()
    n, worlds = len(values), len(away)
    error = float(np.sqrt((away**2).sum() * worlds / (worlds - 1)) / n) if worlds > 1 else float("nan")
    return float(values.mean()), error


def reliability(p: pd.Series, happened: pd.Series, world: pd.Series, edges: Sequence[float]) -> pd.DataFrame:
    """Stated probabilities against frequencies, by bin.

    Parameters
    ----------
    p, happened, world : pandas.Series
        Stated probability, 0 or 1, and what the row belongs to.
    edges : sequence of float
        Of the bins, the last one closed on both sides.

    Returns
    -------
    pandas.DataFrame
        One row per bin that is not empty: ``low, high, n, stated, happened, se`` (of the difference, if what is stated
        were right: the binomial's, or that over worlds where this is larger) and ``z``.
    """
    at = np.clip(np.digitize(p, edges) - 1, 0, len(edges) - 2)
    lines = []
    for i in range(len(edges) - 1):
        own = at == i
        if not own.any():
            continue
        n = int(own.sum())
        off = (happened[own] - p[own]).groupby(world[own]).sum()
        together = float((off**2).sum()) if len(off) < n else 0.0
        error = float(np.sqrt(max(float((p[own] * (1 - p[own])).sum()), together))) / n
        stated, found = float(p[own].mean()), float(happened[own].mean())
        lines.append(
            {"low": edges[i], "high": edges[i + 1], "n": n, "stated": stated, "happened": found}
            | {"se": error, "z": (found - stated) / error if error else 0.0}
        )
    return pd.DataFrame(lines)


def pairs_of(rows: pd.DataFrame, part: str) -> pd.DataFrame:
    """Pairs that were compared, with the rule of thumb and the squared errors of all."""
    own = rows[(rows["part"] == part) & rows["p_higher"].notna()].copy()
    own["higher"] = (own["difference"] > 0).astype(float)
    own["rule"] = 0.5 + 0.5 * np.sign(own["least_squares"]) * (own["least_squares"].abs() > MARGIN)
    own["brier"] = (own["p_higher"] - own["higher"]) ** 2
    own["brier_rule"] = (own["rule"] - own["higher"]) ** 2
    shares = {}
    for band, ends in BANDS.items():
        # Two ceilings that are uniform on a range lie within x of each other with probability 1 - (1 - x / range)^2.
        low, high = (1 - (1 - min(end / CEILINGS, 1.0)) ** 2 for end in ends)
        shares[band] = high - low
    own["weight"] = own["band"].map(shares) / own["band"].map(own["band"].value_counts())
    return own


def direction(pairs: pd.DataFrame) -> pd.DataFrame:
    """Is the likelier direction right? As drawn, as if ceilings were independent, and with the drift so far counted."""
    likely = pairs["p_higher"] >= 0.5
    sure = pairs["p_higher"].where(likely, 1 - pairs["p_higher"])
    alike, pairs_weight = pd.Series(1.0, pairs.index), pairs["weight"]
    lines = []
    for truth in ("difference", "drifted"):
        higher = (pairs[truth] > 0).astype(float)
        right = higher.where(likely, 1 - higher)
        gain = (pairs["p_higher"] - higher) ** 2 - (pairs["rule"] - higher) ** 2
        for weight in (alike, pairs_weight):
            mean = {
                name: float(np.average(x, weights=weight))
                for name, x in (("stated", sure), ("right", right), ("gain", gain))
            }
            lines.append(
                {"truth": truth, "weighted": weight is pairs_weight}
                | mean
                | {
                    f"{name}_se": float(np.sqrt((weight**2 * (x - np.average(x, weights=weight)) ** 2).sum()))
                    / float(weight.sum())
                    for name, x in (("right", right - sure), ("gain", gain))
                }
            )
    return pd.DataFrame(lines)


def folded(pairs: pd.DataFrame) -> pd.DataFrame:
    """Reliability of the likelier direction."""
    p, likely = pairs["p_higher"], pairs["p_higher"] >= 0.5
    sure = p.where(likely, 1 - p)
    right = pairs["higher"].where(likely, 1 - pairs["higher"])
    return reliability(sure, right, pairs["world"], FOLDED)


def verdicts(pairs: pd.DataFrame) -> pd.DataFrame:
    """How often verdicts are right, by how much of the slower run is seen; the last line is all."""
    seen = np.clip(np.digitize(pairs["seen"], SEEN) - 1, 0, len(SEEN) - 2)
    groups = [(f"{SEEN[i]:g}-{SEEN[i + 1]:g}", pairs[seen == i]) for i in range(len(SEEN) - 1)]
    lines: list[dict[str, Any]] = []
    for label, own in [*groups, ("all", pairs)]:
        line: dict[str, Any] = {"seen": label, "pairs": len(own)}
        up = np.where(own["verdict"] == _CEILING[0], 1, -1)
        fast = np.where(own["verdict"] == _SPEED[0], 1, -1)
        for name, said, right in (
            ("ceiling", own["verdict"].isin(_CEILING), up * own["difference"] > 0),
            (
                "speed",
                own["verdict"].isin(_SPEED),
                (fast * (own["speed"] - 1) > 0) & (own["difference"].abs() <= MARGIN),
            ),
        ):
            line |= {name: int(said.sum()), f"{name}_right": int((said & right).sum())}
        lines.append(line | {"undecided": float((own["verdict"] == "not decided").mean())})
    return pd.DataFrame(lines)


def targets_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Targets with the squared errors of both forecasts."""
    own = rows[rows["kind"] == "target"].copy()
    own["brier"] = (own["p"] - own["happened"]) ** 2
    own["brier_rule"] = (own["least_squares"] - own["happened"]) ** 2
    return own


def regrets(choices: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of world, budget (NaN: all) and rule: mean regret, and ours less that of the rule, with s.e."""
    groups = [(part, times, own) for (part, times), own in choices.groupby(["part", "times"])]
    groups += [(part, np.nan, own) for part, own in choices.groupby("part")]
    lines = []
    for part, times, own in [*groups, ("all", np.nan, choices)]:
        for column, label in RULES.items():
            mean, error = mean_se_of_worlds(own[column], own["world"])
            less, less_se = mean_se_of_worlds(own["regret"] - own[column], own["world"])
            lines.append(
                {"part": part, "times": times, "rule": label, "regret": mean, "se": error}
                | {"less": less, "less_se": less_se}
            )
    return pd.DataFrame(lines)


def looks_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Experiments that were recommended and followed."""
    return rows[(rows["kind"] == "look") & rows["gain"].notna()]


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Give worlds of different parts different names."""
    return rows.assign(world=rows["part"] + "/" + rows["world"].astype(str))


def markdown(rows: pd.DataFrame) -> str:
    """Tables, what was asked, and notes."""
    rows = named(rows)
    parts = {part: pairs_of(rows, part) for part in _PAIRS}
    targets = targets_of(rows)
    choices, options = rows[rows["kind"] == "choice"], rows[rows["kind"] == "option"]
    lines = [*_pair_lines(rows, parts), *_target_lines(targets), *_choice_lines(choices, options)]
    lines += [*_look_lines(rows), "Asked:", "", *_asked(parts, targets, choices, options, looks_of(rows))]
    return "\n".join([*lines, "", NOTES])


def _pair_lines(rows: pd.DataFrame, parts: dict[str, pd.DataFrame]) -> list[str]:
    lines = [
        "**Which ceiling is higher**: Brier score (s.e.) of the stated probability and of two rules: certain where "
        "least-squares ceilings differ by more than .02, else one half; always one half.",
        "",
        "| pairs | compared (not) | rlforecast | least squares +-.02 | rlforecast less that | one half | rule certain: right |",
        "|---" * 7 + "|",
    ]
    for part, own in parts.items():
        certain = own[own["rule"] != 0.5]
        right = int((certain["brier_rule"] == 0).sum())
        lines.append(
            f"| {_PAIRS[part]} | {len(own)} ({(rows['part'] == part).sum() - len(own)}) | {_pm(own['brier'])} "
            f"| {_pm(own['brier_rule'])} | {_pm(own['brier'] - own['brier_rule'], '+')} | 0.250 | {right} of {len(certain)} |"
        )
    lines += [
        "",
        "How often the likelier direction is right, by its probability (s.e. if it were right):",
        "",
    ]
    for part, own in parts.items():
        lines += [f"{_PAIRS[part].capitalize()}:", "", *_reliability_lines(folded(own)), ""]
    lines += [
        "Where the difference comes from: the same against ceilings that count the drift so far, and with pairs weighted as "
        "if both ceilings were drawn independently.",
        "",
        "| pairs | drift so far counted | weighted | mean stated | right (s.e. of the difference) | Brier less least squares +-.02 (s.e.) |",
        "|---" * 6 + "|",
    ]
    for part, own in parts.items():
        for _, row in direction(own).iterrows():
            lines.append(
                f"| {_PAIRS[part]} | {'yes' if row['truth'] == 'drifted' else 'no'} | {'yes' if row['weighted'] else 'no'} "
                f"| {row['stated']:.3f} | {row['right']:.3f} ({row['right_se']:.3f}) | {row['gain']:+.3f} ({row['gain_se']:.3f}) |"
            )
    lines += [
        "",
        "Verdicts, by what is seen / midpoint of the slower recipe. Right: the ceiling lies on that side; ceilings within "
        ".02 and the speed on that side.",
        "",
        "| pairs | seen / midpoint | number | raises or lowers the ceiling: right | only faster or slower: right | not decided |",
        "|---" * 6 + "|",
    ]
    for part, own in parts.items():
        for _, row in verdicts(own).iterrows():
            lines.append(
                f"| {_PAIRS[part]} | {row['seen']} | {row['pairs']} | {row['ceiling_right']} of {row['ceiling']} "
                f"| {row['speed_right']} of {row['speed']} | {shown(row['undecided'], '.2f')} |"
            )
    return [*lines, ""]


def _target_lines(targets: pd.DataFrame) -> list[str]:
    lines = [
        "**Is the target reached**: Brier score (s.e. over worlds) of the stated probability, of least squares (1 where its "
        "forecast reaches the target, else 0) and of one half.",
        "",
        "| compute / seen | targets (worlds) | reached | rlforecast | least squares | rlforecast less that | one half |",
        "|---" * 7 + "|",
    ]
    for times, own in [*targets.groupby("times"), ("all", targets)]:
        scores = [
            _pm_worlds(own[name], own["world"])
            if isinstance(name, str)
            else _pm_worlds(name, own["world"], "+")
            for name in ("brier", "brier_rule", own["brier"] - own["brier_rule"])
        ]
        label = times if isinstance(times, str) else f"{times:g}"
        lines.append(
            f"| {label} | {len(own)} ({own['world'].nunique()}) | {own['happened'].mean():.2f} | {' | '.join(scores)} | 0.250 |"
        )
    for what, column in (
        ("How often it is reached, by its probability", "happened"),
        (
            "The same if runs also drift beyond what is seen as forecasts allow for, upward more often than not",
            "happened_drifting",
        ),
    ):
        found = reliability(targets["p"], targets[column], targets["world"], TENTHS)
        less = _pm_worlds(targets[column] - targets["p"], targets["world"], "+")
        lines += [
            "",
            f"{what} (all together: {less} against what is stated):",
            "",
            *_reliability_lines(found),
        ]
    return [*lines, ""]


def _choice_lines(choices: pd.DataFrame, options: pd.DataFrame) -> list[str]:
    lines = [
        "**Which run to continue**: mean regret (s.e. over worlds), that is the true value of the best option at the end of "
        "the budget less that of the one chosen, and ours less that of each rule.",
        "",
        f"| speeds | compute at the end / seen | {' | '.join(RULES.values())} | less least squares | less leader | less leader of 3 |",
        "|---" * 9 + "|",
    ]
    table = regrets(choices)
    for _, own in table.groupby(["part", "times"], dropna=False, sort=False):
        by = own.set_index("rule")
        part, times = own["part"].iloc[0], own["times"].iloc[0]
        cells = [f"{row['regret']:.4f} ({row['se']:.4f})" for _, row in by.iterrows()]
        cells += [f"{row['less']:+.4f} ({row['less_se']:.4f})" for _, row in by.iloc[1:].iterrows()]
        when = "all" if np.isnan(times) else f"{times:g}"
        lines.append(f"| {_CHOICES.get(part, 'all')} | {when} | {' | '.join(cells)} |")
    lines += [
        "",
        "What is stated of the choice, and what happens:",
        "",
        "| | worlds | P(best) | best | stated regret | regret | chose to stop |",
        "|---" * 7 + "|",
    ]
    groups = [(f"compute {times:g} times what is seen", own) for times, own in choices.groupby("times")]
    groups += [(f"verdict: {verdict}", own) for verdict, own in choices.groupby("verdict")]
    for label, own in groups:
        world = own["world"]
        lines.append(
            f"| {label} | {len(own)} | {own['p'].mean():.3f} | {_pm_worlds(own['happened'], world)} "
            f"| {own['stated'].mean():.4f} | {_pm_worlds(own['regret'], world, form='.4f')} | {own['stops'].mean():.2f} |"
        )
    found = reliability(options["p"], options["happened"], options["world"], TENTHS)
    return [*lines, "", "How often an option is the best, by P(best):", "", *_reliability_lines(found), ""]


def _look_lines(rows: pd.DataFrame) -> list[str]:
    asked, looks = rows[rows["kind"] == "look"], looks_of(rows)
    if looks.empty:
        return []
    lines = [
        f"**Looking first**: of {len(asked)} choices at 3 times what is seen that were not decided, an experiment was "
        f"recommended in {asked['stated'].notna().sum()} and followed in {len(looks)}: one evaluation of each run tried was "
        "simulated, all was fitted again, and the new best option taken.",
        "",
        "| gain over choosing at once | mean (s.e.) |",
        "|---|---|",
        f"| stated | {_pm(looks['stated'], '+', '.4f')} |",
        f"| expected after the new fit | {_pm(looks['believed'], '+', '.4f')} |",
        f"| true | {_pm(looks['gain'], '+', '.4f')} |",
        f"| true less stated | {_pm(looks['gain'] - looks['stated'], '+', '.4f')} |",
        f"| expected after less stated | {_pm(looks['believed'] - looks['stated'], '+', '.4f')} |",
        "",
        f"Another choice afterwards: stated {looks['p_change'].mean():.2f}, happened {_pm(looks['changed'])}.",
        "",
    ]
    return lines


def _asked(
    parts: dict[str, pd.DataFrame],
    targets: pd.DataFrame,
    choices: pd.DataFrame,
    options: pd.DataFrame,
    looks: pd.DataFrame,
) -> list[str]:
    """Scores are compared by paired differences in standard errors: two below zero is better."""
    lines = []
    for part, own in parts.items():
        name = _PAIRS[part]
        lines.append(bar(f"P(ceiling higher), {name}: largest |z| of a bin", _worst(folded(own)), most=3))
        difference = own["brier"] - own["brier_rule"]
        lines.append(
            bar(f"Brier score less least squares +-.02, {name}: z", _z(mean_se(difference)), most=-2)
        )
    found = reliability(targets["p"], targets["happened"], targets["world"], TENTHS)
    drifting = reliability(targets["p"], targets["happened_drifting"], targets["world"], TENTHS)
    difference = targets["brier"] - targets["brier_rule"]
    lines += [
        bar("P(target): largest |z| of a bin", _worst(found), most=3),
        bar("P(target), runs drifting as allowed for: largest |z| of a bin", _worst(drifting), most=3),
        bar(
            "Brier score less least squares: z", _z(mean_se_of_worlds(difference, targets["world"])), most=-2
        ),
    ]
    found = reliability(options["p"], options["happened"], options["world"], TENTHS)
    lines.append(bar("P(best): largest |z| of a bin", _worst(found), most=3))
    table = regrets(choices)
    for _, row in table[table["times"].isna() & (table["rule"] != RULES["regret"])].iterrows():
        where = f", speeds {_CHOICES[row['part']]}" if row["part"] in _CHOICES else ""
        lines.append(bar(f"regret less {row['rule']}{where}: z", _z((row["less"], row["less_se"])), most=-2))
    if len(looks):
        z = _z(mean_se(looks["gain"] - looks["stated"]))
        lines.append(bar("true gain of looking less stated: |z|", abs(z), most=2))
    return lines


def _worst(table: pd.DataFrame) -> float:
    return float(table["z"].abs().max())


def _z(mean_and_error: tuple[float, float]) -> float:
    mean, error = mean_and_error
    return mean / error if error else float("nan")


def _pm(values: ArrayLike, sign: str = "", form: str = ".3f") -> str:
    mean, error = mean_se(values)
    return f"{mean:{sign}{form}} ({error:{form}})"


def _pm_worlds(values: pd.Series, world: pd.Series, sign: str = "", form: str = ".3f") -> str:
    mean, error = mean_se_of_worlds(values, world)
    return f"{mean:{sign}{form}} ({error:{form}})"


def _reliability_lines(table: pd.DataFrame) -> list[str]:
    lines = ["| stated | number | mean stated | happened (s.e.) | z |", "|---" * 5 + "|"]
    for _, row in table.iterrows():
        lines.append(
            f"| {row['low']:.2f}-{row['high']:.2f} | {row['n']:.0f} | {row['stated']:.3f} "
            f"| {row['happened']:.3f} ({row['se']:.3f}) | {row['z']:+.1f} |"
        )
    return lines


def figure(rows: pd.DataFrame) -> Figure:
    """Reliability diagram, Brier scores, and regret by budget and rule."""
    from matplotlib.figure import Figure

    rows = named(rows)
    parts = {part: pairs_of(rows, part) for part in _PAIRS}
    targets, options = targets_of(rows), rows[rows["kind"] == "option"]
    drawn = Figure(figsize=(14, 4.6), layout="constrained")
    diagram, brier, bars = drawn.subplots(1, 3, width_ratios=[1, 0.9, 1.3])
    diagram.plot([0, 1], [0, 1], color="#999999", lw=1, ls=":")
    for table, label, colour, marker in (
        (folded(parts["pairs"]), "P(ceiling higher), likelier side", "#000000", "o"),
        (
            reliability(targets["p"], targets["happened"], targets["world"], TENTHS),
            "P(target)",
            "#555555",
            "s",
        ),
        (reliability(options["p"], options["happened"], options["world"], TENTHS), "P(best)", "#999999", "^"),
    ):
        diagram.errorbar(
            table["stated"],
            table["happened"],
            yerr=2 * table["se"],
            fmt=marker,
            color=colour,
            mfc="#ffffff" if marker == "s" else colour,
            ms=6,
            lw=1,
            capsize=2,
            label=label,
        )
    diagram.set_xlabel("stated probability")
    diagram.set_ylabel("share that happened (bars: 2 s.e.)")
    diagram.set_xlim(-0.03, 1.03)
    diagram.set_ylim(-0.05, 1.08)
    diagram.legend(frameon=False, fontsize=8, loc="upper left")
    diagram.set_title("Reliability", loc="left")

    groups = [("higher\none run", parts["pairs"]), ("higher\ntogether", parts["together"])]
    groups += [(f"target\n{times:g} x", own) for times, own in targets.groupby("times")]
    for i, (column, label, colour, hatch) in enumerate(
        (("brier", "rlforecast", "#222222", ""), ("brier_rule", "least squares", "#ffffff", "///"))
    ):
        found = [mean_se_of_worlds(own[column], own["world"]) for _, own in groups]
        _bars(brier, found, i, 2, label, colour, hatch)
    brier.axhline(0.25, color="#000000", lw=1, ls=":")
    brier.annotate("one half", (-0.45, 0.252), fontsize=8, va="bottom")
    brier.set_xticks(range(len(groups)), [label for label, _ in groups], fontsize=8)
    brier.set_ylabel("Brier score (bars: 2 s.e.)")
    brier.set_ylim(0, 1.3 * max(0.25, *brier.get_ylim()))
    brier.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    brier.set_title("Lower is better", loc="left")

    table = regrets(rows[rows["kind"] == "choice"]).dropna(subset="times").set_index(["part", "times"])
    places = sorted(set(table.index))
    for i, (label, colour, hatch) in enumerate(
        zip(RULES.values(), ("#222222", "#ffffff", "#bbbbbb", "#ffffff"), ("", "///", "", "..."), strict=True)
    ):
        own = table[table["rule"] == label].loc[places]
        _bars(bars, list(zip(own["regret"], own["se"], strict=True)), i, len(RULES), label, colour, hatch)
    kinds = {"choices": "alike", "spread": "apart"}
    bars.set_xticks(range(len(places)), [f"{times:g} x\n{kinds[part]}" for part, times in places], fontsize=8)
    bars.set_xlabel("compute at the end of the budget / seen; speeds alike or apart")
    bars.set_ylim(0, 1.5 * float((table["regret"] + 2 * table["se"]).max()))
    bars.set_ylabel("mean regret, pass rate (bars: 2 s.e.)")
    bars.legend(frameon=False, fontsize=8, loc="upper left")
    bars.set_title("What choices lose", loc="left")
    for axes in (diagram, brier, bars):
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _bars(
    axes: Any, found: Sequence[tuple[float, float]], i: int, of: int, label: str, colour: str, hatch: str
) -> None:
    at = np.arange(len(found)) + (i - (of - 1) / 2) * 0.8 / of
    means, errors = (np.array([pair[j] for pair in found]) for j in (0, 1))
    axes.bar(at, means, 0.8 / of, color=colour, edgecolor="#000000", hatch=hatch, lw=0.8, label=label)
    axes.errorbar(at, means, yerr=2 * errors, fmt="none", color="#777777", lw=1.2, capsize=2)


NOTES = """\
- Worlds: sigmoids with ceilings of .5-.75 from one checkpoint, exponents independent, correlated noise (sd about .006), and
  a slow drift past the midpoint (mean 0, sd .005 per e-fold) that forecasts know nothing of. Midpoints are independent:
  what is seen / midpoint is log-uniform over a factor of 2 that starts at 1-3, or over 1-6 ("within a factor of 6").
- Pairs: a third of the ceilings lies within .02, a third .02-.06 apart, a third further; the prior of the forecast is that
  of independent ceilings, and wider than .5-.75. True are the ceilings of the sigmoids, without the drift (with it, where
  it says so); of 2 runs each, those of the recipes.
- Targets lie around the mean of both forecasts (sd .03). Drawn around the truth they would carry news of it, and no
  probability that leaves them out could be calibrated. Forecasts expect runs to creep upward beyond what is seen (a third
  of an sd of .01 per e-fold), as real ones do; these worlds do not, unless it says so.
- Choices: three to five runs, equal spending; to stop, and keep the best run, is an option too. The rules always continue.
  Rows of one world move together: standard errors are over worlds.
- Looking first: the gain is stated for one evaluation of each run tried, which is what the simulation gives. The new fit
  takes it in by its own model, which takes all drift up to that evaluation for a part of the sigmoid.
"""
