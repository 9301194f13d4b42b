"""Work spread over threads: order, errors, and an interrupt that does not wait for compiled code."""

import os
import signal
import subprocess
import sys
import time

import pytest

from forecast.threads import in_threads


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_results_come_in_the_order_of_the_tasks(workers: int) -> None:
    def slow_first(k: int) -> int:
        time.sleep(0.02 if k % 3 == 0 else 0)
        return k * k

    assert list(in_threads(slow_first, range(20), workers)) == [k * k for k in range(20)]
    assert list(in_threads(slow_first, [], workers)) == []


def test_an_error_reaches_the_caller_and_ends_the_work() -> None:
    started = []

    def fails(k: int) -> int:
        started.append(k)
        if k == 3:
            raise ValueError("three")
        time.sleep(0.01)
        return k

    with pytest.raises(ValueError, match="three"):
        list(in_threads(fails, range(1_000), 2))
    time.sleep(0.1)
    assert len(started) < 50


BUSY = """
import numpy as np
from numba import njit
from forecast.threads import in_threads
@njit(nogil=True)
def spin(n):
    total = 0.0
    while total < n:
        total += 1e-9
    return total
spin(1e-6)
print("ready", flush=True)
list(in_threads(spin, [1e9, 1e9], 2))
"""


def test_an_interrupt_does_not_wait_for_compiled_code() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode not in (0, -signal.SIGKILL)
