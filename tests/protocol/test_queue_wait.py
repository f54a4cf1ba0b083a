"""The wait for an item of a queue ends in time."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pullstream.runtime.process import WakeUp
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.inbox import Inbox
from pullstream_protocol.queue_wait import get_within

ROOT = Path(__file__).parents[2]
# In seconds. So short that the timeout is often over before the thread waits.
SHORTEST = 1e-6
WAITS = 20_000
TIMEOUT = 60.0


def wait_on_a_queue() -> None:
    with pytest.raises(queue.Empty):
        get_within(queue.SimpleQueue(), SHORTEST)


def wait_for_a_wake_up() -> None:
    WakeUp().wait(SHORTEST)


def wait_on_an_inbox() -> None:
    inbox: Inbox[int] = Inbox(SYSTEM_CLOCK)
    assert inbox.take(SYSTEM_CLOCK.monotonic() + SHORTEST) == []


@pytest.mark.parametrize("wait", [wait_on_a_queue, wait_for_a_wake_up, wait_on_an_inbox])
def test_a_wait_for_a_microsecond_on_an_empty_queue_ends(wait: Callable[[], None]) -> None:
    """Each wait is on a new queue, whose inner lock is free."""
    done = threading.Event()

    def wait_often() -> None:
        for _ in range(WAITS):
            wait()
        done.set()

    threading.Thread(target=wait_often, daemon=True).start()
    assert done.wait(TIMEOUT), "a wait has not ended"


def test_a_limited_wait_on_a_queue_returns_an_item_that_is_put_meanwhile() -> None:
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Timer(0.01, items.put, [1]).start()
    assert get_within(items, TIMEOUT) == 1


def test_an_unlimited_wait_on_a_queue_returns_items_in_order() -> None:
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    items.put(1)
    items.put(2)
    assert [get_within(items, None), get_within(items, None)] == [1, 2]


@pytest.mark.parametrize("folder", ["protocol", "subscriber", "emulator"])
def test_product_code_limits_waits_on_queues_by_get_within_alone(folder: str) -> None:
    found = {
        path.name
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\.get\([^)]*timeout=", path.read_text())
    }
    assert found <= {"queue_wait.py"}
