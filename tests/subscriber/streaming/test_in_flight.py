"""The messages in flight: counted, leased and run when they arrive, and released once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.flow_control import FlowControl
from pullstream.hooks import Hooks, HookSet
from pullstream.message import Message
from pullstream.runtime.lifecycle import Lifecycle, SubscriptionState
from pullstream.scheduling.scheduler import Scheduler
from pullstream.statistics import StreamStatistics
from pullstream.streaming.ack_requests import AckRequest, Purpose
from pullstream.streaming.in_flight import InFlight, PrefetchAge
from pullstream.streaming.settings import StreamingSettings
from pullstream.streaming.stream import ReceivedResponse
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import TIMEOUT, Server, ids, received


class Waiting(Scheduler):
    """Keeps callbacks until a test runs them."""

    def __init__(self) -> None:
        self.work: deque[tuple[Callable[[Message], Any], Message]] = deque()

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        self.work.append((callback, *args))

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        self.work.extend((callback, message) for message in messages)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        left = [message for _, message in self.work]
        self.work.clear()
        return left

    def run_all(self) -> None:
        while self.work:
            callback, message = self.work.popleft()
            callback(message)


class Broken(Waiting):
    """A scheduler that accepts nothing."""

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        raise RuntimeError("no more threads")


class LostLeases(Hooks):
    def __init__(self) -> None:
        self.lost: list[tuple[list[str], str]] = []

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: str) -> None:
        self.lost.append((ids(messages), why))


class World:
    """An InFlight between responses made by hand and a server played by a test."""

    def __init__(
        self,
        callback: Callable[[Message], Any] = Message.ack,
        *,
        scheduler: Waiting | None = None,
        **limits: Any,
    ) -> None:
        self.clock = ManualClock()
        self.server = Server(automatic=True)
        self.scheduler = scheduler or Waiting()
        self.lifecycle = Lifecycle(self.clock, lambda change: None)
        self.hooks = LostLeases()
        self.flow: list[str] = []
        self.failed_with: list[Exception] = []
        self.in_flight = InFlight(
            callback,
            StreamingSettings(FlowControl(**limits)),
            scheduler=self.scheduler,
            clock=self.clock,
            hooks=HookSet("projects/p/subscriptions/s", [self.hooks]),
            lifecycle=self.lifecycle,
            send=self.server.send,
            pause_readers=lambda: self.flow.append("pause"),
            resume_readers=lambda: self.flow.append("resume"),
            fail=self.failed_with.append,
        )

    def receive(
        self, *ack_ids: str, key: str = "", size: int = 0, exactly_once: bool = False
    ) -> None:
        response = pubsub.StreamingPullResponse(
            received_messages=[received(ack_id, key=key) for ack_id in ack_ids]
        )
        response.subscription_properties.message_ordering_enabled = bool(key)
        response.subscription_properties.exactly_once_delivery_enabled = exactly_once
        self.in_flight.receive_response(ReceivedResponse(response, size))

    @property
    def leased(self) -> list[str]:
        return ids(self.in_flight.leaser.leased_messages())

    def leased_messages(self, *ack_ids: str) -> list[Message]:
        return [m for m in self.in_flight.leaser.leased_messages() if m.ack_id in ack_ids]

    def next_request(self) -> AckRequest:
        return self.server.next_call().request


@contextmanager
def sending(world: World) -> Iterator[None]:
    """While the dispatcher runs; at the end it has sent everything."""
    world.in_flight.dispatcher.start()
    try:
        yield
    finally:
        world.in_flight.dispatcher.stop(TIMEOUT)


def test_received_messages_are_leased_count_for_flow_control_and_are_passed_to_callbacks() -> None:
    """Each message has an equal share of the response's bytes."""
    world = World()
    world.receive("a", "b", size=20)
    streams = [StreamStatistics(SubscriptionState.STREAMING, reopened=n) for n in (1, 2)]
    statistics = world.in_flight.statistics(streams)
    assert (statistics.received, statistics.leased, statistics.leased_bytes) == (2, 2, 20)
    assert statistics.reopened == 3
    assert world.leased == ["a", "b"]
    assert ids(message for _, message in world.scheduler.work) == ["a", "b"]


def test_acknowledging_a_message_twice_frees_its_room_in_flow_control_once() -> None:
    """Further acknowledgements of the message free nothing."""
    world = World()
    world.receive("a", "b", size=20)
    (a, b) = world.leased_messages("a", "b")
    a.ack()
    world.in_flight.mark_settled([a, a], [], [], [])
    world.in_flight.mark_settled([a], [], [], [])
    statistics = world.in_flight.statistics([])
    assert (statistics.acked, statistics.leased, statistics.leased_bytes) == (1, 1, 10)
    world.in_flight.mark_settled([], [b], [], [])
    statistics = world.in_flight.statistics([])
    assert (statistics.nacked, statistics.leased, statistics.leased_bytes) == (1, 0, 0)
    assert world.leased == []


