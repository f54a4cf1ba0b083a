"""Measures the length of the steps of the broker's event loop."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

# CPU seconds of `_reference_work` on the machine for which tests state their limits.
_REFERENCE_SECONDS = 0.027


def on_this_machine(seconds: float) -> float:
    """Return a limit of CPU seconds for the present speed of this machine.

    Processors of CI differ, and share their caches and their cycles with other machines. A limit in
    seconds alone would fail on a slow one. A faster machine gets no smaller limit.
    """
    slowness = min(_reference_work() for _ in range(3)) / _REFERENCE_SECONDS
    return seconds * max(slowness, 1.0)


def _reference_work() -> float:
    """Do some work of the kind that the broker does, and return its CPU seconds."""
    started = time.thread_time()
    json.dumps([{"key": str(number), "values": [number] * 5} for number in range(10_000)])
    total = 0
    for number in range(150_000):
        total += number * number
    return time.thread_time() - started


class Steps:
    """The steps that ran during a measurement.

    Attributes:
        count: Number of steps.
        longest: CPU seconds of the longest step. Unlike wall time, CPU time does not depend on the
            machine's other work.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0


@contextmanager
def young_heap() -> Iterator[None]:
    """Let the garbage collector skip the objects that exist already.

    A full collection of everything that the test process has accumulated takes hundreds of
    milliseconds. It would count as part of the step that happens to trigger it.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def measured_steps(thread_name: str = "pullstream-emulator") -> Iterator[Steps]:
    """Measure every step of the event loop that runs on the thread of this name."""
    steps = Steps()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        if threading.current_thread().name == thread_name:
            steps.count += 1
            steps.longest = max(steps.longest, time.thread_time() - started)

    with young_heap(), mock.patch.object(asyncio.Handle, "_run", measured):
        yield steps
