"""Faults of streams, and of streams together with calls."""

from __future__ import annotations

import asyncio
import queue
from typing import Any, cast

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.faults import Fault, FaultedCall, Faults
from pullstream_emulator.faults.scope import Scope
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Internal, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import wait_for_pulls, wait_until_no_stream
from tests.emulator.wire import TIMEOUT, Wire, ack_ids_of, data_of, wait_until_idle

GET_TOPIC = pubsub.GetTopicRequest(topic=TOPIC)
PULL = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=10)

pytestmark = pytest.mark.subscription(enable_exactly_once_delivery=True)


# ---- delay, error, lost reply, drop --------------------------------------------------------------


def test_a_delay_fault_delays_each_response_of_an_open_streaming_pull(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """The second response is as late as the first."""
    stream = wire.stream(stream_ack_deadline_seconds=600)
    wait_until_idle(stream)
    fault = faults.delay("StreamingPull", 100)
    before = clock.monotonic()
    for number, data in enumerate(["a", "b"], start=1):
        wire.publish(data)
        fault.wait_for_hits(number)
        clock.advance(100)
        assert stream.data(1) == [data]
    assert clock.monotonic() - before == 200
    fault.lift()
    wire.publish("c")
    assert stream.data(1) == ["c"]


def test_an_error_fault_refuses_new_streaming_pulls_and_does_not_end_open_ones(
    faults: Faults, wire: Wire
) -> None:
    """The fault refuses this many new streams. An open one continues."""
    old = wire.stream()
    wait_until_idle(old)
    faults.error("StreamingPull", Unavailable("away"), times=1)
    wait_until_idle(old)
    refused = wire.stream()
    assert refused.end() is grpc.StatusCode.UNAVAILABLE
    assert refused.details() == "away"
    wait_until_idle(old, wire.stream())


def test_an_error_fault_may_choose_the_streaming_pulls_to_refuse_by_their_first_request(
    faults: Faults, wire: Wire
) -> None:
    """The fault's function receives the first request."""
    faults.error(
        "StreamingPull",
        lambda request: Unavailable("away") if request.client_id == "unlucky" else None,
    )
    assert wire.stream(client_id="unlucky").end() is grpc.StatusCode.UNAVAILABLE
    wait_until_idle(wire.stream(client_id="lucky"))


def test_the_lost_reply_fault_ends_a_streaming_pull_instead_of_sending_its_next_response(
    faults: Faults, wire: Wire
) -> None:
    """The messages of the lost response are returned."""
    stream = wire.stream()
    wait_until_idle(stream)
    fault = faults.lose_reply("StreamingPull", times=1, code=grpc.StatusCode.INTERNAL)
    wire.publish("a")
    assert stream.end() is grpc.StatusCode.INTERNAL
    assert fault.hits == 1
    assert data_of(wire.pull()) == ["a"]


@pytest.mark.parametrize("others", [(), (Fault(Scope("Publish")),)])
def test_a_stream_that_a_fault_has_ended_sends_no_further_response_to_the_client(
    others: tuple[Fault, ...],
) -> None:
    """The last response stays the last, whatever other faults are active."""

    async def write_after_the_end() -> None:
        # There is no context, so the call must not write to it.
        call = FaultedCall(BY_METHOD["StreamingPull"], cast("Any", None), lambda: others)
        call.end(Unavailable("away"))
        await call.write(pubsub.StreamingPullResponse())

    with pytest.raises(Unavailable, match="away"):
        asyncio.run(write_after_the_end())


def test_a_new_streaming_pull_held_by_the_drop_fault_starts_when_the_fault_is_lifted(
    faults: Faults, wire: Wire, emulator: Emulator, clock: ManualClock
) -> None:
    """Until then the client does not even get headers."""
    fault = faults.drop("StreamingPull", times=1)
    stream = wire.stream()
    fault.wait_for_hits()
    wire.publish("a")
    stand_by = wire.stream()
    assert stand_by.data(1) == ["a"]
    stand_by.cancel()
    wait_until_no_stream(emulator)
    clock.advance(60)
    fault.lift()
    assert stream.data(1) == ["a"]


# ---- streams that end ----------------------------------------------------------------------------


def test_the_abort_fault_ends_every_open_streaming_pull_with_the_error_of_the_fault(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """The streams end with the error, and new streams are accepted."""
    streams = [wire.stream(), wire.stream()]
    wait_until_idle(*streams)
    wire.publish("a")
    fault = faults.abort_streams(Internal("broken"))
    for stream in streams:
        assert stream.end() is grpc.StatusCode.INTERNAL
        assert stream.details() == "broken"
    assert fault.hits == 2
    # One of the streams may have got the message before the fault, for its deadline of 60 s.
    clock.advance(61)
    assert wire.stream().data(1) == ["a"]


def test_messages_of_an_aborted_stream_stay_leased_until_their_deadline(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """The client can still acknowledge the messages."""
    stream = wire.stream(stream_ack_deadline_seconds=600)
    wire.publish("a")
    assert stream.data(1) == ["a"]
    faults.abort_streams(Unavailable("away"))
    stream.end()
    clock.advance(599)
    assert wire.pull(wait=False) == []
    clock.advance(1)
    assert data_of(wire.pull()) == ["a"]


def test_the_abort_fault_does_not_end_unary_calls(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """A waiting Pull continues to wait."""
    stream = wire.stream()
    wait_until_idle(stream)
    pull = wire.start("Pull", PULL)
    wait_for_pulls(emulator, 1)
    assert faults.abort_streams(Unavailable("away")).hits == 1
    stream.end()
    wire.publish("a")
    assert data_of(pull.result().received_messages) == ["a"]


def test_the_abort_fault_ends_a_streaming_pull_that_has_not_sent_its_first_request(
    faults: Faults, wire: Wire
) -> None:
    """A stream counts as open as soon as the broker knows of it."""
    asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    call = wire.raw("StreamingPull")(iter(asked.get, None), timeout=TIMEOUT)
    while not faults.abort_streams(Unavailable("away")).hits:
        pass
    assert call.code() is grpc.StatusCode.UNAVAILABLE
    assert call.details() == "away"
    asked.put(None)


def test_the_abort_fault_may_end_a_streaming_pull_after_a_given_number_of_responses(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """All of these responses arrive. Pongs do not count, and each stream has its own count."""
    fault = faults.abort_streams_after(2, Unavailable("away"), times=2)
    for _ in range(2):
        stream = wire.stream()
        for data in "ab":
            wait_until_idle(stream)
            wire.publish(data)
            assert stream.data(1) == [data]
        assert stream.end() is grpc.StatusCode.UNAVAILABLE
        clock.advance(60)
        received = wire.pull()
        assert data_of(received) == ["a", "b"]
        wire.acknowledge(*ack_ids_of(received))
    assert fault.hits == 2
    last = wire.stream()
    for data in "abc":
        wire.publish(data)
        assert last.data(1) == [data]


def test_the_close_fault_ends_every_open_streaming_pull_with_status_ok(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """The status is OK, without a request from the client. Leases run to their deadlines."""
    stream = wire.stream(stream_ack_deadline_seconds=600)
    wire.publish("a")
    assert stream.data(1) == ["a"]
    fault = faults.close_streams()
    assert stream.end() is grpc.StatusCode.OK
    assert fault.hits == 1
    assert wire.pull(wait=False) == []
    clock.advance(600)
    assert data_of(wire.pull()) == ["a"]


# ---- silence -------------------------------------------------------------------------------------


def test_the_silence_fault_keeps_an_open_streaming_pull_from_sending_messages_and_pongs(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """The stream stays open, processes requests, and continues after the lift."""
    stream = wire.stream()
    wire.publish("a")
    (a,) = stream.messages(1)
    fault = faults.silence_streams()
    stream.send(ack_ids=[a.ack_id])
    fault.wait_for_hits()
    assert emulator.backlog(SUBSCRIPTION) == 0
    wire.publish("b")
    stream.send()
    assert stream.call.is_active()
    fault.lift()
    confirmed = stream.next()
    assert confirmed.acknowledge_confirmation.ack_ids == [a.ack_id]
    assert not confirmed.received_messages
    assert stream.data(1) == ["b"]


def test_messages_go_to_other_consumers_while_a_streaming_pull_is_silenced_by_a_fault(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """One response on it is lost until its deadline. All other messages go to other consumers."""
    stream = wire.stream(stream_ack_deadline_seconds=10)
    wait_until_idle(stream)
    fault = faults.silence_streams()
    wire.publish("a")
    fault.wait_for_hits()
    wire.publish("b", "c")
    assert data_of(wire.pull(wait=False)) == ["b", "c"]
    clock.advance(10)
    assert "a" in data_of(wire.pull(wait=False))


def test_cancelling_a_silenced_streaming_pull_frees_its_leased_messages(
    faults: Faults, wire: Wire
) -> None:
    """The messages were not sent, so they go to others at once."""
    stream = wire.stream(stream_ack_deadline_seconds=600)
    wait_until_idle(stream)
    fault = faults.silence_streams()
    wire.publish("a")
    fault.wait_for_hits()
    stream.cancel()
    assert data_of(wire.pull()) == ["a"]


def test_the_silence_fault_also_holds_a_newly_opened_streaming_pull(
    faults: Faults, wire: Wire
) -> None:
    """The stream is accepted, but the client does not even get headers."""
    fault = faults.silence_streams()
    stream = wire.stream()
    fault.wait_for_hits()
    assert stream.call.is_active()
    wire.publish("a")
    assert data_of(wire.pull()) == ["a"]
    fault.lift()
    wait_until_idle(stream)


def test_the_abort_fault_ends_a_streaming_pull_that_the_silence_fault_holds(
    faults: Faults, wire: Wire
) -> None:
    """The error is the only thing that the client receives."""
    stream = wire.stream()
    wait_until_idle(stream)
    fault = faults.silence_streams()
    wire.publish("a")
    fault.wait_for_hits()
    faults.abort_streams(Unavailable("away"))
    assert stream.end() is grpc.StatusCode.UNAVAILABLE


def test_the_silence_fault_does_not_affect_unary_calls(faults: Faults, wire: Wire) -> None:
    """Calls are answered."""
    faults.silence_streams()
    assert wire.call("GetTopic", GET_TOPIC).name == TOPIC


def test_the_limit_fault_sends_each_stream_its_bytes_per_second_and_no_more(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """Two streams get twice as much. The first response of each does not wait."""
    # A stream holds one message, so the other one gets the next.
    limits = {"stream_ack_deadline_seconds": 600, "max_outstanding_messages": 1}
    streams = [wire.stream(**limits) for _ in range(2)]
    for stream in streams:
        wait_until_idle(stream)
    fault = faults.limit_streams(1_000.0)
    began = clock.monotonic()
    wire.publish("x" * 10_000, "x" * 10_000)
    first = [stream.messages(1)[0].ack_id for stream in streams]
    assert clock.monotonic() == began
    wire.acknowledge(*first)
    wire.publish("y")
    fault.wait_for_hits()
    clock.advance(9)
    wire.publish("z")
    fault.wait_for_hits(2)
    clock.advance(2)
    assert sorted(data for stream in streams for data in stream.data(1)) == ["y", "z"]


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
def test_the_limit_fault_refuses_a_limit_that_is_no_positive_number(
    faults: Faults, limit: float
) -> None:
    with pytest.raises(ValueError, match="bytes_per_second must be above 0"):
        faults.limit_streams(limit)