def test_dropped_and_returned_messages_free_their_room_in_flow_control() -> None:
    """The messages count as neither acknowledged nor nacked."""
    world = World()
    world.receive("a", "b")
    (a, b) = world.leased_messages("a", "b")
    world.in_flight.mark_settled([], [], [a], [b])
    statistics = world.in_flight.statistics([])
    assert (statistics.acked, statistics.nacked, statistics.returned) == (0, 0, 1)
    assert statistics.leased == 0


def test_a_full_flow_control_window_pauses_the_stream_reader_until_messages_are_settled() -> None:
    """The window of flow control."""
    world = World(max_messages=2)
    world.receive("a", "b")
    assert world.flow == ["pause"]
    world.in_flight.mark_settled(world.leased_messages("a", "b"), [], [], [])
    assert world.flow == ["pause", "resume"]


def test_a_message_received_after_a_reader_pause_is_marked_as_possibly_stale() -> None:
    """The leases may have begun when the pause did, so they are extended earlier."""
    world = World(max_messages=1)
    world.receive("a")
    world.clock.advance(30)
    world.receive("b")
    (a, b) = world.leased_messages("a", "b")
    assert (a.batch.may_be_stale, b.batch.may_be_stale) == (False, True)


def test_an_ack_in_a_callback_frees_flow_control_room_before_the_servers_answer() -> None:
    """The dispatcher releases the message before the server has answered."""
    world = World()
    world.receive("a", "b")
    with sending(world):
        world.scheduler.run_all()
        sent = world.next_request()
    assert (sent.ack_ids, sent.is_ack) == (["a", "b"], True)
    assert world.in_flight.statistics([]).leased == 0


def test_with_exactly_once_delivery_a_message_runs_only_after_its_receipt_was_accepted() -> None:
    """A message whose id is over is dropped, and is not seen."""
    world = World()
    world.receive("a", "b", exactly_once=True)
    assert not world.scheduler.work
    over = AcknowledgeError(AcknowledgeStatus.INVALID_ACK_ID, None)
    world.in_flight.receipts_answered(["a"], {"b": over})
    assert ids(message for _, message in world.scheduler.work) == ["a"]
    assert world.leased == ["a"]
    assert world.hooks.lost == [(["b"], "expired")]
    statistics = world.in_flight.statistics([])
    assert (statistics.expired, statistics.failed, statistics.nacked) == (1, 0, 0)


def test_a_scheduler_error_after_an_exactly_once_receipt_ends_the_subscription() -> None:
    """The thread of the dispatcher must not end by it."""
    world = World(scheduler=Broken())
    world.receive("a", exactly_once=True)
    world.in_flight.receipts_answered(["a"], {})
    assert [str(error) for error in world.failed_with] == ["no more threads"]


def test_a_scheduler_error_on_arrival_of_messages_is_raised_to_the_stream_reader() -> None:
    """The reader reports the error as the end of the stream."""
    world = World(scheduler=Broken())
    with pytest.raises(RuntimeError, match="no more threads"):
        world.receive("a")


def refused(world: World, purpose: Purpose, seconds: int) -> None:
    request = AckRequest(purpose, ["a"], 0.0, seconds)
    over = AcknowledgeError(AcknowledgeStatus.INVALID_ACK_ID, None)
    world.in_flight.ack_ids_refused(request, {"a": over})


def test_with_exactly_once_delivery_a_refused_lease_extension_ends_the_lease() -> None:
    """A callback that has not begun does not begin."""
    begun: list[str] = []
    world = World(lambda message: begun.append(message.ack_id))
    world.receive("a", "b", exactly_once=True)
    world.in_flight.receipts_answered(["a", "b"], {})
    refused(world, Purpose.LEASE, 60)
    assert (world.leased, world.hooks.lost) == (["b"], [(["a"], "expired")])
    world.scheduler.run_all()
    assert begun == ["b"]


def test_without_exactly_once_delivery_a_refused_lease_extension_does_not_end_the_lease() -> None:
    """The server may still take the acknowledgement."""
    world = World()
    world.receive("a")
    refused(world, Purpose.LEASE, 60)
    assert (world.leased, world.hooks.lost) == (["a"], [])


def test_messages_behind_a_running_message_of_their_ordering_key_are_held() -> None:
    """Held messages count, and run when the earlier message has ended."""
    world = World()
    world.receive("a", "b", key="k")
    assert world.in_flight.statistics([]).held == 1
    world.scheduler.run_all()
    assert world.in_flight.statistics([]).held == 0


