"""The message buffer's waiting times for a batch, on a clock moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pytest

from pullstream import MessageColumns
from pullstream.hooks import StateChange
from pullstream.message import Disposition, has_begun
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.receiving import message_buffer
from pullstream.spark.receiving.message_buffer import MessageBuffer
from pullstream.spark.receiving.message_group import MessageGroup
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import RpcError, Unavailable
from tests.subscriber.clocks import WatchedClock
from tests.subscriber.spark.receiving.messages import batch, columns, flat, portion
from tests.subscriber.streaming.fakes import TIMEOUT, RecordingSettlementSink

SUBSCRIPTION = "projects/p/subscriptions/s"


class World:
    """A message buffer, and a thread that waits for a batch of 4 messages or 100 bytes."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.buffer = MessageBuffer(self.clock, None, 60.0, self.clock.monotonic)
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
        self.buffer(columns(batch(ids, **kind)))

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
    groups, is_all = world.buffer.cut(4, 100)
    assert ([one.message_id for one in flat(groups)], is_all) == (["a", "b", "c", "d"], False)
    waiting = world.wait()
    assert world.ends_after(waiting, 10) is True
    assert world.buffer.cut(4, 100)[1]


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
        world.buffer.cut(2, 100)
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


def test_a_redelivery_does_not_end_the_wait_for_a_spark_batch(world: World) -> None:
    """The earlier of two deliveries is dropped."""
    outcomes = RecordingSettlementSink()
    world.bring("a", outcomes=outcomes)
    waiting = world.wait(linger=5)
    world.bring("a", outcomes=outcomes, delivery=2)
    assert world.ends_after(waiting, 5) is True
    assert outcomes.verdicts() == [(Disposition.DROP, "a/1")]


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
    messages = batch(["a", "b"])
    world.buffer(columns(messages))
    world.buffer.lease_lost(SUBSCRIPTION, messages[:1], "expired")
    with world.buffer.messages() as waiting:
        assert flat(waiting.cut(9, 1000)) == messages[1:]


def test_no_rows_of_new_messages_are_built_while_a_session_takes_a_batch_from_the_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages that arrive meanwhile are prepared afterwards, and none is lost."""
    begun = threading.Event()

    class TellingGroup(MessageGroup):
        @classmethod
        def of_arrived(
            cls, received: MessageColumns, subscription: str | None, leased_at: float
        ) -> MessageGroup:
            begun.set()
            return super().of_arrived(received, subscription, leased_at)

    monkeypatch.setattr(message_buffer, "MessageGroup", TellingGroup)
    buffer = MessageBuffer(ManualClock(), None, 60.0)
    worker = threading.Thread(target=buffer, args=[columns(batch(["a", "b"]))])
    with buffer.precedence():
        worker.start()
        assert not begun.wait(0.05)
    worker.join(TIMEOUT)
    assert begun.is_set()
    with buffer.messages() as waiting:
        assert waiting.buffered == 2
    buffer.close()


def test_messages_of_a_spark_segment_are_settled_or_held_or_returned(world: World) -> None:
    """They are settled once."""
    outcomes = RecordingSettlementSink()

    for one in "abcd":
        world.bring(one, outcomes=outcomes)
        world.buffer.cut(1, 100)
        with world.buffer.messages() as waiting:
            waiting.hold(Segment("r", ord(one)))
    world.buffer.acknowledge([Segment("r", ord("b"))])
    world.buffer.return_held([Segment("r", ord("a")), Segment("r", ord("b"))])
    world.buffer.release()
    assert outcomes.verdicts() == [
        *((Disposition.ACK, "b/1"), (Disposition.RETURN, "a/1")),
        *((Disposition.DROP, "c/1"), (Disposition.DROP, "d/1")),
    ]


def test_messages_of_a_spark_segment_are_settled_without_an_object_for_each(world: World) -> None:
    """A segment may end within a response. Only messages of such a response become objects."""
    outcomes = RecordingSettlementSink()
    acked: list[str] = []
    whole, divided = portion(["a", "b"], outcomes), portion(["c", "d"], outcomes)
    world.buffer(columns([whole, divided], acked))
    for count in (3, 1):
        world.buffer.cut(count, 100)
        with world.buffer.messages() as waiting:
            waiting.hold(Segment("r", count))
        world.buffer.acknowledge([Segment("r", count)])
    assert (whole.divided, acked) == (None, ["a/1", "b/1"])
    assert outcomes.verdicts() == [(Disposition.ACK, "c/1"), (Disposition.ACK, "d/1")]


def test_the_return_of_buffered_spark_messages_is_no_delivery_attempt(world: World) -> None:
    """Their callback began, but nobody has tried to handle them."""
    units = [portion(["a"]), portion(["b"])]
    for unit in units:
        assert unit.begin()
    # An object for each message, made before the callback.
    units[1].messages()
    world.buffer(columns(units))
    assert not any(has_begun(message) for unit in units for message in unit.messages())


def test_leases_of_a_spark_message_buffer_are_known_to_be_held_until_an_extension_is_late(
    world: World,
) -> None:
    """An extension that the server has refused proves nothing."""

    def extend(error: RpcError | None = None) -> None:
        world.buffer.request_done(SUBSCRIPTION, "modify_ack_deadline", 1, 0.1, error)

    world.bring("a")
    world.clock.advance(50)
    extend()
    world.bring("b")
    world.clock.advance(40)
    extend()
    world.clock.advance(40)
    extend(Unavailable("away"))
    world.clock.advance(21)
    world.bring("c")
    extend()
    world.buffer.request_done(SUBSCRIPTION, "acknowledge", 1, 0.1, None)
    groups, _ = world.buffer.cut(9, 1000)
    assert [group.leased_at for group in groups] == [90.0, 90.0, 151.0]
