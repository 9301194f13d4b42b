"""What the rows of the transition study come to: tables, bars, figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from studies.backtest_rows import bar

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHARES = (0.0, 0.1, 0.2, 0.4)
MIXED, AT = 0.2, 4.0
"""Share of runs with a move and times the fitted compute that the bars are about."""

STATISTIC = "p_onset"
"""What the bars on detection are about: the one of the flags' statistics that knows when a move begins."""

KINDS = ("rise", "collapse")
DONE = ("0.005", "0.1", "0.3")
FALSE_ALARMS = 0.05
_NAMES = {
    "log_bf": "log Bayes factor",
    "p_onset": "P(begun)",
    "cusum": "CUSUM",
    "strata": "prompt classes",
    "either": "P(begun) or prompt classes",
}
_LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)


def auc(positive: ArrayLike, negative: ArrayLike) -> tuple[float, float]:
    """Area under the ROC curve and its standard error (Hanley and McNeil 1982, doi:10.1148/radiology.143.1.7063747)."""
    p, n = np.asarray(positive, dtype=float), np.asarray(negative, dtype=float)
    area = float(np.mean((p[:, None] > n) + 0.5 * (p[:, None] == n)))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (len(p) - 1) * (q1 - area**2) + (len(n) - 1) * (q2 - area**2)
    return area, float(np.sqrt(max(variance, 0.0) / (len(p) * len(n))))


def threshold(null: ArrayLike, share: float = FALSE_ALARMS) -> float:
    """Value that at most `share` of the null's exceed."""
    values = np.sort(np.asarray(null, dtype=float))
    return float(values[len(values) - 1 - int(np.floor(share * len(values)))])


def bands(rows: pd.DataFrame) -> pd.DataFrame:
    """Coverage, CRPS and width by forecast, distance and share of runs with a move; the two kinds are reweighted."""
    import pandas as pd

    own = rows[rows["part"] == "bands"]
    lines: list[dict[str, Any]] = []
    for forecast in own["forecast"].unique():
        for times in own["times"].unique():
            at = own[(own["forecast"] == forecast) & (own["times"] == times)]
            still, moved = (at[at["cell"] == cell] for cell in ("smooth", "move"))
            for share in SHARES:
                weights = {"still": 1 - share, "moved": share}
                parts = {"still": still, "moved": moved}
                line: dict[str, Any] = {"forecast": forecast, "times": times, "share": share}
                for score in ("inside", "crps"):
                    line[score] = sum(weights[name] * part[score].mean() for name, part in parts.items())
                    line[f"{score}_se"] = np.sqrt(
                        sum((weights[name] * part[score].sem()) ** 2 for name, part in parts.items())
                    )
                lines.append(
                    line
                    | {
                        "inside_smooth": still["inside"].mean(),
                        "inside_moved": moved["inside"].mean(),
                        "inside_slow": at[at["cell"] == "slow"]["inside"].mean(),
                        "median_width_smooth": still["width"].median(),
                    }
                )
    table = pd.DataFrame(lines)
    single = table[table["forecast"] == "sigmoid"].set_index(["times", "share"])["crps"]
    table["crps_ratio"] = table["crps"] / [
        single[key] for key in zip(table["times"], table["share"], strict=True)
    ]
    return table


