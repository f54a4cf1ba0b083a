"""StreamingPull over gRPC: content and size of responses, flow control, and the end of a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.broker import Broker
from pullstream_emulator.engine import Consumer, Delivery
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.services.refused_ack_ids import ALWAYS_NAMED
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import ResourceExhausted, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import wait_until_no_stream
from tests.emulator.wire import Wire, wait_until_idle

# The default limit of Python's gRPC, also in the official client.
RECEIVE_LIMIT = 4 * 1024 * 1024


@pytest.fixture
def other(emulator: Emulator) -> Iterator[Wire]:
    """Yield a second client with its own connection."""
    wire = Wire(emulator.endpoint)
    yield wire
    wire.close()


def test_a_streaming_pull_sends_its_initial_metadata_before_any_message(wire: Wire) -> None:
    """The client learns that the stream is open."""
    wire.create()
    assert wire.stream().call.initial_metadata() is not None


def test_a_streaming_pull_response_has_all_available_messages_in_publish_order(wire: Wire) -> None:
    """The order is that of publishing."""
    wire.create_with("a", "b", "c")
    response = wire.stream().next()
    assert [m.message.data for m in response.received_messages] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("ordering", [False, True])
def test_every_streaming_pull_response_has_the_subscription_properties(
    wire: Wire, exactly_once: bool, ordering: bool
) -> None:
    """The properties are sent with and without messages, also if both properties are off."""
    wire.create(enable_exactly_once_delivery=exactly_once, enable_message_ordering=ordering)
    wire.publish("a")
    stream = wire.stream()
    with_message = stream.next()
    stream.send()
    pong = stream.next()
    assert (len(with_message.received_messages), len(pong.received_messages)) == (1, 0)
    for response in (with_message, pong):
        assert response.HasField("subscription_properties")
        properties = response.subscription_properties
        assert properties.exactly_once_delivery_enabled is exactly_once
        assert properties.message_ordering_enabled is ordering


def test_the_next_streaming_pull_response_has_a_changed_subscription_property(wire: Wire) -> None:
    """Clients raise their deadlines when exactly-once delivery is switched on."""
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    wire.update(enable_exactly_once_delivery=True)
    stream.send()
    assert stream.next().subscription_properties.exactly_once_delivery_enabled


def test_a_streaming_pull_has_at_most_max_outstanding_messages_leased(wire: Wire) -> None:
    """An acknowledgement or a nack makes room for the next message."""
    wire.create_with("a", "b", "c", "d")
    stream = wire.stream(max_outstanding_messages=2)
    a, b = stream.messages(2)
    assert stream.is_quiet()
    wire.acknowledge(a.ack_id)
    assert stream.data(1) == ["c"]
    assert stream.is_quiet()
    wire.modify(0, b.ack_id)
    assert stream.data(1)[0] in {"b", "d"}
    assert stream.is_quiet()


def test_a_streaming_pull_delivers_the_message_that_crosses_its_limit_of_outstanding_bytes(
    wire: Wire,
) -> None:
    """A message larger than the limit is delivered, too."""
    wire.create_with("x" * 500, "y" * 500, "z" * 500)
    stream = wire.stream(max_outstanding_bytes=600)
    x, _ = stream.messages(2)
    assert stream.is_quiet()
    wire.acknowledge(x.ack_id)
    assert stream.data(1) == ["z" * 500]


def test_an_expired_lease_makes_room_in_the_flow_control_of_its_streaming_pull(
    wire: Wire, clock: ManualClock
) -> None:
    """A client that lost its messages receives others."""
    wire.create_with("a")
    stream = wire.stream(max_outstanding_messages=1, stream_ack_deadline_seconds=10)
    assert stream.data(1) == ["a"]
    clock.advance(10)
    assert stream.data(1) == ["a"]


def test_flow_control_limits_of_zero_or_less_of_a_streaming_pull_mean_unlimited(wire: Wire) -> None:
    """The API defines this."""
    wire.create_with(*"abcdef")
    stream = wire.stream(max_outstanding_messages=-1, max_outstanding_bytes=0)
    assert stream.data(6) == list("abcdef")


def test_two_streaming_pulls_share_the_messages_of_a_subscription(wire: Wire, other: Wire) -> None:
    """Each message goes to one of them. Messages that do not fit into one go to the other."""
    wire.create()
    streams = [wire.stream(max_outstanding_messages=3), other.stream(max_outstanding_messages=3)]
    wait_until_idle(*streams)
    wire.publish(*"abcdef")
    first, second = (stream.data(3) for stream in streams)
    assert sorted(first + second) == list("abcdef")


def test_two_idle_streaming_pulls_get_similar_numbers_of_messages(wire: Wire, other: Wire) -> None:
    """The rule also holds without limits."""
    wire.create()
    streams = [wire.stream(), other.stream()]
    wait_until_idle(*streams)
    wire.publish(*(str(i) for i in range(100)))
    for stream in streams:
        assert len(stream.next().received_messages) == 50


def test_streaming_pull_responses_are_smaller_than_the_receive_limit_of_clients(wire: Wire) -> None:
    """The official client in emulator mode refuses more than 4 MiB."""
    wire.create()
    for _ in range(5):
        wire.publish("x" * 1_900_000)
    wire.publish(*["y" * 5_000] * 1000)
    stream = wire.stream()
    count = 0
    while count < 1005:
        response = stream.next()
        assert response.ByteSize() < RECEIVE_LIMIT
        count += len(response.received_messages)
    assert count == 1005


def test_a_streaming_pull_response_has_a_thousand_messages_at_most(wire: Wire) -> None:
    """The production service has the same limit."""
    wire.create()
    for _ in range(2):
        wire.publish(*["x"] * 1000)
    stream = wire.stream()
    assert [len(stream.next().received_messages) for _ in range(2)] == [1000, 1000]


def test_the_error_of_a_lease_extension_names_as_many_ack_ids_as_fit_into_the_trailers(
    wire: Wire,
) -> None:
    """A broker that was restarted a thousand times has longer ack IDs."""
    wire.create_with("x", enable_exactly_once_delivery=True)
    (received,) = wire.pull()
    suffix = received.ack_id.partition("-")[2]
    longest = [f"{number:x}-{suffix}" for number in range(2**50, 2**50 + 320)]
    request = pubsub.ModifyAckDeadlineRequest(
        subscription=SUBSCRIPTION, ack_ids=longest, ack_deadline_seconds=60
    )
    error = wire.failure("ModifyAckDeadline", request)
    assert isinstance(error, ResourceExhausted)
    assert len(error.metadata or {}) == ALWAYS_NAMED


@pytest.mark.parametrize(
    "how", ["cancel", "disconnect", "close_streams", "abort_streams", "bad request"]
)
def test_leases_of_an_ended_streaming_pull_stay_until_their_ack_deadlines(
    emulator: Emulator, wire: Wire, other: Wire, clock: ManualClock, how: str
) -> None:
    """The client may still acknowledge. Official clients cancel their stream before they do.

    A lease that nobody ends runs to its deadline, which counts as an attempt.
    """
    wire.call("CreateTopic", pubsub.Topic(name=f"{TOPIC}-dead"))
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=f"{TOPIC}-dead")
    wire.create_with("a", "b", dead_letter_policy=policy, enable_exactly_once_delivery=True)
    stream = other.stream(stream_ack_deadline_seconds=20)
    a, _ = stream.messages(2)
    if how == "cancel":
        stream.cancel()
    elif how == "disconnect":
        other.close()
    elif how == "close_streams":
        emulator.faults.close_streams()
    elif how == "abort_streams":
        emulator.faults.abort_streams(Unavailable("away"))
    else:
        stream.send(subscription=SUBSCRIPTION)
    wait_until_no_stream(emulator)
    clock.advance(19)
    assert wire.pull(wait=False) == []
    wire.acknowledge(a.ack_id)
    clock.advance(1)
    assert [(m.message.data, m.delivery_attempt) for m in wire.pull()] == [(b"b", 2)]


def test_an_ended_streaming_pull_blocks_only_the_ordering_keys_of_its_leased_messages(
    emulator: Emulator, wire: Wire
) -> None:
    """The next message of a key waits for its leased one; all others go to other consumers."""
    wire.create(enable_message_ordering=True)
    wire.publish("k1", "k2", key="k")
    stream = wire.stream(max_outstanding_messages=1)
    (k1,) = stream.messages(1)
    stream.cancel()
    wait_until_no_stream(emulator)
    wire.publish("a", "b", "c", "d")
    assert [m.message.data for m in wire.pull(wait=False)] == [b"a", b"b", b"c", b"d"]
    wire.acknowledge(k1.ack_id)
    assert [m.message.data for m in wire.pull()] == [b"k2"]


@pytest.mark.parametrize("how", ["cancel", "lose_reply", "abort_streams"])
def test_messages_of_an_unsent_streaming_pull_response_are_redelivered_at_once(
    emulator: Emulator, wire: Wire, other: Wire, how: str
) -> None:
    """The client has not seen the messages, so no attempt is counted. Sent ones stay leased."""
    wire.call("CreateTopic", pubsub.Topic(name=f"{TOPIC}-dead"))
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=f"{TOPIC}-dead")
    wire.create_with("sent", dead_letter_policy=policy)
    stream = other.stream(stream_ack_deadline_seconds=600)
    assert stream.data(1) == ["sent"]
    if how == "lose_reply":
        emulator.faults.lose_reply("StreamingPull", times=1)
        wire.publish("a", "b")
    else:
        with emulator.faults.silence_streams() as fault:
            wire.publish("a", "b")
            fault.wait_for_hits()
            if how == "cancel":
                stream.cancel()
            else:
                emulator.faults.abort_streams(Unavailable("away"))
            wait_until_no_stream(emulator)
    pulled = wire.pull()
    assert [(m.message.data, m.delivery_attempt) for m in pulled] == [(b"a", 1), (b"b", 1)]


@pytest.fixture
def returning(clock: ManualClock) -> Iterator[Emulator]:
    """Yield a broker that redelivers the messages of a cut stream at once."""
    with Emulator(clock=clock, return_leases_on_disconnect=True) as emulator:
        yield emulator


@pytest.mark.parametrize("how", ["cancel", "disconnect", "close_streams"])
def test_with_return_leases_on_disconnect_messages_of_a_cut_stream_are_redelivered_at_once(
    returning: Emulator, how: str
) -> None:
    """The messages are available without waiting for a deadline, and no attempt is counted."""
    wire, other = Wire(returning.endpoint), Wire(returning.endpoint)
    wire.call("CreateTopic", pubsub.Topic(name=f"{TOPIC}-dead"))
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=f"{TOPIC}-dead")
    wire.create_with("a", "b", dead_letter_policy=policy)
    stream = other.stream(stream_ack_deadline_seconds=600)
    assert stream.data(2) == ["a", "b"]
    if how == "cancel":
        stream.cancel()
    elif how == "disconnect":
        other.close()
    else:
        returning.faults.close_streams()
    pulled = wire.pull()
    pulled += wire.pull() if len(pulled) < 2 else []
    assert [(m.message.data, m.delivery_attempt) for m in pulled] == [(b"a", 1), (b"b", 1)]
    wire.close()
    other.close()


def test_return_leases_on_disconnect_redelivers_a_message_after_every_cancelled_stream(
    returning: Emulator,
) -> None:
    """A cancelled stream first looks like a half-closed one, whose leases continue."""
    wire = Wire(returning.endpoint)
    wire.create_with("a")
    for _ in range(100):
        stream = wire.stream(stream_ack_deadline_seconds=600)
        assert stream.data(1) == ["a"]
        stream.cancel()
    wire.close()


def test_a_half_closed_streaming_pull_ends_with_ok_and_keeps_its_leases(
    wire: Wire, clock: ManualClock
) -> None:
    """The client wants no more messages, and completes the ones that it has."""
    wire.create_with("a", "b")
    stream = wire.stream(stream_ack_deadline_seconds=20)
    a, _ = stream.messages(2)
    stream.half_close()
    assert stream.end() is grpc.StatusCode.OK
    assert wire.pull(wait=False) == []
    wire.acknowledge(a.ack_id)
    clock.advance(20)
    assert [m.message.data for m in wire.pull()] == [b"b"]


def test_deleting_a_subscription_ends_its_streaming_pulls_with_not_found(
    wire: Wire, other: Wire
) -> None:
    """The streams end with NOT_FOUND, so that clients do not reconnect."""
    wire.create_with("a")
    streams = [wire.stream(), other.stream()]
    streams[0].call.initial_metadata()
    streams[1].call.initial_metadata()
    wire.delete_subscription()
    for stream in streams:
        assert stream.end() is grpc.StatusCode.NOT_FOUND
        assert stream.details() == "Resource not found (resource=billing)."


def test_stopping_the_broker_ends_streaming_pulls_with_unavailable(
    emulator: Emulator, wire: Wire
) -> None:
    """Clients reconnect after this code."""
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    emulator.stop()
    assert stream.end() is grpc.StatusCode.UNAVAILABLE
    assert stream.details() == "The broker is shutting down."


def test_messages_published_after_a_streaming_pull_ended_go_to_other_consumers(wire: Wire) -> None:
    """Messages that are published later go to other consumers."""
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    stream.half_close()
    assert stream.end() is grpc.StatusCode.OK
    wire.publish("a")
    assert [m.message.data for m in wire.pull()] == [b"a"]


def broken_lease(
    subscription: Subscription, consumer: Consumer, limit: int = 0
) -> Sequence[Delivery]:
    """Stand in for a method of the engine that has a fault."""
    raise RuntimeError("a fault of ours")


@pytest.mark.parametrize("method", ["StreamingPull", "Pull"])
def test_an_internal_error_in_a_pull_or_streaming_pull_is_logged_and_sent_to_the_client(
    method: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INTERNAL for the caller, without the details; the trace in the broker's log."""
    broker = Broker(ManualClock())
    monkeypatch.setattr(broker.engine, "lease", broken_lease)
    with caplog.at_level(logging.ERROR, "pullstream"), Emulator(broker=broker) as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        if method == "Pull":
            request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
            call = wire.start("Pull", request)
            code, details = call.exception().code(), call.exception().details()
        else:
            stream = wire.stream()
            code, details = stream.end(), stream.details()
        wire.close()
    assert (code, details) == (grpc.StatusCode.INTERNAL, f"{method} failed inside the broker.")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "a fault of ours" in str(record.exc_info[1])


def test_an_emulator_serves_the_resources_of_the_broker_passed_as_argument(
    clock: ManualClock,
) -> None:
    """The state that a broker serves is an argument."""
    broker = Broker(clock)
    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    with Emulator(broker=broker) as emulator, Wire(emulator.endpoint) as wire:
        assert wire.call("GetTopic", pubsub.GetTopicRequest(topic=TOPIC)).name == TOPIC
