"""How fast, and in how much memory, are a million JSON lines and a 100 MB console log read?

Run with ``python -m studies.reading_speed``: each file is written to a temporary folder and read in a fresh
process, which reports seconds and its largest resident memory.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

JSON_ROWS = 1_000_000
CONSOLE_BYTES = 100_000_000


def write_json_lines(path: Path, rows: int = JSON_ROWS) -> None:
    """Write records like those of a small trainer: eight numbers a line."""
    rng = random.Random(0)
    with path.open("w") as file:
        for step in range(rows):
            record = {
                "step": step,
                "reward/mean": rng.random(),
                "reward/std": rng.random(),
                "loss": rng.gauss(0, 1e-3),
                "kl": rng.random() / 10,
                "num_tokens": 4096 * step,
                "time/total": rng.random() * 60,
                "timestamp": 1.77e9 + 60 * step,
            }
            file.write(json.dumps(record) + "\n")


def write_verl_console(path: Path, size: int = CONSOLE_BYTES) -> None:
    """Write verl step lines between five times as many other lines."""
    rng = random.Random(0)
    keys = [f"actor/metric_{k}" for k in range(30)] + [f"critic/score/metric_{k}" for k in range(30)]
    prefix = "\x1b[36m(main_task pid=1234)\x1b[0m "
    written = step = 0
    with path.open("w") as file:
        while written < size:
            line = f"{prefix}step:{step} - " + " - ".join(f"{k}:{rng.random():.3f}" for k in keys) + "\n"
            other = f"{prefix}First, let's find the total number of gifts: 12 + 7 = 19\n" * 5
            written += file.write(line) + file.write(other)
            step += 1


def write_text_console(path: Path, size: int = CONSOLE_BYTES) -> None:
    """Write free-text step lines, each after nine stamped lines of a logger."""
    rng = random.Random(0)
    written = step = 0
    with path.open("w") as file:
        while written < size:
            stamp = (
                f"2026-04-26 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},607 INFO engine - "
            )
            other = f"{stamp}Avg prompt throughput: 512.3 tokens/s, Running: 8 reqs, Waiting: 0 reqs\n" * 9
            line = f"step {step}/99999999 lr 1.830e-06 reward {rng.random():.3f} kl={rng.random():.4f}\n"
            written += file.write(other) + file.write(line)
            step += 1


def _read(path: Path, answer: multiprocessing.Queue[tuple[str, int, float, float]]) -> None:
    from forecast.runs.readers import read_log

    start = time.perf_counter()
    (log,) = read_log(path)
    seconds = time.perf_counter() - start
    # ru_maxrss counts kilobytes on Linux, bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e3 if sys.platform != "darwin" else 1e6)
    answer.put((log.format, len(log.records), seconds, peak))


def main() -> None:
    """Write, read and print one line per file."""
    files: dict[str, Callable[[Path], None]] = {
        "metrics.jsonl": write_json_lines,
        "verl.log": write_verl_console,
        "text.log": write_text_console,
    }
    context = multiprocessing.get_context("spawn")
    print(f"{'file':<14}{'format':<10}{'MB':>6}{'rows':>10}{'seconds':>9}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, write in files.items():
            path = Path(folder, name)
            write(path)
            answer = context.Queue()
            process = context.Process(target=_read, args=(path, answer))
            process.start()
            kind, rows, seconds, peak = answer.get()
            process.join()
            print(
                f"{name:<14}{kind:<10}{path.stat().st_size / 1e6:>6.0f}{rows:>10}{seconds:>9.1f}{peak:>9.0f}"
            )
            path.unlink()


if __name__ == "__main__":
    main()
