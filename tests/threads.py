"""The threads that a test's subject has started, and those of the test.

A count of all threads would not work, because threads of earlier tests may end meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.subscriber.streaming.fakes import TIMEOUT


def started_since(before: set[threading.Thread], *, named: str = "") -> set[threading.Thread]:
    """Return the threads alive now and not in ``before`` whose name begins with ``named``."""
    new = set(threading.enumerate()) - before
    return {thread for thread in new if thread.name.startswith(named)}


def assert_ended_since(before: set[threading.Thread]) -> None:
    """Check that each thread that began after ``before`` ends soon by itself."""
    for thread in started_since(before):
        thread.join(TIMEOUT)
        assert not thread.is_alive(), thread.name


@contextmanager
def on_threads(*targets: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Run each function on threads of its own, and wait for their ends after the block."""
    threads = [threading.Thread(target=target, daemon=True) for target in targets * times]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), thread.name


def run_on_threads(*targets: Callable[[], object], times: int = 1) -> None:
    with on_threads(*targets, times=times):
        pass
