"""Subscriptions with several streams: shared flow control and order, and one state."""

from __future__ import annotations

from functools import partial

import pytest

from pullstream.message import Message
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream_protocol.errors import NotFound, Unavailable
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.subscriber.streaming.managed import Gate, Managed
from tests.subscriber.streaming.scripted_stream import PONG, ScriptedStream


class ManyStreams(Managed):
    """A subscription and its streams."""

    def __init__(self, *arguments: object, streams: int = 3, **options: object) -> None:
        super().__init__(*arguments, streams=streams, **options)  # type: ignore[arg-type]
        self.streams = [self.stream, *(self.calls.next_stream() for _ in range(streams - 1))]

    def stop(self) -> None:
        for stream in self.streams:
            stream.end_when_half_closed()
        self.future.cancel()
        self.future.exception(TIMEOUT)

    def reopen(self, stream: ScriptedStream) -> None:
        """End a stream, and wait until the client has opened another one."""
        stream.end(Unavailable("down"))
        self.reopened(stream)

    def reopened(self, stream: ScriptedStream) -> None:
        """Wait until the client has opened another stream for one that has ended."""

        def is_opened() -> bool:
            self.clock.advance(1)
            return bool(self.calls.streams_waiting)

        eventually(is_opened)
        self.streams[self.streams.index(stream)] = self.calls.next_stream()


@pytest.mark.parametrize(
    ("messages", "size", "each"), [(9, 900, (3, 300)), (10, 1000, (4, 334)), (3, 1, (1, 1))]
)
def test_the_flow_control_limits_are_divided_among_the_requests_of_several_streams(
    messages: int, size: int, each: tuple[int, int]
) -> None:
    """A server counts each stream separately. Each stream has its own client id."""
    running = ManyStreams(Message.ack, max_messages=messages, max_bytes=size)
    requests = [next(stream.requests) for stream in running.streams]
    running.stop()
    for request in requests:
        assert (request.max_outstanding_messages, request.max_outstanding_bytes) == each
    assert len({request.client_id for request in requests}) == 3


def test_the_messages_of_all_streams_count_together_and_a_full_window_pauses_all_streams() -> None:
    """No stream is read while the window is full, and all are read again when there is room."""
    gate = Gate()
    running = ManyStreams(gate, max_messages=3)
    for number, stream in enumerate(running.streams):
        stream.deliver(f"{number}")
    gate.wait_for(3)
    readers = [stream._consumer._background for stream in running.manager._streams]
    eventually(lambda: all(reader.is_paused for reader in readers))
    gate.open(3)
    eventually(lambda: not any(reader.is_paused for reader in readers))
    assert sorted(running.acknowledged(3)) == ["0", "1", "2"]
    running.stop()


def test_the_messages_of_a_key_run_one_after_the_other_whichever_stream_delivers_them() -> None:
    gate = Gate()
    running = ManyStreams(gate)
    for number, stream in enumerate(running.streams):
        stream.deliver(f"{number}", key="k")
        eventually(partial(_has_leased, running, number + 1))
    gate.wait_for()
    assert gate.begun == ["0"]
    gate.open(3)
    assert running.acknowledged(3) == ["0", "1", "2"]
    running.stop()


def _has_leased(running: Managed, messages: int) -> bool:
    return running.future.statistics().leased == messages


def test_a_subscription_reconnects_only_when_its_last_stream_is_broken() -> None:
    """While one stream is read, the state is STREAMING. The statistics show each stream."""
    running = ManyStreams(Message.ack, streams=2)
    for stream in running.streams:
        stream.respond(PONG)

    def states() -> list[SubscriptionState]:
        return [one.state for one in running.future.statistics().streams]

    eventually(lambda: states() == [SubscriptionState.STREAMING] * 2)
    first, second = running.streams
    first.end(Unavailable("down"))
    eventually(lambda: SubscriptionState.RECONNECTING in states())
    assert running.future.state is SubscriptionState.STREAMING
    second.end(Unavailable("down"))
    eventually(lambda: running.future.state is SubscriptionState.RECONNECTING)
    running.reopened(first)
    running.streams[0].respond(PONG)
    eventually(lambda: running.future.state is SubscriptionState.STREAMING)
    running.clock.advance(10)
    running.streams[1] = running.calls.next_stream()
    running.stop()


def test_the_statistics_count_the_messages_and_the_reopenings_of_each_stream() -> None:
    running = ManyStreams(Message.ack, streams=2)
    first, second = running.streams
    first.deliver("a", "b")
    second.deliver("c")
    running.acknowledged(3)
    running.reopen(second)
    statistics = running.future.statistics()
    running.stop()
    assert sorted(one.received for one in statistics.streams) == [1, 2]
    assert sorted(one.reopened for one in statistics.streams) == [0, 1]
    assert all(one.received_bytes > 0 for one in statistics.streams)
    assert (statistics.received, statistics.reopened) == (3, 1)


def test_a_stream_that_never_works_does_not_end_a_subscription_with_another_that_works() -> None:
    """A server may limit the number of streams. The others continue."""
    running = ManyStreams(Message.ack, streams=2, give_up_after=60.0)
    working, refused = running.streams
    working.deliver("a")
    running.acknowledged(1)
    began = running.clock.monotonic()
    while running.clock.monotonic() < began + 200:
        running.reopen(refused)
        refused = running.streams[1]
    assert not running.future.done()
    running.stop()


def test_a_subscription_gives_up_when_none_of_its_streams_has_worked_for_the_time() -> None:
    running = ManyStreams(Message.ack, streams=2, give_up_after=60.0)
    for stream in running.streams:
        stream.deliver(f"{id(stream)}")
    running.acknowledged(2)
    for stream in running.streams:
        stream.end(Unavailable("down"))
    assert running.give_up() >= 60.0


def test_a_final_error_of_one_stream_ends_the_subscription_and_all_streams() -> None:
    running = ManyStreams(Message.ack)
    for stream in running.streams[1:]:
        stream.end_when_half_closed()
    running.stream.end(NotFound("gone"))
    assert isinstance(running.future.exception(TIMEOUT), NotFound)


def test_all_streams_are_half_closed_before_the_shutdown_waits_for_the_end_of_one() -> None:
    """A server that takes a second to end its side delays the shutdown once."""
    running = ManyStreams(Message.ack)
    running.future.cancel()
    for stream in reversed(running.streams):
        # The requests end with the half-close.
        assert list(stream.requests)
    assert not any(stream.cancelled for stream in running.streams)
    for stream in reversed(running.streams):
        stream.end()
    assert running.future.result(TIMEOUT)
