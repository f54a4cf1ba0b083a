"""The heartbeater's thread: pings when they are due, and raises the alarm once."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from protocol.clock import ManualClock
from subscriber.streaming.heartbeater import Heartbeater
from subscriber.streaming.liveness import PING_EVERY, PONG_WITHIN
from tests.subscriber.streaming.fakes import PATIENCE


class Watched:
    """A heartbeater, and what it has done."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.heartbeater = Heartbeater(
            self.clock,
            ping=lambda: self.done.put("ping"),
            on_silence=lambda: self.done.put("silence"),
        )
        self.heartbeater.start()

    def next(self) -> str:
        return self.done.get(timeout=PATIENCE)

    def settle(self) -> None:
        """Return when everything reported so far was handled: a stream opened later is pinged."""
        self.heartbeater.opened()
        assert self.next() == "ping"


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.heartbeater.stop()


def open_and_answer(watched: Watched) -> None:
    watched.heartbeater.opened()
    assert watched.next() == "ping"
    watched.heartbeater.received(is_pong=True)


def test_it_pings_as_long_as_there_is_a_stream(watched: Watched) -> None:
    """At once when one opens, then every 30 seconds, and not after it broke."""
    open_and_answer(watched)
    for _ in range(3):
        watched.clock.advance(PING_EVERY)
        assert watched.next() == "ping"
        watched.heartbeater.received(is_pong=True)
    watched.heartbeater.closed()
    watched.clock.advance(10 * PING_EVERY)
    watched.settle()
    assert watched.done.empty()


def test_silence_is_reported_once_for_a_stream(watched: Watched) -> None:
    """After that there is no stream to watch until another opens."""
    open_and_answer(watched)
    watched.clock.advance(PING_EVERY)
    assert watched.next() == "ping"
    watched.clock.advance(PONG_WITHIN)
    assert watched.next() == "silence"
    watched.clock.advance(10 * PING_EVERY)
    watched.settle()
    assert watched.done.empty()


def test_messages_are_a_sign_of_life(watched: Watched) -> None:
    """They need not wake the heartbeater to be one."""
    open_and_answer(watched)
    watched.clock.advance(PING_EVERY)
    assert watched.next() == "ping"
    watched.heartbeater.received(is_pong=False)
    watched.clock.advance(PONG_WITHIN)
    watched.clock.advance(PING_EVERY - PONG_WITHIN)
    assert watched.next() == "ping"


def test_a_paused_reader_is_no_dead_server(watched: Watched) -> None:
    """Pings go on; the alarm is not raised."""
    open_and_answer(watched)
    watched.clock.advance(PING_EVERY)
    assert watched.next() == "ping"
    watched.heartbeater.paused()
    for _ in range(5):
        watched.clock.advance(PING_EVERY)
        assert watched.next() == "ping"
    watched.heartbeater.resumed()
    watched.clock.advance(PING_EVERY)
    assert watched.next() == "ping"
    watched.clock.advance(PONG_WITHIN)
    assert watched.next() == "silence"


def test_pauses_wake_nobody(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy stream has many of them."""
    open_and_answer(watched)
    woken: list[object] = []
    monkeypatch.setattr(watched.heartbeater._inbox, "put", woken.append)
    watched.heartbeater.paused()
    watched.heartbeater.resumed()
    watched.heartbeater.received(is_pong=False)
    assert woken == []


def test_a_pause_that_is_over_again_excuses_the_silence_before_it(watched: Watched) -> None:
    """The answer may lie unread; the next ping counts again."""
    open_and_answer(watched)
    watched.clock.advance(PING_EVERY)
    assert watched.next() == "ping"
    watched.heartbeater.paused()
    watched.heartbeater.resumed()
    watched.clock.advance(PONG_WITHIN)
    watched.clock.advance(PING_EVERY - PONG_WITHIN)
    assert watched.next() == "ping"
    watched.clock.advance(PONG_WITHIN)
    assert watched.next() == "silence"


def test_stopping_ends_the_thread_and_leaves_the_clock() -> None:
    """Twice is once, and what is reported later does no harm."""
    watched = Watched()
    open_and_answer(watched)
    thread = watched.heartbeater._thread
    watched.heartbeater.stop()
    watched.heartbeater.stop()
    assert not thread.is_alive()
    watched.heartbeater.opened()
    watched.clock.advance(PING_EVERY)
    assert watched.clock._wakers == []
    assert watched.done.empty()
