"""Every knob of a mini-run: the recipe (what a paper would call its method), the verifier, the model, the measuring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from forecast.errors import InputError
from simulators.ranges import check_choice, check_number

OBJECTIVES = (
    "reinforce",
    "importance",
    "clipped",
    "cispo",
    "gspo",
    "topr",
    "expert_iteration",
    "online_dpo",
)
AGGREGATIONS = ("prompt", "token", "sequence", "constant")
BASELINES = ("group", "leave_one_out", "batch", "value", "none")
SCALES = ("group", "batch", "none")
ZERO_VARIANCE = ("keep", "drop", "resample")
STALENESS_STYLES = ("pipeline", "alternate")
PRECISIONS = ("float32", "bfloat16", "float8")
OVERLONG = ("truncate", "penalty", "interrupt")
EXPLOITS = ("none", "prefix", "unfinished")


@dataclass(frozen=True)
class Recipe:
    """How rollouts become updates.

    Attributes
    ----------
    objective : str
        Of `OBJECTIVES`: ``reinforce`` (A log p), ``importance`` (rA), ``clipped`` (PPO, GRPO, DAPO), ``cispo``, ``gspo``,
        ``topr``, ``expert_iteration``, ``online_dpo``. Formulas are in `simulators.minirun.objectives`.
    aggregation : str
        Mean over ``token``, over rollouts of their token means (``sequence``), over prompts of the token mean within
        their group (``prompt``), or sum over tokens by rollouts x longest answer (``constant``, Dr. GRPO).
    baseline : str
        Subtracted from the reward: mean of the ``group``, of the others in it (``leave_one_out``), of the ``batch``; the
        ``value`` learned for each token; ``none``.
    scale : str
        What advantages are divided by: sd within the ``group``, sd over the ``batch``, ``none``.
    clip_low, clip_high : float
        Ratios are clipped to ``[1 - clip_low, 1 + clip_high]`` (``clipped``, ``gspo``).
    ratio_cap : float
        Largest ratio that counts (``cispo``).
    zero_variance : str
        Groups whose rewards are all equal: ``keep``, ``drop`` from sums and counts, or ``resample`` other prompts
        until the batch is full (DAPO's dynamic sampling; what was thrown away is charged).
    easy : float or None
        No-positive-resampling: a prompt is not drawn again once a pass rate of at least this was seen on it.
    prompts, rollouts : int
        Prompts per batch, and rollouts of each (group size).
    staleness : int
        k: ``pipeline``: updates between sampling and training, once the pipeline is full (PipelineRL-k);
        ``alternate``: k + 1 batches are sampled from one policy, then trained on one after the other, so that the lag
        goes 0..k (PPO-off-policy-k).
    kl : float
        Weight of the KL divergence to the warm start (k3 estimator, per token).
    temperature : float
    learning_rate : float
        After `warmup` steps of linear increase; constant.
    warmup : int
    clip_norm : float
        Largest norm of the gradient.
    generator_head, trainer_head : str
        Precision of the head that turns states into logits, of `PRECISIONS`.
    overlong : str
        Where answers may be worked out (`Task.answer_mark`), those that do not end in time: ``truncate``; a soft length
        ``penalty`` that rises over the last `margin` tokens to 1 (DAPO); ``interrupt``: the answer is demanded while
        there is still room for it (ScaleRL). Where nothing can be worked out, all three are the first.
    margin : int
    beta : float
        Of online DPO.
    value_weight : float
        Of the value loss, where the baseline is the ``value``.
    """

    objective: str = "cispo"
    aggregation: str = "prompt"
    baseline: str = "group"
    scale: str = "group"
    clip_low: float = 0.2
    clip_high: float = 0.2
    ratio_cap: float = 5.0
    zero_variance: str = "keep"
    easy: float | None = None
    prompts: int = 16
    rollouts: int = 8
    staleness: int = 8
    staleness_style: str = "pipeline"
    kl: float = 0.0
    temperature: float = 1.0
    learning_rate: float = 3e-4
    warmup: int = 10
    clip_norm: float = 1.0
    generator_head: str = "float32"
    trainer_head: str = "float32"
    overlong: str = "truncate"
    margin: int = 4
    beta: float = 0.1
    value_weight: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no recipe."""
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_choice("baseline", self.baseline, BASELINES)
        check_choice("scale", self.scale, SCALES)
        check_choice("zero_variance", self.zero_variance, ZERO_VARIANCE)
        check_choice("staleness_style", self.staleness_style, STALENESS_STYLES)
        check_choice("generator_head", self.generator_head, PRECISIONS)
        check_choice("trainer_head", self.trainer_head, PRECISIONS)
        check_choice("overlong", self.overlong, OVERLONG)
        _check_whole(self, prompts=1, rollouts=1, staleness=0, warmup=0, margin=1)
        check_number("clip_low", self.clip_low, 0, 1)
        for name in ("clip_high", "kl", "value_weight"):
            check_number(name, getattr(self, name), 0)
        for name in ("ratio_cap", "learning_rate", "temperature", "clip_norm", "beta"):
            check_number(name, getattr(self, name), 1e-12)
        if self.easy is not None:
            check_number("easy", self.easy, 0.01, 1)
        if self.scale == "group" and self.baseline not in ("group", "leave_one_out"):
            raise InputError(
                "a group without variance would be divided by nearly nothing",
                found=f"scale group with baseline {self.baseline}",
                fix="scale batch or none, or baseline group or leave_one_out",
            )
        groups = self.baseline in ("group", "leave_one_out") or self.scale == "group"
        if self.rollouts < 2 and (groups or self.objective == "online_dpo"):
            raise InputError(
                "one rollout per prompt has no group",
                found=f"baseline {self.baseline}, scale {self.scale}, objective {self.objective}",
                fix="2 rollouts or more, or baseline batch, value or none with scale batch or none",
            )
        if self.rollouts < 2 and self.zero_variance != "keep":
            raise InputError(
                "one rollout per prompt never varies", found=f"zero_variance {self.zero_variance}"
            )
        if self.prompts * self.rollouts < 2 and (self.baseline == "batch" or self.scale == "batch"):
            raise InputError("one rollout per batch has no batch statistics", fix="more prompts or rollouts")


@dataclass(frozen=True)
class Verifier:
    """What is rewarded, where that is not the truth.

    Attributes
    ----------
    false_positive, false_negative : float
        Probability that a wrong answer is accepted, and a right one rejected; drawn for each rollout.
    exploit : str
        A rule that is wrong: ``prefix`` accepts every answer whose first token is right, ``unfinished`` every answer
        that never ends.
    """

    false_positive: float = 0.0
    false_negative: float = 0.0
    exploit: str = "none"

    def __post_init__(self) -> None:
        """Refuse what is no probability or rule."""
        check_number("false_positive", self.false_positive, 0, 1)
        check_number("false_negative", self.false_negative, 0, 1)
        check_choice("exploit", self.exploit, EXPLOITS)

    @property
    def flawed(self) -> bool:
        """Whether it can differ from the truth."""
        return self != Verifier()


@dataclass(frozen=True)
class Size:
    """Of the transformer: width of the residual stream, layers, attention heads."""

    width: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        """Refuse a width that heads do not divide."""
        _check_whole(self, width=4, layers=1, heads=1)
        if self.width % self.heads:
            raise InputError("heads do not divide the width", found=f"width {self.width}, heads {self.heads}")


@dataclass(frozen=True)
class RunSettings:
    """One run: what is trained on what, and how it is measured.

    Attributes
    ----------
    task : str
    name : str
        Of the recipe.
    recipe : Recipe
    seed : int
        Of prompts, rollouts and evaluations.
    steps : int
        Updates.
    points : int
        Evaluations after the first, log-spaced over steps; fewer where steps are whole numbers.
    heldout : int
        Held-out prompts, shared out among the classes of the task.
    samples : int
        Rollouts of each held-out prompt.
    pool : int
        Training prompts; they come round again when all have been used.
    verifier : Verifier
        Of training.
    size : Size
    warm_seed : int
        Of the initial weights and the warm start: runs that share it share a checkpoint.
    device : str
        As torch names them: ``cpu``, ``cuda``, ``cuda:1``.
    trunk : str
        Precision of the model but its head, ``float32`` or ``bfloat16``.
    compiled : bool
        Whether the training pass goes through ``torch.compile``.
    """

    task: str
    name: str = "base"
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    steps: int = 400
    points: int = 28
    heldout: int = 256
    samples: int = 4
    pool: int = 16384
    verifier: Verifier = field(default_factory=Verifier)
    size: Size = field(default_factory=Size)
    warm_seed: int = 0
    device: str = "cpu"
    trunk: str = "float32"
    compiled: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        _check_whole(self, seed=0, steps=1, points=1, heldout=8, samples=1, pool=1, warm_seed=0)
        check_choice("trunk", self.trunk, ("float32", "bfloat16"))
        if self.pool < self.recipe.prompts:
            raise InputError(
                "fewer training prompts than a batch has",
                found=f"pool {self.pool}, prompts {self.recipe.prompts}",
            )

    @property
    def evaluated(self) -> list[int]:
        """Steps after which the policy is evaluated, 0 among them."""
        # One point is the last step.
        spaced = {round(self.steps ** (i / (self.points - 1))) for i in range(self.points) if self.points > 1}
        return sorted({0, *spaced, self.steps})

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> RunSettings:
        """Back from `plain`."""
        parts = {"recipe": Recipe, "verifier": Verifier, "size": Size}
        return RunSettings(**plain | {name: kind(**plain[name]) for name, kind in parts.items()})


def _check_whole(settings: object, **lowest: int) -> None:
    for name, low in lowest.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{name} is no whole number", found=repr(value))
        check_number(name, value, low)


def changed[Knobs: (Recipe, Verifier)](settings: Knobs, changes: Mapping[str, str]) -> Knobs:
    """Return a recipe or verifier with some settings replaced, each given as text.

    Raises
    ------
    InputError
        If there is no such setting, or the text is no value of its kind.
    """
    kinds = {field.name: type(getattr(type(settings)(), field.name)) for field in fields(settings)}
    values: dict[str, Any] = {}
    for name, text in changes.items():
        if name not in kinds:
            what = type(settings).__name__.lower()
            raise InputError(f"no such setting of a {what}", found=name, expected=" | ".join(kinds))
        try:
            if name == "easy":
                values[name] = None if text == "none" else float(text)
            else:
                values[name] = kinds[name](text)
        except ValueError as error:
            kind = "whole number" if kinds[name] is int else "number"
            raise InputError(f"{name} is no {kind}", found=repr(text)) from error
    return replace(settings, **values)
