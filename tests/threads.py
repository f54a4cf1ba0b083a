"""The threads that a test's subject has started.

A count of all threads would not work, because threads of earlier tests may end meanwhile.
"""

from __future__ import annotations

import threading

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
