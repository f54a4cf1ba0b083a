"""The queue of an actor: no earlier event is lost at its end, and no thread waits after it."""

import threading
from datetime import timedelta
from functools import partial

from freezegun import freeze_time

from pullstream_protocol.clock import ManualClock, SystemClock
from pullstream_protocol.inbox import Inbox
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import on_threads


def test_inbox_take_returns_all_offered_events_in_order() -> None:
    """The owner works in batches."""
    inbox: Inbox[int] = Inbox(ManualClock())
    for number in range(5):
        inbox.put(number)
    assert inbox.take(None) == [0, 1, 2, 3, 4]
    assert inbox.drain() == []


def test_inbox_take_with_a_past_deadline_returns_at_once() -> None:
    """Without an event, the list is empty."""
    inbox: Inbox[int] = Inbox(ManualClock())
    assert inbox.take(0.0) == []


def test_inbox_take_returns_when_an_advance_of_the_clock_passes_its_deadline() -> None:
    """The owner looks at the clock again, and at the events of the meantime."""
    clock = ManualClock()
    inbox: Inbox[int] = Inbox(clock)
    taken: list[list[int]] = []
    with on_threads(lambda: taken.append(inbox.take(10.0))):
        clock.advance(10)
    assert taken == [[]]


def test_inbox_take_returns_after_frozen_time_was_moved_past_its_deadline() -> None:
    """Waits on the real clock are short, because freezegun does not wake waiting threads."""
    with freeze_time("2030-01-01") as frozen:
        clock = SystemClock()
        inbox: Inbox[int] = Inbox(clock)
        deadline = clock.monotonic() + 3600
        late = threading.Event()

        def own() -> None:
            while clock.monotonic() < deadline:
                inbox.take(deadline)
            late.set()

        with on_threads(own):
            frozen.tick(timedelta(hours=1))
            assert late.wait(TIMEOUT)


def test_inbox_wake_makes_a_waiting_take_return_without_an_event() -> None:
    """A wake-up is no event."""
    inbox: Inbox[int] = Inbox(ManualClock())
    inbox.wake()
    inbox.put(1)
    inbox.wake()
    assert inbox.take(None) == [1]
    inbox.wake()
    assert inbox.take(None) == []


def test_closing_an_inbox_returns_its_remaining_events_and_refuses_new_events() -> None:
    """An accepted event is always handed out."""
    clock = ManualClock()
    inbox: Inbox[int] = Inbox(clock)
    assert inbox.offer(1) == []
    inbox.put(2)
    assert inbox.close() == [1, 2]
    assert inbox.offer(3) == [3]
    assert inbox.close() == []
    assert clock._wakers == []


def test_an_inbox_that_is_closing_either_returns_or_refuses_each_offered_event() -> None:
    """Any number of threads may offer events during the close. Each event has one taker."""
    inbox: Inbox[int] = Inbox(ManualClock())
    offered: list[int] = []
    refused: list[int] = []
    begin = threading.Barrier(5)

    def offer(start: int) -> None:
        begin.wait()
        for number in range(start, start + 2000):
            offered.append(number)
            left = inbox.offer(number)
            refused.extend(left)
            if left:
                return

    with on_threads(*(partial(offer, start * 10_000) for start in range(4))):
        begin.wait()
        handed_out = inbox.take(None) + inbox.close()
    assert sorted(handed_out + refused) == sorted(offered)
