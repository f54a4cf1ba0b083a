"""Measures the length of the steps of the broker's event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


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
