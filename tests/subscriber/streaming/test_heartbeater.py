"""The heartbeater's thread: timely pings, and one alarm for each silent stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from pullstream.streaming.heartbeater import PING_EVERY, PONG_WITHIN, Heartbeater
from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import started_since


class Watched:
    """A heartbeater and its recorded actions."""

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
        return self.done.get(timeout=TIMEOUT)

    def next_after(self, seconds: float) -> str:
        """Advance the clock, and return the next action."""
        self.clock.advance(seconds)
        return self.next()

    def settle(self) -> None:
        """Wait until all earlier reports were handled: a stream opened later is pinged."""
        self.heartbeater.opened()
        assert self.next() == "ping"


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Yield a heartbeater whose stream is open and has answered its first ping."""
    watched = Watched()
    watched.settle()
    watched.heartbeater.received(is_pong=True)
    yield watched
    watched.heartbeater.stop()


def test_the_heartbeater_pings_an_open_stream_at_once_and_every_30_seconds(
    watched: Watched,
) -> None:
    """A ping comes when a stream opens and every 30 seconds, and none after it broke."""
    for _ in range(3):
        assert watched.next_after(PING_EVERY) == "ping"
        watched.heartbeater.received(is_pong=True)
    watched.heartbeater.closed()
    watched.clock.advance(10 * PING_EVERY)
    watched.settle()
    assert watched.done.empty()


def test_a_stream_without_ping_answers_is_reported_as_silent_only_once(watched: Watched) -> None:
    """After the report there is no stream until another one opens."""
    assert watched.next_after(PING_EVERY) == "ping"
    assert watched.next_after(PONG_WITHIN) == "silence"
    watched.clock.advance(10 * PING_EVERY)
    watched.settle()
    assert watched.done.empty()


def test_the_heartbeater_reports_no_silence_if_the_stream_delivers_messages(
    watched: Watched,
) -> None:
    """Messages count without waking the heartbeater."""
    assert watched.next_after(PING_EVERY) == "ping"
    watched.heartbeater.received(is_pong=False)
    watched.clock.advance(PONG_WITHIN)
    assert watched.next_after(PING_EVERY - PONG_WITHIN) == "ping"


def test_the_heartbeater_reports_no_silent_stream_while_the_reader_is_paused(
    watched: Watched,
) -> None:
    """Pings continue without an alarm."""
    assert watched.next_after(PING_EVERY) == "ping"
    watched.heartbeater.paused()
    for _ in range(5):
        assert watched.next_after(PING_EVERY) == "ping"
    watched.heartbeater.resumed()
    assert watched.next_after(PING_EVERY) == "ping"
    assert watched.next_after(PONG_WITHIN) == "silence"


def test_pauses_of_the_stream_reader_do_not_wake_the_heartbeater_thread(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy stream has many pauses."""
    woken: list[object] = []
    monkeypatch.setattr(watched.heartbeater._thread, "post", woken.append)
    watched.heartbeater.paused()
    watched.heartbeater.resumed()
    watched.heartbeater.received(is_pong=False)
    assert woken == []


def test_an_unanswered_ping_before_the_end_of_a_reader_pause_is_not_reported_as_silence(
    watched: Watched,
) -> None:
    """The answer may be unread. The next ping counts again."""
    assert watched.next_after(PING_EVERY) == "ping"
    watched.heartbeater.paused()
    watched.heartbeater.resumed()
    watched.clock.advance(PONG_WITHIN)
    assert watched.next_after(PING_EVERY - PONG_WITHIN) == "ping"
    assert watched.next_after(PONG_WITHIN) == "silence"


def test_stopping_the_heartbeater_ends_the_heartbeater_thread_and_removes_its_timer() -> None:
    """A second stop does nothing, and later reports are harmless."""
    before = set(threading.enumerate())
    watched = Watched()
    watched.heartbeater.stop()
    watched.heartbeater.stop()
    assert not started_since(before, named="pullstream-heartbeat")
    watched.heartbeater.opened()
    watched.clock.advance(PING_EVERY)
    assert watched.clock._wakers == []
    assert watched.done.empty()
