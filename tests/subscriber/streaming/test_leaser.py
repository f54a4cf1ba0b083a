"""The leaser's thread: leases are extended in time, and given up in time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from freezegun import freeze_time

from pullstream.flow_control import FlowControl
from pullstream.message import Message
from pullstream.streaming.lease_table import LeaseWork, Released
from pullstream.streaming.leaser import Leaser
from pullstream_protocol.clock import Clock, ManualClock, SystemClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually, ids, message, response
from tests.threads import started_since


class Watched:
    """A leaser, and the requests that it makes."""

    def __init__(self, clock: Clock, limits: FlowControl) -> None:
        self.extended: queue.SimpleQueue[tuple[list[str], int]] = queue.SimpleQueue()
        self.given_up: queue.SimpleQueue[tuple[list[Message], Released]] = queue.SimpleQueue()
        self.leaser = Leaser(
            limits,
            clock,
            extend=lambda ack_ids, seconds: self.extended.put((ack_ids, seconds)),
            give_up=lambda messages, released: self.given_up.put((messages, released)),
        )
        self.leaser.start()

    def add(self, *ack_ids: str, at: float = 0.0, bytes_each: int = 0) -> list[Message]:
        """Add the messages of one response, received at the time `at`."""
        batch, messages = response(*ack_ids, at=at, bytes_each=bytes_each)
        self.leaser.add_leases(batch, messages)
        return messages

    def next_extension(self) -> tuple[list[str], int]:
        return self.extended.get(timeout=TIMEOUT)


@contextmanager
def watching(clock: Clock, limits: FlowControl | None = None) -> Iterator[Watched]:
    watched = Watched(clock, limits or FlowControl())
    try:
        yield watched
    finally:
        watched.leaser.stop()


def test_the_leaser_extends_a_lease_until_its_message_is_settled() -> None:
    """Each extension comes before the end of the lease, until the message is settled."""
    clock = ManualClock()
    with watching(clock) as watched:
        watched.add("a")
        clock.advance(48)
        assert watched.next_extension() == (["a"], 10)
        for _ in range(5):
            clock.advance(8)
            assert watched.next_extension() == (["a"], 10)


def test_a_new_lease_that_ends_before_all_others_wakes_the_leaser_thread() -> None:
    """The leaser slept without a lease, or for a later one."""
    clock = ManualClock()
    with watching(clock) as watched:
        clock.advance(48)
        watched.add("first")
        assert watched.next_extension() == (["first"], 10)
        watched.leaser.remove_handled([message("slow", at=-1000.0)])
        clock.advance(8)
        assert watched.next_extension() == (["first"], 600)
        # Overdue when it is added, and no jump of the clock wakes the thread.
        watched.add("second")
        assert watched.next_extension() == (["second"], 600)


def test_the_first_stream_response_wakes_the_leaser_thread_and_later_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the first response wakes the leaser, until the time of the first extension."""
    clock = ManualClock()
    with watching(clock) as watched, monkeypatch.context() as patched:
        leaser, woken, looks = watched.leaser, list[None](), queue.SimpleQueue[None]()
        due = leaser._table.due

        def look(now: float) -> LeaseWork:
            looks.put(None)
            return due(now)

        patched.setattr(leaser._table, "due", look)
        patched.setattr(leaser._thread, "wake", lambda: woken.append(None))
        for number in range(5):
            leaser.remove_leases(watched.add(f"a{number}", at=clock.monotonic()))
            # The clock wakes the leaser, which finds no lease.
            clock.advance(1)
            looks.get(timeout=TIMEOUT)
        assert len(woken) == 1
        assert leaser._next_wake == 48
        clock.advance(43)
        eventually(lambda: leaser._next_wake is None)
        watched.add("b", at=clock.monotonic())
        assert len(woken) == 2


def test_the_leaser_does_not_extend_the_lease_of_a_message_that_was_removed() -> None:
    """The removal returns the released messages and bytes for flow control."""
    clock = ManualClock()
    with watching(clock) as watched:
        first, _ = watched.add("a", "b", bytes_each=7)
        assert watched.leaser.remove_leases([first]) == Released(1, 7)
        clock.advance(48)
        assert watched.next_extension() == (["b"], 10)
        assert len(watched.leaser) == 1


def test_the_leaser_extends_leases_by_the_measured_handling_time_of_messages() -> None:
    """The handling time of an acknowledged message counts from its receipt."""
    clock = ManualClock()
    with watching(clock) as watched:
        clock.advance(30)
        watched.leaser.remove_handled([message("other", at=0.0)])
        watched.add("a", at=30.0)
        clock.advance(48)
        assert watched.next_extension() == (["a"], 30)


def test_the_leaser_gives_up_a_message_after_max_lease_duration() -> None:
    """The message is released once. A later removal releases nothing."""
    clock = ManualClock()
    with watching(clock, FlowControl(max_lease_duration=20)) as watched:
        (one,) = watched.add("a", bytes_each=7)
        clock.advance(20)
        messages, released = watched.given_up.get(timeout=TIMEOUT)
        assert messages == [one]
        assert released == Released(1, 7)
        assert watched.leaser.remove_leases([one]) == Released(0, 0)
        assert watched.extended.empty()


def test_the_leaser_extends_leases_that_become_due_by_freezeguns_time() -> None:
    """With freezegun and the real clock, a user's own test sees leases extended."""
    with freeze_time("2030-01-01") as frozen:
        clock = SystemClock()
        with watching(clock) as watched:
            watched.add("a", at=clock.monotonic())
            frozen.tick(timedelta(seconds=47))
            assert watched.extended.empty()
            frozen.tick(timedelta(seconds=2))
            assert watched.next_extension() == (["a"], 10)


def test_stopping_the_leaser_ends_the_leaser_thread_and_removes_its_timer() -> None:
    """A second stop does nothing. The leased messages stay known for the shutdown."""
    clock, before = ManualClock(), set(threading.enumerate())
    watched = Watched(clock, FlowControl())
    watched.add("a")
    watched.leaser.stop()
    watched.leaser.stop()
    assert not started_since(before, named="pullstream-leaser")
    assert clock._wakers == []
    clock.advance(100)
    assert watched.extended.empty()
    assert ids(watched.leaser.leased_messages()) == ["a"]
