"""Which knob moves the ceiling, which only the speed, which makes the curve jump, and does the forecaster see it?

``rlforecast study mechanisms``: the ``smooth`` skills world is trained again and again with one setting changed, every
time on the same base models and prompts as far as it leaves them alone, and so are all presets. Of every run the exact curve is known; the forecaster
gets evaluations of it, once all and twice only the first half or quarter.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from studies.backtest_rows import SKIPPED, shown
from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "mechanisms"
BASE = "smooth"
BLOCK = 8
"""Worlds that are trained together."""
FITTED = 4
"""Worlds whose whole run is fitted, for the ceiling: some seconds each."""
CUTS = (0.25, 0.5)
POINTS = 40
NOT_A_SIGMOID = 0.02
"""Root mean square distance (pass rate) of the exact curve from the closest sigmoid."""
MARGINS = {"floor": 0.02, "ceiling": 0.02, "exponent": 0.15, "log10_midpoint": 0.1}
"""Effects smaller than these are not called a move."""
TRANSITIONS = (
    r"gate_|gap_|exploits|true_positive=\.5",
    ("gated", "hidden-gate", "gap", "hacked", "reward-model"),
)
"""Knobs (pattern) and presets that make curves jump or fall."""
REACHED = (0.85, 0.93, 0.97)
"""End of the run as a share of the ceiling: bounds of the classes that fitted ceilings are summed up by."""

KNOBS: dict[str, tuple[str, ...]] = {
    "what there is to learn": (
        "prompts.slip=0",
        "prompts.slip=.1",
        "prompts.unsolvable=.2",
        "prompts.skills=5",
        "prompts.skills=150",
        "prompts.skill_decay=0",
        "prompts.skill_decay=2",
        "prompts.difficulty=-1",
        "prompts.difficulty=2",
        "prompts.difficulty_sd=.2",
        "prompts.difficulty_sd=2.5",
        "prompts.chain_mean=1",
        "prompts.chain_mean=5",
        "prompts.gate_share=.4 prompts.gate_rate=1e-2,1e-2",
        "prompts.gate_share=.4 prompts.gate_rate=1e-3,1e-3 recipe.steps=8000",
        "prompts.gate_share=.4 prompts.gate_rate=1e-4,1e-4",
        "prompts.gap_share=.4 prompts.gap=4",
        "prompts.gap_share=.4 prompts.gap=8",
    ),
    "what the policy can hold": (
        "policy.rank=20",
        "policy.rank=100",
        "policy.features=1 policy.rank=128",
        "policy.features=1 policy.rank=128 prompts.train=32",
        "policy.features=1 policy.rank=128 policy.curvature=.003",
        "policy.memory=10",
        "context.limit=1200",
        "context.limit=2400",
    ),
    "what is rewarded": (
        "verifier.true_positive=.8 verifier.false_positive=.2",
        "verifier.true_positive=.7 verifier.false_positive=.4",
        "verifier.true_positive=.5 verifier.false_positive=.6",
        "verifier.wrong_reference=.2",
        "verifier.exploits=1 verifier.exploit_logit=-5 recipe.exploit_rate=1",
        "verifier.exploits=1 verifier.exploit_logit=-8 recipe.exploit_rate=1",
        "recipe.credit=process",
    ),
    "how it is trained": (
        "recipe.learning_rate=.2",
        "recipe.learning_rate=2",
        "recipe.optimiser=adam recipe.learning_rate=.01",
        "recipe.advantage=unnormalised",
        "recipe.advantage=rloo",
        "recipe.advantage=batch",
        "recipe.aggregation=sequence",
        "recipe.aggregation=token",
        "recipe.rollouts=2",
        "recipe.rollouts=32",
        "recipe.prompts=16",
        "recipe.prompts=256",
        "recipe.filter=drop",
        "recipe.filter=refill",
        "recipe.retire_above=.9",
        "recipe.kl=.05",
        "recipe.kl=.2",
        "recipe.staleness=16 recipe.learning_rate=2",
        "recipe.staleness=16 recipe.learning_rate=2 recipe.correction=ppo",
        "recipe.staleness=16 recipe.learning_rate=2 recipe.correction=cispo",
    ),
}


def work(task: Task) -> pd.DataFrame:
    """Train one block of worlds; a row of results per world, and the exact curve of the first."""
    import pandas as pd

    import forecast as fc
    from simulators.skills.experiment import train_all
    from simulators.skills.overrides import override
    from simulators.skills.population import draw_population
    from simulators.skills.presets import preset

    texts = dict(text.split("=") for text in task["knob"].split())
    settings = override(preset(task["preset"]), texts)
    block = [task["seed"], task["block"]]
    # The same worlds for every knob as far as it leaves them alone.
    population = draw_population(settings, task["worlds"], np.random.default_rng(block))
    world = train_all(
        population,
        settings,
        {"run": settings.recipe},
        np.random.default_rng([*block, 1]),
        points=POINTS,
        spacing="log",
        unit="rollouts",
    )
    rows = []
    for k, run in enumerate(world.runs.names):
        truth = world.truth.iloc[k]
        exact = world.curves[world.curves["run"] == run]
        rows.append(
            {
                "world": BLOCK * task["block"] + k,
                "floor": truth["floor"],
                "ceiling": truth["ceiling"] if truth["ceiling_is"] == "limit" else np.nan,
                "highest": truth["highest"],
                "last": truth["last"],
                "last_proxy": truth["last_proxy"],
                **_closest_sigmoid(exact),
            }
        )
    result = fc.backtest(world.runs, fractions=CUTS, engine="particle", seed=task["seed"], workers=1)
    last = result.forecasts[
        result.forecasts["compute"] == result.forecasts.groupby("run")["compute"].transform("max")
    ]
    number = {run: BLOCK * task["block"] + k for k, run in enumerate(world.runs.names)}
    last = last[last["method"].isin(["rlforecast", "least_squares"])]
    forecasts = pd.concat([last, result.skipped.assign(method=SKIPPED)], ignore_index=True)
    forecasts["world"] = forecasts["run"].map(number)
    first = world.curves[(world.curves["run"] == world.runs.names[0]) & (task["block"] == 0)]
    parts = {
        "world": pd.DataFrame(rows),
        "ceiling": _fitted_ceilings(world.runs, task["seed"], number)
        if task["block"] == 0
        else pd.DataFrame(),
        "forecast": forecasts.drop(columns=["recipe", "unit", "run"], errors="ignore"),
        "curve": first[["rollouts", "pass_rate", "proxy_pass_rate"]].assign(world=0),
    }
    named = [part.assign(kind=kind) for kind, part in parts.items()]
    return pd.concat(named, ignore_index=True).assign(preset=task["preset"], knob=task["knob"])


def _closest_sigmoid(exact: pd.DataFrame) -> dict[str, float]:
    """Exponent, midpoint and distance of the sigmoid closest to an exact curve."""
    from forecast.inference.curve_fit import fit_curve

    later = exact[exact["step"] > 0]
    closest = fit_curve("sigmoid", later["rollouts"], later["pass_rate"])
    if closest is None:
        return {"exponent": np.nan, "log10_midpoint": np.nan, "rmse": np.nan}
    return {
        "exponent": closest.exponent,
        "log10_midpoint": float(np.log10(closest.midpoint)),
        "rmse": float(np.sqrt(closest.sse / len(later))),
    }


def _fitted_ceilings(runs: Any, seed: int, number: dict[str, int]) -> pd.DataFrame:
    """What the forecaster says of the ceiling once it has seen the whole run; nothing of runs that it refuses."""
    import pandas as pd

    import forecast as fc
    from forecast.errors import Withheld

    columns = ["q05", "q50", "q95", "verdict"]
    nothing = pd.DataFrame(columns=[*columns, "world"])
    names = [run for run, world in number.items() if world < FITTED]
    try:
        table = fc.fit(runs.select(names), engine="particle", seed=seed).parameters()
    except Withheld:
        return nothing
    table = table[table["parameter"] == "ceiling"]
    found = table[columns].reset_index(drop=True)
    return found.assign(world=table["name"].map(number).to_numpy())


def tasks(worlds: int, seed: int) -> list[Task]:
    """All work, presets first."""
    from simulators.skills.presets import PRESETS

    asked = [(name, "") for name in PRESETS] + [(BASE, knob) for knobs in KNOBS.values() for knob in knobs]
    made = []
    for preset, knob in asked:
        for block in range(-(-worlds // BLOCK)):
            size = min(BLOCK, worlds - BLOCK * block)
            parameters = {"preset": preset, "knob": knob, "block": block, "worlds": size, "seed": seed}
            made.append(Task(f"{preset}/{knob.replace(' ', '+') or 'as it is'}/{block}", parameters))
    return made


def effects(rows: pd.DataFrame) -> pd.DataFrame:
    """What each knob does, world by world against the base.

    Returns
    -------
    pandas.DataFrame
        One row per knob, the base first: means of the exact ``floor, ceiling, last, exponent, log10_midpoint`` and of
        ``rmse`` over worlds; of each ``X_effect`` and half the width ``X_error`` of its 95 % interval (t, over worlds);
        ``moves`` in words.
    """
    import pandas as pd
    from scipy.stats import t

    of_worlds = rows[(rows["kind"] == "world") & (rows["preset"] == BASE)]
    base = of_worlds[of_worlds["knob"] == ""].set_index("world")
    lines = []
    for knob in ["", *(knob for knobs in KNOBS.values() for knob in knobs)]:
        mine = of_worlds[of_worlds["knob"] == knob].set_index("world")
        if mine.empty:
            continue
        line: dict[str, Any] = {"knob": knob, "rmse": mine["rmse"].mean()}
        for name in ("floor", "ceiling", "last", "exponent", "log10_midpoint"):
            change = (mine[name] - base[name]).dropna()
            line[name] = mine[name].mean()
            line[f"{name}_effect"] = change.mean() if len(change) else np.nan
            spread = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
            line[f"{name}_error"] = t.ppf(0.975, max(len(change) - 1, 1)) * spread
        line["moves"] = "-" if knob == "" else _moves(line)
        lines.append(line)
    return pd.DataFrame(lines)


def _moves(line: dict[str, Any]) -> str:
    """What a knob moves, in words: effects beyond `MARGINS` whose 95 % interval lies on one side of 0."""
    known = np.isfinite(line["ceiling"])
    moved = []
    words = {
        "floor": "floor",
        "ceiling": "ceiling",
        "last": "end of run",
        "exponent": "exponent",
        "log10_midpoint": "midpoint",
    }
    for name in words:
        if name == ("last" if known else "ceiling"):
            continue
        if line["rmse"] > NOT_A_SIGMOID and name in ("exponent", "log10_midpoint"):
            continue
        effect, error = line[f"{name}_effect"], line[f"{name}_error"]
        margin = MARGINS["ceiling" if name == "last" else name]
        if abs(effect) > margin and abs(effect) > error:
            moved.append(f"{words[name]} {'up' if effect > 0 else 'down'}")
    if line["rmse"] > NOT_A_SIGMOID:
        moved.append("no sigmoid")
    return ", ".join(moved) or "nothing"


def forecasts(rows: pd.DataFrame) -> pd.DataFrame:
    """How the forecaster fares with each preset and knob.

    Returns
    -------
    pandas.DataFrame
        One row per preset or knob: exact ``last`` and ``last_proxy``, mean over worlds; the fitted ceiling's
        median ``fitted_ceiling`` (mean over worlds), and the shares of worlds where its 90 % interval holds the closed
        form (``ceiling_inside``) and where it counts as ``identified``; of
        the forecast from a quarter and a half: ``scored``, ``bias``, ``crps``, ``crps_ratio`` (to least squares),
        ``inside`` (95 % interval), ``above`` and ``below`` (share of worlds whose last evaluation lies there).
    """
    import pandas as pd

    lines = []
    for (preset, knob), mine in rows.groupby(["preset", "knob"], sort=False):
        of_worlds, ceilings = mine[mine["kind"] == "world"], mine[mine["kind"] == "ceiling"]
        line: dict[str, Any] = {
            "preset": preset,
            "knob": knob,
            "last": of_worlds["last"].mean(),
            "last_proxy": of_worlds["last_proxy"].mean(),
            "ceiling": of_worlds["ceiling"].mean(),
            "fitted_ceiling": ceilings["q50"].mean(),
            "ceiling_inside": _inside(ceilings, of_worlds),
            "identified": ceilings["verdict"].astype(str).str.startswith(("identified", "roughly")).mean(),
        }
        for cut in CUTS:
            label = f"{100 * cut:g} %"
            group = mine[(mine["kind"] == "forecast") & (mine["cut"] == label)]
            ours = group[group["method"] == "rlforecast"]
            grid = group[group["method"] == "least_squares"]
            above, below = ours["observed"] > ours["q975"], ours["observed"] < ours["q025"]
            line |= {
                f"scored_{label}": len(ours),
                f"bias_{label}": ours["error"].mean(),
                f"crps_{label}": ours["crps"].mean(),
                f"crps_ratio_{label}": ours["crps"].mean() / grid["crps"].mean(),
                f"above_{label}": above.mean() if len(ours) else np.nan,
                f"below_{label}": below.mean() if len(ours) else np.nan,
                f"inside_{label}": 1 - (above | below).mean() if len(ours) else np.nan,
            }
        lines.append(line)
    return pd.DataFrame(lines)


def _inside(ceilings: pd.DataFrame, of_worlds: pd.DataFrame) -> float:
    """Share of fitted worlds whose closed-form ceiling lies in the 90 % interval; NaN without one."""
    true = ceilings["world"].map(of_worlds.set_index("world")["ceiling"]).astype(float)
    if ceilings.empty or true.isna().all():
        return float("nan")
    return float(((ceilings["q05"] <= true) & (true <= ceilings["q95"])).mean())


def markdown(rows: pd.DataFrame) -> str:
    """Both tables and what they say."""
    table, told = effects(rows), forecasts(rows)
    lines = [
        f"### What each knob does\n\nExact curves of the `{BASE}` world with one thing changed; mean over worlds, and in"
        " brackets the change against the base with its 95 % interval over worlds.\n",
        "| setting | floor | ceiling | end of run | exponent | log10 midpoint (rollouts) | distance from a sigmoid | moves |",
        "|---" * 8 + "|",
    ]
    groups = {knobs[0]: group for group, knobs in KNOBS.items()}
    for line in table.to_dict("records"):
        if line["knob"] in groups:
            lines.append(f"| **{groups[line['knob']]}** |  |  |  |  |  |  |  |")
        cells = [
            _changed(line, "floor", ".3f"),
            _changed(line, "ceiling", ".3f"),
            _changed(line, "last", ".3f"),
            *(
                _changed(line, name, ".2f") if line["rmse"] <= NOT_A_SIGMOID else "-"
                for name in ("exponent", "log10_midpoint")
            ),
        ]
        name = f"`{line['knob']}`" if line["knob"] else f"`{BASE}` as it is"
        lines.append(f"| {name} | {' | '.join(cells)} | {shown(line['rmse'], '.4f')} | {line['moves']} |")
    lines += [
        "\n### What the forecaster says\n",
        "| world | end of run | of the proxy | ceiling | fitted ceiling | closed form inside its 90 % | identified | "
        + " | ".join(
            f"fitted {100 * c:g} %: bias | CRPS (/ least squares) | inside 95 % | above | below" for c in CUTS
        )
        + " |",
        "|---" * (7 + 5 * len(CUTS)) + "|",
    ]
    for line in told.to_dict("records"):
        cells = [shown(line[name], ".3f") for name in ("last", "last_proxy", "ceiling", "fitted_ceiling")]
        cells += [shown(line[name], ".2f") for name in ("ceiling_inside", "identified")]
        for label in (f"{100 * c:g} %" for c in CUTS):
            ratio = shown(line[f"crps_ratio_{label}"], ".2f")
            cells += [
                shown(line[f"bias_{label}"], "+.3f"),
                f"{shown(line[f'crps_{label}'], '.4f')} ({ratio})",
                *(shown(line[f"{what}_{label}"], ".2f") for what in ("inside", "above", "below")),
            ]
        name = f"`{line['knob']}`" if line["knob"] else f"preset `{line['preset']}`"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\n{_overall(rows)}\n{_notes(rows)}"


def _overall(rows: pd.DataFrame) -> str:
    """How often intervals held over all that has no transition."""
    pattern, presets = TRANSITIONS
    plain = rows[~(rows["knob"].str.contains(pattern) | rows["preset"].isin(presets))]
    ours = plain[plain["method"] == "rlforecast"]
    inside = (ours["q025"] <= ours["observed"]) & (ours["observed"] <= ours["q975"])
    held = ", ".join(
        f"{mean:.3f} of {count} fitted to {cut}"
        for cut, mean, count in inside.groupby(ours["cut"]).agg(["mean", "size"]).itertuples()
    )
    key = ["preset", "knob", "world"]
    true = plain.loc[plain["kind"] == "world", [*key, "ceiling", "last"]]
    fitted = plain.loc[plain["kind"] == "ceiling", [*key, "q05", "q95"]].merge(true, on=key)
    fitted = fitted[fitted["ceiling"].notna()]
    hit = (fitted["q05"] <= fitted["ceiling"]) & (fitted["ceiling"] <= fitted["q95"])
    reached = np.digitize(fitted["last"] / fitted["ceiling"], REACHED)
    names = [
        f"below {REACHED[0]:g}",
        *(f"{low:g}-{high:g}" for low, high in pairwise(REACHED)),
        f"from {REACHED[-1]:g}",
    ]
    by_reach = ", ".join(
        f"{hit[reached == k].mean():.2f} ({(reached == k).sum()}) {name}"
        for k, name in enumerate(names)
        if (reached == k).any()
    )
    return (
        f"- Without gates, gaps, exploits and J < 0, 95 % intervals held {held}.\n"
        f"- Of these, the fitted ceiling's 90 % interval held {hit.mean():.2f} of {len(hit)} closed forms; by the end of the"
        f" run as a share of the ceiling: {by_reach}."
    )


def _changed(line: Mapping[Any, Any], name: str, form: str) -> str:
    if not np.isfinite(line[name]):
        return "-"
    text = format(line[name], form)
    if line["knob"] == "" or not np.isfinite(line[f"{name}_error"]):
        return text
    return f"{text} ({line[f'{name}_effect']:+{form}} ± {line[f'{name}_error']:{form}})"


def _notes(rows: pd.DataFrame) -> str:
    worlds = int(rows.loc[rows["kind"] == "world", "world"].nunique())
    margins = ", ".join(f"{name.replace('_', ' ')} {margin:g}" for name, margin in MARGINS.items())
    return f"""\
