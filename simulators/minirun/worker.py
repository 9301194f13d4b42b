"""One run in a process of its own, ``python -m simulators.minirun.worker``: settings on stdin, progress on stdout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from forecast.errors import ForecastError
from simulators.minirun.settings import RunSettings
from simulators.minirun.tasks.registry import task
from simulators.minirun.training import train
from simulators.minirun.warm_start import cached


def main() -> None:
    """Do what was asked for, the run or only its warm start; exit code 2 if it cannot be done."""
    asked = json.load(sys.stdin)
    settings = RunSettings.from_plain(asked["settings"])
    # More threads than cores spin: a hundred times slower on a shared machine.
    torch.set_num_threads(1)
    try:
        _work(settings, asked)
    except ForecastError as error:
        _say(error=str(error))
        sys.exit(2)
    except torch.OutOfMemoryError as error:
        _say(error=f"out of memory on {settings.device}: {str(error).splitlines()[0]}")
        sys.exit(2)


def _work(settings: RunSettings, asked: dict[str, Any]) -> None:
    weights, cost = cached(
        task(settings.task),
        settings.size,
        settings.warm_seed,
        device=settings.device,
        report=lambda done, total: (
            _say(stage="warm start", done=done, total=total) if done % 10 == 0 else None
        ),
    )
    if asked["folder"] is None:
        return

    def report(done: int, total: int, rate: float) -> None:
        if done % 10 == 0 or done == total:
            _say(stage="run", done=done, total=total, pass_rate=rate)

    train(settings, weights, Path(asked["folder"]), cost=cost, report=report)


def _say(**words: Any) -> None:
    """Tell the parent; where it has gone, end."""
    try:
        print(json.dumps(words), flush=True)
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
