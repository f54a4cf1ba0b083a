"""The message buffer's waiting times for a batch, on a clock moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pytest

from pullstream.hooks import StateChange
from pullstream.message import Disposition, Message, MessageBatch
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.spark.session import message_buffer
from pullstream.spark.session.message_buffer import MessageBuffer
from pullstream.spark.session.message_group import MessageGroup
from pullstream_protocol.clock import ManualClock
from tests.subscriber.clocks import WatchedClock
from tests.subscriber.spark.session.messages import batch, flat
from tests.subscriber.streaming.fakes import TIMEOUT, RecordingSettlementSink

SUBSCRIPTION = "projects/p/subscriptions/s"


class World:
    """A message buffer, and a thread that waits for a batch of 4 messages or 100 bytes."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.done: set[str] = set()
        self.buffer = MessageBuffer(self.done, self.clock, None)
        self._pool = ThreadPoolExecutor(1)

    def wait(self, *, linger: float = 10, idle: float = 5, drain: bool = False) -> Future[bool]:
        """Begin to wait, and return when the waiter sleeps."""
        waiting: Future[bool] = self._pool.submit(
            self.buffer.wait, 4, 100, linger=linger, idle=idle, drain=drain
        )
        self.looked()
        return waiting

    def looked(self) -> None:
        """Return when the waiter has looked at the clock again."""
        self.clock.wait_until_watched()

    def ends_after(self, waiting: Future[bool], seconds: float) -> bool:
        """Return the result of a wait that must end after exactly this many more seconds."""
        self.clock.advance(seconds - 1)
        self.looked()
        assert not waiting.done()
        self.clock.advance(1)
        return waiting.result(TIMEOUT)

    def bring(self, *ids: str, **kind: Any) -> None:
        self.buffer(MessageBatch(batch(ids, **kind)))

    def change(self, state: SubscriptionState) -> None:
        self.buffer.state_changed(SUBSCRIPTION, StateChange(state, state, 0.0))

    def close(self) -> None:
        self.change(SubscriptionState.CLOSED)
        self._pool.shutdown()
        self.buffer.close()


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()


def test_the_wait_for_messages_of_a_spark_batch_ends_at_once_when_the_batch_is_full(
    world: World,
) -> None:
    """A batch is full by messages or by bytes, and earlier messages count."""
    waiting = world.wait()
    world.bring("a", "b", "c", "d")
    assert waiting.result(TIMEOUT) is True
    assert world.buffer.wait(4, 100, linger=10, idle=5, drain=False)
    world.bring("e", share=100)
    assert world.buffer.wait(1000, 100, linger=10, idle=5, drain=False)


def test_the_linger_time_of_a_spark_batch_counts_from_its_first_message(world: World) -> None:
    """Later messages do not prolong the wait."""
    waiting = world.wait()
    world.bring("a")
    world.looked()
    world.clock.advance(9)
    world.looked()
    world.bring("b")
    world.looked()
    assert not waiting.done()
    world.clock.advance(1)
    assert waiting.result(TIMEOUT) is True


def test_the_linger_time_of_a_spark_batch_includes_time_before_its_trigger(world: World) -> None:
    """The messages came while Spark worked on the previous batch."""
    world.bring("a")
    world.clock.advance(10)
    assert world.buffer.wait(4, 100, linger=10, idle=5, drain=False)


def test_the_linger_time_of_messages_left_over_by_a_full_spark_batch_starts_anew(
    world: World,
) -> None:
    """Otherwise each batch after the first would have a random, small size."""
    world.bring("a", "b", "c", "d", "e")
    world.clock.advance(9)
    groups, is_all = world.buffer.cut(1, 4, 100)
    assert ([one.message_id for one in flat(groups)], is_all) == (["a", "b", "c", "d"], False)
    waiting = world.wait()
    assert world.ends_after(waiting, 10) is True
    assert world.buffer.cut(2, 4, 100)[1]


