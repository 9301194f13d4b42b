"""What is rewarded: the truth, or what a flawed verifier takes for it; what becomes of long answers."""

from __future__ import annotations

import numpy as np

from simulators.minirun.generation import Interruption
from simulators.minirun.settings import Recipe, Verifier
from simulators.minirun.tasks.base import EOS, Prompts, Task


def accepted(
    right: np.ndarray, task: Task, prompts: Prompts, responses: np.ndarray, verifier: Verifier
) -> np.ndarray:
    """Probability [N, G] that the verifier accepts each response.

    Parameters
    ----------
    right : bool array [N, G]
        The truth.
    responses : int array [N, G, L]
    """
    passes = right
    if verifier.exploit == "prefix":
        passes = passes | task.prefix_right(prompts, responses)
    elif verifier.exploit == "unfinished":
        passes = passes | ~(responses == EOS).any(-1)
    return np.where(passes, 1 - verifier.false_negative, verifier.false_positive)


def length_penalty(lengths: np.ndarray, ended: np.ndarray, task: Task, recipe: Recipe) -> np.ndarray:
    """Penalty [N, G] of long responses: 0 until `margin` tokens before the end, 1 where nothing has ended.

    Soft overlong punishment of DAPO (arXiv 2503.14476, eq. 13).
    """
    if recipe.overlong != "penalty" or task.answer_mark is None:
        return np.zeros(lengths.shape)
    beyond = (lengths - (task.answer_length - recipe.margin)) / recipe.margin
    return np.where(ended, np.clip(beyond, 0, 1), 1.0)


def interruption(task: Task, recipe: Recipe) -> Interruption | None:
    """Return where the answer is demanded: while there is still room for it."""
    if recipe.overlong != "interrupt" or task.answer_mark is None:
        return None
    return Interruption(task.answer_length - task.answer_tokens - 1, task.answer_mark)
