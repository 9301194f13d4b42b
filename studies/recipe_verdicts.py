"""What a study of recipes says: the joint fit, every pair compared, tables and figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecast.runs.table import Runs

FALL = 0.05
"""Of the last evaluation below the highest, from which a recipe is said to fall."""

BASE = "base"
"""The recipe that the others are set against."""


@dataclass(frozen=True)
class Finding:
    """What ScaleRL (arXiv 2510.13786, sections 3 and 4, on an 8B model) reports of a knob, as a verdict on the recipe here."""

    recipe: str
    claim: str
    expected: str


FINDINGS = (
    Finding(
        "PPO-off-policy-8", "PipelineRL is faster than PPO-off-policy, ceilings are close", "only slower"
    ),
    Finding("DAPO clip", "CISPO ends higher than the DAPO loss", "lowers the ceiling"),
    Finding("gspo", "CISPO and GSPO both end higher than DAPO; CISPO is a little better late", "not decided"),
    Finding("token mean", "the prompt mean ends highest of three aggregations", "lowers the ceiling"),
    Finding("batch sd", "normalisation of advantages makes no difference", "not decided"),
    Finding("filter", "dropping groups without variance ends higher", "raises the ceiling"),
    Finding("no easy prompts", "no-positive-resampling ends higher", "raises the ceiling"),
    Finding("bfloat16 head", "a float32 head ends much higher (.61 against .52)", "lowers the ceiling"),
)


def runs_of(rows: pd.DataFrame, task: str) -> Runs:
    """Return the run table of all runs."""
    from simulators.minirun.table import run_table

    logs = {
        f"{recipe}-s{seed}": own.assign(task=task).to_dict("records")
        for (recipe, seed), own in rows.groupby(["recipe", "seed"], sort=False)
    }
    return run_table(logs)


@dataclass(frozen=True)
class Findings:
    """All that the report is made of.

    Attributes
    ----------
    runs : Runs
    upto : float
        Compute that every run reached, FLOPs: what is fitted.
    recipes : pandas.DataFrame
        Ceiling and last level of each recipe, and what a batch costs.
    pairs : pandas.DataFrame
        As `forecast.compare` returns them.
    """

    runs: Runs
    upto: float
    recipes: pd.DataFrame
    pairs: pd.DataFrame


def analyse(rows: pd.DataFrame, task: str, seed: int) -> Findings:
    """Fit everything together up to the compute that all runs reached, and compare."""
    import forecast as fc

    runs = runs_of(rows, task)
    whole = runs.overall()
    upto = float(whole.groupby("run")["compute"].max().min())
    fit = fc.fit(runs, upto=upto, seed=seed)
    found = fit.parameters(level="recipe")
    used = rows[rows["stratum"].isna()]
    lines = []
    for name in rows["recipe"].drop_duplicates():
        own = whole[(whole["recipe"] == name) & (whole["compute"] <= upto)]
        last = own[own["compute"] > upto / 2].groupby("run")["value"].mean()
        paths = [run["value"] for _, run in own.groupby("run")]
        fallen = float(np.mean([path.max() - path.iloc[-1] for path in paths]))
        end = used[used["recipe"] == name].groupby("seed").last()
        fitted = {row["parameter"]: row for _, row in found[found["name"] == name].iterrows()}
        ceiling = fitted["ceiling"]
        lines.append(
            {
                "recipe": name,
                "ceiling": ceiling["q50"],
                "ceiling_q05": ceiling["q05"],
                "ceiling_q95": ceiling["q95"],
                "last": last.mean(),
                "last_sd": last.std(),
                "fallen": fallen,
                "per_update": (end["flops"] / end["step"]).mean(),
            }
        )
    return Findings(runs, upto, pd.DataFrame(lines), fc.compare(fit))


_OPPOSITE = {
    "raises the ceiling": "lowers the ceiling",
    "lowers the ceiling": "raises the ceiling",
    "only faster": "only slower",
    "only slower": "only faster",
    "not decided": "not decided",
}


def against(pairs: pd.DataFrame, recipe: str) -> pd.Series:
    """Return the comparison of a recipe with the default one, whichever way round it was made."""
    same = pairs[(pairs["first"] == BASE) & (pairs["second"] == recipe)]
    if len(same):
        return same.iloc[0]
    row = pairs[(pairs["first"] == recipe) & (pairs["second"] == BASE)].iloc[0]
    return pd.Series(
        {
            "first": BASE,
            "second": recipe,
            **{f"difference_q{q}": -row[f"difference_q{p}"] for q, p in _MIRRORED},
            **{f"speed_q{q}": 1 / row[f"speed_q{p}"] for q, p in _MIRRORED},
            "p_higher": 1 - row["p_higher"],
            "p_within": row["p_within"],
            "p_faster": 1 - row["p_faster"],
            "verdict": _OPPOSITE[row["verdict"]],
        }
    )


_MIRRORED = (("05", "95"), ("50", "50"), ("95", "05"))

_COLOURS = {
    "raises the ceiling": "#0072b2",
    "only faster": "#56b4e9",
    "not decided": "#dddddd",
    "only slower": "#e69f00",
    "lowers the ceiling": "#d55e00",
}
_LETTERS = {
    "raises the ceiling": "+",
    "lowers the ceiling": "-",
    "only faster": "f",
    "only slower": "s",
    "not decided": "",
}


def markdown(found: Findings) -> str:
    """Tables: recipes against the default, what ScaleRL found, all pairs."""
    lines = [
        "| recipe | last half (sd over seeds) | last below highest | ceiling with creep (90 %) | ceiling less base (90 %) | P(higher) | P(within .02) | speed, times base (90 %) | P(faster) | verdict | GFLOP per update |",
        "|---" * 11 + "|",
    ]
    for _, row in found.recipes.iterrows():
        name = row["recipe"]
        cells = [
            name,
            f"{row['last']:.3f} ({row['last_sd']:.3f})",
            f"{row['fallen']:.3f}",
            f"{row['ceiling']:.3f} ({row['ceiling_q05']:.3f}-{row['ceiling_q95']:.3f})",
        ]
        falls = "; falls" if row["fallen"] > FALL else ""
        if name == BASE:
            cells += ["", "", "", "", "", ""]
        else:
            pair = against(found.pairs, name)
            cells += [
                f"{pair['difference_q50']:+.3f} ({pair['difference_q05']:+.3f} to {pair['difference_q95']:+.3f})",
                f"{pair['p_higher']:.2f}",
                f"{pair['p_within']:.2f}",
                f"{pair['speed_q50']:.2f} ({pair['speed_q05']:.2f}-{pair['speed_q95']:.2f})",
                f"{pair['p_faster']:.2f}",
                pair["verdict"] + falls,
            ]
        lines.append("| " + " | ".join([*cells, f"{row['per_update'] / 1e9:.2f}"]) + " |")
    fallen = found.recipes.set_index("recipe")["fallen"]
    lines += ["", "What ScaleRL reports on an 8B model, and what is seen here:", ""]
    lines += ["| knob | ScaleRL | that would be | here | shows |", "|---|---|---|---|---|"]
    for finding in FINDINGS:
        seen = against(found.pairs, finding.recipe)["verdict"]
        shows = "yes" if seen == finding.expected else "no"
        if fallen[finding.recipe] > FALL:
            seen, shows = f"{seen}; falls", "no"
        lines.append(f"| {finding.recipe} | {finding.claim} | {finding.expected} | {seen} | {shows} |")
    counts = found.pairs["verdict"].value_counts()
    total = len(found.pairs)
    different = int(counts.get("raises the ceiling", 0) + counts.get("lowers the ceiling", 0))
    speed = int(counts.get("only faster", 0) + counts.get("only slower", 0))
    lines += [
        "",
        f"Of {total} pairs, {different} differ in their ceilings, {speed} only in speed, and "
        f"{int(counts.get('not decided', 0))} cannot be told apart.",
    ]
    return "\n".join(lines)


def figure(found: Findings) -> Figure:
    """Curves, ceilings and speeds against the default, and the verdict on every pair."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    names = [BASE, *(name for name in found.recipes["recipe"] if name != BASE)]
    others = names[1:]
    drawn = Figure(figsize=(13, 11), layout="constrained")
    curves, matrix, heights, speeds = drawn.subplots(2, 2).ravel()
    pairs = {name: against(found.pairs, name) for name in others}
    whole = found.runs.overall()
    for name in names:
        own = whole[whole["recipe"] == name]
        mean = own.groupby("step")[["compute", "value"]].mean()
        colour = "#000000" if name == BASE else _COLOURS[pairs[name]["verdict"]]
        curves.plot(mean["compute"], mean["value"], color=colour, lw=2 if name == BASE else 1, alpha=0.9)
    curves.axvline(found.upto, color="#000000", lw=0.8, ls=":")
    curves.annotate("fitted up to here", (found.upto, 0.2), rotation=90, ha="right", fontsize=8)
    curves.set_xscale("log")
    curves.set_xlabel("training compute, FLOPs")
    curves.set_ylabel("held-out pass rate, mean of seeds")
    curves.set_title("Curves; base is black", loc="left")

    sign = np.full((len(names), len(names)), np.nan)
    kinds = list(_COLOURS)
    for _, row in found.pairs.iterrows():
        i, j = names.index(row["first"]), names.index(row["second"])
        sign[j, i] = kinds.index(row["verdict"])
        sign[i, j] = kinds.index(_OPPOSITE[row["verdict"]])
    matrix.imshow(sign, cmap=ListedColormap(list(_COLOURS.values())), vmin=-0.5, vmax=4.5)
    for i, j in np.argwhere(np.isfinite(sign)):
        matrix.text(j, i, _LETTERS[kinds[int(sign[i, j])]], ha="center", va="center", fontsize=8)
    matrix.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    matrix.set_yticks(range(len(names)), names, fontsize=8)
    matrix.set_title("Row against column", loc="left")
    patches = [Patch(color=_COLOURS[kind], label=f"{_LETTERS[kind] or ' '} {kind}") for kind in kinds]
    matrix.legend(handles=patches, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

    at = np.arange(len(others))[::-1]
    for axes, what, nothing in ((heights, "difference", 0.0), (speeds, "speed", 1.0)):
        for place, name in zip(at, others, strict=True):
            row = pairs[name]
            low, middle, high = (row[f"{what}_q{q}"] for q in ("05", "50", "95"))
            axes.plot([low, high], [place, place], color=_COLOURS[row["verdict"]], lw=3)
            axes.plot(middle, place, "o", color="#000000", ms=4)
        axes.axvline(nothing, color="#000000", lw=0.8)
        axes.set_yticks(at, others, fontsize=8)
    heights.axvspan(-0.02, 0.02, color="#eeeeee", zorder=0)
    heights.set_xlabel("ceiling less that of base (90 %); grey: does not matter")
    speeds.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4]
    speeds.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    speeds.set_xticks([], minor=True)
    speeds.set_xlabel("compute base needs / compute it needs, to half of the gain (90 %)")
    for axes in (curves, heights, speeds):
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


NOTES = """\
- Task: sums and products on a transformer of 100,000 parameters, one checkpoint for all runs. A quarter of the prompts
  (products modulo 100) is hardly learned by any recipe, which holds all ceilings near three quarters.
- Equal compute: everything is fitted up to the FLOPs that the cheapest run reached, generation and training counted,
  also of what was sampled and thrown away. Speed is the ratio of compute to half of the gain.
- Verdicts: a ceiling is raised or lowered where the probability of the direction is at least .95 and that of a
  difference within .02 below .2; "only faster" where the difference is within .02 with probability .8 or more and the
  speed is decided at .95; else not decided. A verdict rests on seeds of one checkpoint: another warm start moves all
  curves by more than recipes do.
- "Falls": the last evaluation lies more than .05 below the highest, mean of seeds. A ceiling says nothing about that: see
  `rlforecast transitions`.
- Answers have at most five tokens, so what concerns long sequences (length-normalised ratios of GSPO, interruptions,
  length penalties, a mismatch that builds up along a sequence) can hardly show.
"""