def test_the_spark_prefetcher_waits_for_a_full_batch_or_the_sessions_end(world: World) -> None:
    """The prefetcher waits until the batch is full, or until the wait or subscription ends."""
    is_over = threading.Event()

    def begin() -> Future[bool]:
        return pool.submit(world.buffer.wait_until_full, 2, 100, is_over.is_set)

    with ThreadPoolExecutor(1) as pool:
        waiting = begin()
        world.bring("a")
        world.clock.advance(1000)
        with pytest.raises(FutureTimeout):
            waiting.result(0.05)
        world.bring("b")
        assert waiting.result(TIMEOUT) is True
        world.buffer.cut(1, 2, 100)
        waiting = begin()
        is_over.set()
        world.buffer.check_again()
        assert waiting.result(TIMEOUT) is False
        is_over.clear()
        waiting = begin()
        world.change(SubscriptionState.CLOSING)
        assert waiting.result(TIMEOUT) is False


def test_the_wait_for_the_first_message_of_a_spark_batch_ends_after_the_idle_time(
    world: World,
) -> None:
    """The idle time counts from the call."""
    world.clock.advance(100)
    waiting = world.wait()
    assert world.ends_after(waiting, 5) is False


def test_redelivered_committed_messages_do_not_end_the_wait_for_a_spark_batch(world: World) -> None:
    """Redeliveries of committed messages are acknowledged.

    The earlier of two deliveries is dropped.
    """
    world.done.add("old")
    outcomes = RecordingSettlementSink()
    waiting = world.wait()
    world.bring("old", outcomes=outcomes)
    world.clock.advance(5)
    assert waiting.result(TIMEOUT) is False
    assert outcomes.verdicts() == [(Disposition.ACK, "old/1")]
    world.bring("a", outcomes=outcomes)
    world.bring("a", outcomes=outcomes, delivery=2)
    assert outcomes.verdicts()[1:] == [(Disposition.DROP, "a/1")]


def test_the_end_of_the_subscription_ends_the_wait_for_a_spark_batch(world: World) -> None:
    waiting = world.wait()
    world.change(SubscriptionState.CLOSING)
    assert waiting.result(TIMEOUT) is False


def test_a_drain_of_the_backlog_by_spark_ends_when_a_working_stream_brings_no_message(
    world: World,
) -> None:
    """Only a working stream proves that there are no messages. Each message restarts the wait."""
    waiting = world.wait(drain=True)
    world.clock.advance(29)
    world.looked()
    world.change(SubscriptionState.RECONNECTING)
    world.looked()
    world.clock.advance(1000)
    world.looked()
    assert not waiting.done()
    world.change(SubscriptionState.STREAMING)
    world.looked()
    assert world.ends_after(waiting, 5) is False


def test_a_drain_of_the_backlog_by_spark_ends_within_30_seconds_without_server_heartbeats(
    world: World,
) -> None:
    """The stream is open and has delivered nothing."""
    waiting = world.wait(drain=True)
    assert world.ends_after(waiting, 30) is False


def test_when_spark_drains_the_backlog_a_batch_ends_after_the_idle_time_without_messages(
    world: World,
) -> None:
    """A batch is complete when no message has come for the idle time."""
    world.change(SubscriptionState.STREAMING)
    waiting = world.wait(drain=True, linger=1000)
    world.bring("a")
    world.looked()
    world.clock.advance(4)
    world.looked()
    world.bring("b")
    world.looked()
    assert world.ends_after(waiting, 5) is True


def test_a_message_that_loses_its_lease_leaves_the_spark_message_buffer(world: World) -> None:
    """The message will be redelivered, here or elsewhere."""
    messages = MessageBatch(batch(["a", "b"]))
    world.buffer(messages)
    world.buffer.lease_lost(SUBSCRIPTION, messages[:1], "expired")
    with world.buffer.ledger() as ledger:
        assert flat(ledger.cut(1, 9, 1000)) == messages[1:]


def test_no_rows_of_new_messages_are_built_while_a_session_takes_a_batch_from_the_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages that arrive meanwhile are prepared afterwards, and none is lost."""
    begun = threading.Event()

    class TellingGroup(MessageGroup):
        @classmethod
        def of_arrived(cls, messages: Sequence[Message], subscription: str | None) -> MessageGroup:
            begun.set()
            return super().of_arrived(messages, subscription)

    monkeypatch.setattr(message_buffer, "MessageGroup", TellingGroup)
    buffer = MessageBuffer(set(), ManualClock(), None)
    worker = threading.Thread(target=buffer, args=[MessageBatch(batch(["a", "b"]))])
    with buffer.precedence():
        worker.start()
        assert not begun.wait(0.05)
    worker.join(TIMEOUT)
    assert begun.is_set()
    with buffer.ledger() as ledger:
        assert ledger.buffered == 2
    buffer.close()
