"""Which threads a test's subject has started.

A number of all threads would tell nothing: those of tests before may end meanwhile.
"""

from __future__ import annotations

import threading

from tests.subscriber.streaming.fakes import PATIENCE


def started_since(before: set[threading.Thread], *, named: str = "") -> set[threading.Thread]:
    """Those alive now and not in ``before``, whose name begins so."""
    new = set(threading.enumerate()) - before
    return {thread for thread in new if thread.name.startswith(named)}


def assert_ended_since(before: set[threading.Thread]) -> None:
    """Each that began after ``before`` ends by itself, soon."""
    for thread in started_since(before):
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread.name