def scores(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per statistic, kind and share of the move made: AUC, detection at 5 % false alarms, the same on slow noise."""
    import pandas as pd

    own = rows[rows["part"] == "flags"]
    lines = []
    for kind in KINDS:
        for name in ("log_bf", "p_onset", "cusum", *(["strata", "either"] if kind == "rise" else [])):
            value = _statistic(own, kind, name)
            null, slow = value[own["cell"] == "smooth"], value[own["cell"] == "slow"]
            level = threshold(null)
            for done in DONE:
                moved = value[own["cell"] == f"{kind} {done}"]
                area, error = auc(moved, null)
                found = float((moved > level).mean())
                lines.append(
                    {
                        "kind": kind,
                        "statistic": name,
                        "done": float(done),
                        "worlds": len(moved),
                        "auc": area,
                        "auc_se": error,
                        "detected": found,
                        "detected_se": float(np.sqrt(found * (1 - found) / len(moved))),
                        "slow_false_alarms": float((slow > level).mean()),
                    }
                )
    return pd.DataFrame(lines)


def _statistic(own: pd.DataFrame, kind: str, name: str) -> pd.Series:
    if name in ("log_bf", "p_onset"):
        return own[f"{name}_{kind}"].astype(float)
    if name == "cusum":
        return own["cusum"].astype(float) * (1 if kind == "rise" else -1)
    strata = own["strata"].astype(float)
    if name == "strata":
        return strata
    # Each on the scale of its null: the larger of two ranks, so that neither drowns the other.
    null = own["cell"] == "smooth"
    ranks = [
        np.searchsorted(np.sort(values[null]), values, side="left") / null.sum()
        for values in (own["p_onset_rise"].astype(float), strata)
    ]
    # Ranks end at 1: what lies beyond every smooth run is ordered by how far.
    return strata * 0 + np.maximum(*ranks) + 1e-3 * (own["p_onset_rise"].astype(float) + strata)


def states_at_end(rows: pd.DataFrame) -> pd.DataFrame:
    """Share of runs at least in each state, by the evidence of the last evaluation alone."""
    import pandas as pd

    own = rows[rows["part"] == "flags"]
    lines = []
    for cell, group in own.groupby("cell", sort=False):
        curve = [group[f"state_{kind}"] for kind in KINDS]
        lines.append(
            {
                "cell": cell,
                "worlds": len(group),
                "watch": float(
                    np.mean([(one != "prior_only").to_numpy() for one in curve], axis=0).astype(bool).mean()
                ),
                "alarm": float(np.any([(one == "alarm").to_numpy() for one in curve], axis=0).mean()),
                "strata_watch": float((group["strata_state"] != "prior_only").mean()),
                "strata_alarm": float((group["strata_state"] == "alarm").mean()),
            }
        )
    return pd.DataFrame(lines)


def watched(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per watched run: where its states were first reached, and how far the move was."""
    import pandas as pd

    own = rows[rows["part"] == "watched"]
    lines = []
    for (cell, world), run in own.groupby(["cell", "world"], sort=False):
        line: dict[str, Any] = {"cell": cell, "world": world, "tenth": float(run["tenth"].iloc[0])}
        for state, at_least in (("watch", ("watch", "alarm")), ("alarm", ("alarm",))):
            reached = run[np.any([run[f"state_{kind}"].isin(at_least) for kind in KINDS], axis=0)]
            line[state] = float(reached["compute"].min()) if len(reached) else np.nan
        for level in _LEVELS:
            line[f"over_{level:g}"] = _first_over(run, level)
        line["unguarded"] = float((run[[f"log_bf_{kind}" for kind in KINDS]].max(axis=1) > 3).any())
        lines.append(line)
    return pd.DataFrame(lines)


def _first_over(run: pd.DataFrame, level: float) -> float:
    """Compute at which an alarm at this log Bayes factor, with its rules, would first have come."""
    over = run["log_bf_guarded_rise"] > level
    before = run["log_bf_collapse"].shift() > min(level, 1.0)
    over |= (run["log_bf_guarded_collapse"] > level) & before
    return float(run["compute"][over].min()) if over.any() else np.nan


def markdown(rows: pd.DataFrame) -> str:
    """Tables, what was asked for, and notes."""
    band, score, runs = bands(rows), scores(rows), watched(rows)
    main = band[(band["share"] == MIXED) & (band["times"] == AT)].set_index("forecast")
    lines = [
        f"**Bands at {AT:g} times the fitted compute**, {MIXED:.0%} of runs with a move within a quarter to four times it "
        "(s.e. in brackets); hazard: moves per decade and kind.",
        "",
        "| forecast | within 95 % | smooth runs | moved runs | slow noise | CRPS | / sigmoid | median 95 % width, smooth runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in main.iterrows():
        lines.append(
            f"| {_forecast(str(name))} | {row['inside']:.3f} ({row['inside_se']:.3f}) | {row['inside_smooth']:.2f} "
            f"| {row['inside_moved']:.2f} | {row['inside_slow']:.2f} | {row['crps']:.4f} ({row['crps_se']:.4f}) "
            f"| {row['crps_ratio']:.2f} | {row['median_width_smooth']:.3f} |"
        )
    lines += [
        "",
        "Share within 95 % / CRPS relative to the sigmoid / median width on smooth runs, by distance and share of moves:",
        "",
    ]
    columns = [(times, share) for times in sorted(band["times"].unique()) for share in SHARES]
    names = list(main.index)
    lines += [
        f"| times fitted | share of moves | {' | '.join(_forecast(name) for name in names)} |",
        "|---" * (len(names) + 2) + "|",
    ]
    keyed = {(row["forecast"], row["times"], row["share"]): row for row in band.to_dict("records")}
    for times, share in columns:
        cells = [keyed[name, times, share] for name in names]
        shown = [f"{c['inside']:.2f} / {c['crps_ratio']:.2f} / {c['median_width_smooth']:.3f}" for c in cells]
        lines.append(f"| {times:g} | {share:.0%} | {' | '.join(shown)} |")
    lines += [
        "",
        f"**Statistics at the last evaluation**: AUC against smooth runs (s.e.), share detected at {FALSE_ALARMS:.0%} "
        "false alarms (s.e.); false alarms on slow noise at that threshold.",
        "",
        "| move | statistic | not begun: AUC | detected | 10 % made: AUC | detected | 30 % made: AUC | detected | slow noise |",
        "|---" * 9 + "|",
    ]
    for (kind, name), group in score.groupby(["kind", "statistic"], sort=False):
        shown = [
            f"{row['auc']:.2f} ({row['auc_se']:.2f}) | {row['detected']:.2f} ({row['detected_se']:.2f})"
            for _, row in group.iterrows()
        ]
        lines.append(
            f"| {kind} | {_NAMES[str(name)]} | {' | '.join(shown)} | {group['slow_false_alarms'].iloc[0]:.2f} |"
        )
    lines += ["", "**States by the last evaluation alone** (share of runs at least in that state):", ""]
    lines += ["| runs | worlds | watch | alarm | prompt classes: watch | alarm |", "|---" * 6 + "|"]
    for _, row in states_at_end(rows).iterrows():
        lines.append(
            f"| {_cell(row['cell'])} | {row['worlds']} | {row['watch']:.2f} | {row['alarm']:.2f} "
            f"| {row['strata_watch']:.2f} | {row['strata_alarm']:.2f} |"
        )
    lines += ["", *_watched_lines(runs), "", "Asked:", "", *_bars(main, score, runs), "", NOTES]
    return "\n".join(lines)


def _watched_lines(runs: pd.DataFrame) -> list[str]:
    lines = [
        "**Watched at every evaluation**: share of runs that ever reached a state (s.e.); of runs with a move, share "
        "alarmed by their end, alarmed before a tenth of it was made, and compute at the alarm / compute at a tenth (median, "
        "90 % range).",
        "",
        "| runs | worlds | watch | alarm | alarm too early | delay | log Bayes factor over 3 ever, without the two rules |",
        "|---" * 7 + "|",
    ]
    for cell, group in runs.groupby("cell", sort=False):
        alarm = group["alarm"].notna()
        delay = (group["alarm"] / group["tenth"]).dropna()
        early, shown = "-", "-"
        if len(delay):
            early = f"{(delay < 1).sum() / len(group):.2f}"
            low, middle, high = np.quantile(delay, (0.05, 0.5, 0.95))
            shown = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        lines.append(
            f"| {_cell(str(cell))} | {len(group)} | {group['watch'].notna().mean():.2f} "
            f"| {alarm.mean():.3f} ({_share_se(alarm.mean(), len(group)):.3f}) | {early} | {shown} | {group['unguarded'].mean():.2f} |"
        )
    lines += [
        "",
        "Delay against false alarms, by the log Bayes factor at which an alarm is given:",
        "",
        "| threshold | alarms on smooth runs | on slow noise | rises found | delay | collapses found | delay |",
        "|---" * 7 + "|",
    ]
    for level in _LEVELS:
        over = runs[f"over_{level:g}"]
        cells = [f"{over[runs['cell'] == cell].notna().mean():.3f}" for cell in ("smooth", "slow")]
        for kind in KINDS:
            own = runs["cell"] == kind
            delay = (over[own] / runs["tenth"][own]).dropna()
            cells += [f"{over[own].notna().mean():.2f}", f"{delay.median():.2f}" if len(delay) else "-"]
        lines.append(f"| {level:g} | {' | '.join(cells)} |")
    return lines


def _bars(main: pd.DataFrame, score: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    default = main.to_dict("index")["0.05"]
    found = {
        (row["kind"], row["statistic"], row["done"]): float(row["detected"])
        for row in score.to_dict("records")
    }
    before = score[score["done"] == 0.005]["auc"]
    lines = [
        bar("share within 95 %, averaged, default hazard", default["inside"], least=0.88),
        bar("CRPS / sigmoid", default["crps_ratio"], most=0.75),
        bar("median 95 % width on smooth runs", default["median_width_smooth"], most=0.12),
        bar("collapse detected, 10 % made", found["collapse", STATISTIC, 0.1], least=0.60),
        bar("collapse detected, 30 % made", found["collapse", STATISTIC, 0.3], least=0.85),
        bar("second rise detected, 10 % made", found["rise", STATISTIC, 0.1], least=0.35),
        bar("second rise detected with prompt classes, 10 % made", found["rise", "either", 0.1], least=0.75),
        bar("second rise detected, 30 % made", found["rise", STATISTIC, 0.3], least=0.85),
        bar("largest AUC before a move begins", float(before.max()), most=0.65),
        bar("smallest AUC before a move begins", float(before.min()), least=0.35),
    ]
    for cell in ("smooth", "slow"):
        share = float(runs[runs["cell"] == cell]["alarm"].notna().mean())
        lines.append(bar(f"alarms over a whole run, {_cell(cell)}", share, most=0.01))
    return lines


def figure(rows: pd.DataFrame) -> Figure:
    """Coverage and width against distance, and ROC curves of the Bayes factor."""
    from matplotlib.figure import Figure

    band, own = bands(rows), rows[rows["part"] == "flags"]
    drawn = Figure(figsize=(11, 6.4), layout="constrained")
    panels = drawn.subplots(2, 3)
    styles = {
        "sigmoid": ("#000000", "-"),
        "0.05": ("#0072b2", "-"),
        "0.021": ("#56b4e9", ":"),
        "0.083": ("#009e73", "--"),
        "0.33": ("#d55e00", "-."),
    }
    mixed = band[band["share"] == MIXED]
    for axes, column, title in (
        (panels[0, 0], "inside", f"share within 95 %, {MIXED:.0%} of runs move"),
        (panels[0, 1], "crps_ratio", "CRPS / sigmoid"),
        (panels[0, 2], "median_width_smooth", "median 95 % width, smooth runs"),
    ):
        for name, group in mixed.groupby("forecast", sort=False):
            colour, style = styles[str(name)]
            axes.plot(
                group["times"],
                group[column],
                style,
                color=colour,
                marker="o",
                ms=4,
                label=_forecast(str(name)),
            )
        axes.set_xscale("log", base=2)
        ticks = sorted(band["times"].unique())
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.set_xlabel("compute / fitted compute")
        axes.set_title(title, fontsize=10, loc="left")
    panels[0, 0].axhline(0.95, color="#999999", lw=1, ls=":")
    panels[0, 2].legend(frameon=False, fontsize=8, loc="upper left")
    for axes, kind, name in (
        (panels[1, 0], "rise", STATISTIC),
        (panels[1, 1], "collapse", STATISTIC),
        (panels[1, 2], "rise", "either"),
    ):
        value = _statistic(own, kind, name)
        null = np.sort(value[own["cell"] == "smooth"])[::-1]
        for done, colour, style in zip(
            DONE, ("#999999", "#e69f00", "#0072b2"), (":", "--", "-"), strict=True
        ):
            moved = value[own["cell"] == f"{kind} {done}"].to_numpy()
            found = [(moved > level).mean() for level in null]
            axes.step(
                (np.arange(len(null))) / len(null),
                found,
                style,
                color=colour,
                where="post",
                label=f"{float(done):.1%} made",
            )
        axes.axvline(FALSE_ALARMS, color="#999999", lw=1, ls=":")
        axes.plot([0, 1], [0, 1], color="#cccccc", lw=1)
        axes.set_title(f"{kind}: {_NAMES[name]}", fontsize=10, loc="left")
        axes.set_xlabel("false alarms on smooth runs")
        axes.set_ylabel("detected")
    panels[1, 0].legend(frameon=False, fontsize=8, loc="lower right")
    for axes in panels.ravel():
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _forecast(name: str) -> str:
    if name == "sigmoid":
        return "sigmoid alone"
    return f"hazard {name} (default)" if name == "0.05" else f"hazard {name}"


def _cell(cell: str) -> str:
    kind, _, done = cell.partition(" ")
    names = {"smooth": "smooth", "slow": "smooth, slow noise", "rise": "second rise", "collapse": "collapse"}
    return names[kind] + (f", {float(done):.1%} made" if done else "")


def _share_se(share: float, n: int) -> float:
    """Of a share; where none or all of n were hit, that of one hit."""
    inside = min(max(share, 1 / n), 1 - 1 / n)
    return float(np.sqrt(inside * (1 - inside) / n))


NOTES = """\
- One run each: sigmoid with ceiling .5-.75 whose midpoint lies at .05-.25 of the fitted compute; second rises of 20-70 % of
  the headroom, collapses of 15-70 % of the ceiling, steepness about 3. The families that are averaged contain these
  shapes; sizes, places and the share of moves are not those of the prior.
- Coverage with a share of moves reweights smooth and moved runs. Scored is an evaluation, with the noise of its run.
- The hard class carries the whole second rise and nothing else does: the best case for prompt classes.
- "Without the two rules": an alarm must also hold against slow noise and one steep rise, and a collapse needs two
  suspicious evaluations.
"""