- {worlds} worlds per line, the same for all as far as the setting leaves them alone. The ceiling is the closed form (every skill learned) and stands only where
  training approaches it; elsewhere the end of the run is what there is. Exponent and midpoint are those of the sigmoid
  closest to the exact curve, and are left out where its root mean square distance is above {NOT_A_SIGMOID:g}.
- "Moves" lists changes beyond {margins} whose 95 % interval lies on one side of 0.
- Forecasts are of the last evaluation, from the first quarter and half of the rollouts. Above and below are shares of
  worlds whose last evaluation lies outside the 95 % interval on that side: a late rise or a fall that was not foreseen.
- "Fitted ceiling" is the median after the whole run, "inside" the share of worlds where its 90 % interval holds the closed
  form, "identified" where it is called identified or roughly known (all of the first {FITTED} worlds, without those that
  are refused).
"""


def figure(rows: pd.DataFrame) -> Figure:
    """Exact curves of the presets, and the effect of each knob."""
    from matplotlib.figure import Figure

    from simulators.skills.presets import PRESETS

    table = effects(rows)
    table = table[table["knob"] != ""].reset_index(drop=True)
    curves = rows[(rows["kind"] == "curve") & (rows["knob"] == "")]
    wide = -(-len(PRESETS) // 2)
    drawn = Figure(figsize=(13, 5.2 + 0.24 * len(table)), layout="constrained")
    heights = [5.2, max(0.24 * len(table), 1)]
    above, below = drawn.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    panels = above.subplots(2, wide, sharex=False, sharey=True)
    for axes, name in zip(panels.flat, PRESETS, strict=False):
        mine = curves[(curves["preset"] == name) & (curves["rollouts"] > 0)]
        axes.plot(mine["rollouts"], mine["pass_rate"], color="#0072b2", lw=2, label="pass rate")
        axes.plot(
            mine["rollouts"],
            mine["proxy_pass_rate"],
            color="#d55e00",
            lw=1.2,
            ls="--",
            label="accepted by verifier",
        )
        axes.set(title=name, xscale="log", ylim=(0, 1.02))
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels.flat[len(PRESETS) :]:
        axes.axis("off")
    panels[0, 0].set_ylabel("held-out, exact")
    panels[1, 0].set(xlabel="rollouts", ylabel="held-out, exact")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    above.legend(handles, labels, loc="outside upper left", frameon=False, ncols=2)

    columns = {
        "last": "end of run",
        "ceiling": "ceiling (closed form)",
        "exponent": "exponent",
        "log10_midpoint": "log10 midpoint",
    }
    plots = below.subplots(1, len(columns), sharey=True)
    at = np.arange(len(table))[::-1]
    for axes, (name, label) in zip(plots, columns.items(), strict=True):
        effect, error = table[f"{name}_effect"].copy(), table[f"{name}_error"]
        if name in ("exponent", "log10_midpoint"):
            effect[table["rmse"] > NOT_A_SIGMOID] = np.nan
        axes.axvline(0, color="#000000", lw=1, ls=":")
        axes.errorbar(effect, at, xerr=error, fmt="o", color="#0072b2", ms=4, lw=1)
        axes.set_xlabel(f"change of {label}")
        axes.spines[["top", "right"]].set_visible(False)
    plots[0].set_yticks(at, table["knob"].str.replace(r"[a-z_]+\.", "", regex=True), fontsize=8)
    plots[0].set_ylim(-0.7, len(table) - 0.3)
    return drawn


@click.command(NAME)
@click.option("--worlds", type=click.IntRange(min=2), default=16, show_default=True, help="Of each kind.")
@study_options
def mechanisms(worlds: int, where: Where) -> None:
    """Which knob of RL training moves the ceiling, which the speed, which makes the curve jump?

    About ten minutes on two cores.
    """

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        return figure(rows), markdown(rows)

    conduct(
        NAME,
        work,
        tasks(worlds, where.seed),
        report,
        where,
        title="Effects of training knobs on exact curves of skills worlds, and their forecasts",
        options={"worlds": worlds},
    )
