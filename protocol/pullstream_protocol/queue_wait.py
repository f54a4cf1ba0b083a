"""Waits for the next item of a `queue.SimpleQueue`, for a limited time."""

from __future__ import annotations

import contextlib
import queue
from typing import TypeVar

T = TypeVar("T")


def get_within(items: queue.SimpleQueue[T], timeout: float | None) -> T:
    """Remove and return the next item. One thread at a time may call this for a queue.

    `SimpleQueue.get(timeout=...)` of CPython 3.10 to 3.12 may wait for ever: it takes a free lock
    inside the queue, and if the timeout is over by then, because the thread had no processor, it
    goes on with a negative one. `get_nowait` on an empty queue takes this lock before.

    Args:
        items: The queue.
        timeout: Seconds of real time. None: no limit.

    Raises:
        queue.Empty: No item has come in time.
    """
    with contextlib.suppress(queue.Empty):
        return items.get_nowait()
    return items.get(timeout=timeout)