def test_messages_received_in_a_shutdown_are_returned_to_the_server_after_the_stream_ends() -> None:
    """Messages returned earlier would be sent again on the same stream."""
    world = World()
    world.receive("a")
    world.lifecycle.move(SubscriptionState.CLOSING)
    world.receive("b")
    world.in_flight.begin_no_more()
    with sending(world):
        assert world.server.calls_waiting == 0
        assert [message.settled for message in world.in_flight.leaser.leased_messages()] == [
            None,
            None,
        ]
        world.in_flight.end_of_stream()
        request = world.next_request()
        assert (sorted(request.ack_ids), request.purpose) == (["a", "b"], Purpose.RETURN)
        world.in_flight.return_after_stream([])
    assert world.leased == []


def test_a_nack_during_a_shutdown_is_sent_to_the_server_after_the_stream_has_ended() -> None:
    """After an earlier nack, the server would send the message again on the same stream."""
    world = World()
    world.receive("a", "b")
    first, second = world.leased_messages("a", "b")
    world.lifecycle.move(SubscriptionState.CLOSING)
    with sending(world):
        world.in_flight.begin_no_more()
        first.nack()
        second.ack()
        assert world.next_request().purpose is Purpose.ACK
        world.in_flight.end_of_stream()
        request = world.next_request()
        assert (request.ack_ids, request.purpose) == (["a"], Purpose.NACK)


def test_a_message_that_a_shutdown_returns_after_the_stream_has_ended_is_nacked_at_once() -> None:
    """A key may pass it on when the callback before it ends."""
    world = World()
    world.receive("a")
    world.lifecycle.move(SubscriptionState.CLOSING)
    world.in_flight.end_of_stream()
    with sending(world):
        world.in_flight.return_after_stream(world.leased_messages("a"))
        assert world.next_request().ack_ids == ["a"]


def test_the_statistics_count_returns_only_if_the_server_reports_delivery_attempts() -> None:
    """With a dead-letter policy the server reports the attempts, and counts returns."""
    world = World()
    world.lifecycle.move(SubscriptionState.CLOSING)
    response = pubsub.StreamingPullResponse(received_messages=[received("a")])
    response.received_messages[0].delivery_attempt = 2
    world.in_flight.receive_response(ReceivedResponse(response, 1))
    world.receive("b")
    (a, b) = world.leased_messages("a", "b")
    world.in_flight.mark_settled([], [], [], [b])
    assert world.in_flight.counters.counted_returns == 0
    world.in_flight.mark_settled([], [], [], [a])
    assert world.in_flight.counters.counted_returns == 1
    assert world.in_flight.statistics([]).redelivered == 1


def test_the_shutdown_of_a_subscription_returns_only_unsettled_messages_to_the_server() -> None:
    """The last step before the dispatcher ends."""
    world = World()
    world.receive("a", "b")
    (a,) = world.leased_messages("a")
    a.ack()
    assert world.in_flight.return_unsettled() == 1
    with sending(world):
        pass
    assert world.leased == []
    assert world.in_flight.statistics([]).returned == 1


def test_leases_adopted_from_another_client_count_for_flow_control_and_are_extended() -> None:
    """Nobody knows how much of them is left."""
    world = World()
    assert world.in_flight.adopt_leases([], 0) == []
    adopted = world.in_flight.adopt_leases(["a", "b"], 100)
    assert (ids(adopted), world.leased) == (["a", "b"], ["a", "b"])
    assert world.in_flight.statistics([]).leased_bytes == 100
    with sending(world):
        request = world.next_request()
    assert (request.ack_ids, request.seconds) == (["a", "b"], 60)
    assert not world.scheduler.work


def test_the_leases_of_messages_read_without_a_reader_pause_count_from_their_arrival() -> None:
    assert PrefetchAge(100).age(10, 1000.0) == 0


def test_only_leases_of_the_first_max_messages_after_a_reader_pause_count_from_the_pause() -> None:
    """No more than that: the server counts what is outstanding, too."""
    unread = PrefetchAge(100)
    unread.paused(1000.0)
    assert unread.age(60, 1030.9) == 30
    assert unread.age(60, 1031.0) == 31
    assert unread.age(60, 1032.0) == 0


def test_leases_of_messages_unread_in_two_reader_pauses_count_from_the_first_pause() -> None:
    """Some of it was read in between, and what came meanwhile is behind the rest."""
    unread = PrefetchAge(100)
    unread.paused(1000.0)
    assert unread.age(60, 1030.0) == 30
    unread.paused(1030.0)
    assert unread.age(100, 1050.0) == 50
    unread.paused(1060.0)
    assert unread.age(1, 1062.0) == 2
