"""Requests on a streaming pull: heartbeats, acknowledgements, deadlines, and errors."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.wire import Wire

# No valid message begins with these bytes.
GARBAGE = b"\xff\xff"


def test_an_empty_streaming_pull_request_is_answered_with_an_empty_response(wire: Wire) -> None:
    """The response shows a client of protocol version 1 that the stream is alive."""
    wire.create()
    stream = wire.stream(protocol_version=1)
    empty = pubsub.StreamingPullResponse(
        subscription_properties=pubsub.StreamingPullResponse.SubscriptionProperties()
    )
    for _ in range(3):
        stream.send()
        assert stream.next() == empty


def test_heartbeats_of_streaming_pulls_without_protocol_version_get_no_answer(
    wire: Wire,
) -> None:
    """Older clients expect none: when they half-close, the last response is the only one."""
    wire.create()
    stream = wire.stream(protocol_version=None)
    stream.send()
    stream.send()
    stream.half_close()
    assert len(list(stream.call)) == 1


def test_a_streaming_pull_request_with_content_is_not_answered_as_a_heartbeat(wire: Wire) -> None:
    """Only an empty request gets an answer."""
    wire.create_with("a", "b")
    stream = wire.stream()
    a, b = stream.messages(2)
    stream.send(ack_ids=[a.ack_id])
    stream.send(modify_deadline_ack_ids=[b.ack_id], modify_deadline_seconds=[30])
    stream.send(stream_ack_deadline_seconds=20)
    stream.half_close()
    assert len(list(stream.call)) == 1


def test_messages_can_be_acknowledged_by_a_streaming_pull_request(
    wire: Wire, emulator: Emulator
) -> None:
    """The first request may also acknowledge messages of an earlier stream."""
    wire.create_with("a", "b")
    a, b = wire.pull()
    stream = wire.stream(ack_ids=[a.ack_id])
    stream.send(ack_ids=[b.ack_id])
    assert stream.is_quiet()
    assert emulator.backlog(SUBSCRIPTION) == 0


def test_ack_deadlines_can_be_modified_by_a_streaming_pull_request(
    wire: Wire, clock: ManualClock
) -> None:
    """Each message has its own deadline. A deadline of 0 is a nack."""
    wire.create_with("a", "b", "c")
    stream = wire.stream(stream_ack_deadline_seconds=10)
    ids = [m.ack_id for m in stream.messages(3)]
    stream.send(modify_deadline_ack_ids=ids, modify_deadline_seconds=[600, 0, 30])
    assert stream.data(1) == ["b"]
    clock.advance(10)
    assert stream.data(1) == ["b"]
    clock.advance(20)
    assert sorted(stream.data(2)) == ["b", "c"]


def test_a_changed_stream_ack_deadline_applies_to_later_deliveries_of_the_streaming_pull(
    wire: Wire, clock: ManualClock
) -> None:
    """Existing leases keep their length."""
    wire.create_with("a")
    stream = wire.stream(stream_ack_deadline_seconds=60)
    assert stream.data(1) == ["a"]
    stream.send(stream_ack_deadline_seconds=10)
    assert stream.is_quiet()
    wire.publish("b")
    assert stream.data(1) == ["b"]
    clock.advance(10)
    assert stream.data(1) == ["b"]
    assert stream.is_quiet()


def test_stale_ack_ids_in_a_streaming_pull_request_are_ignored(wire: Wire) -> None:
    """Without exactly-once delivery a late answer is no error."""
    wire.create_with("a")
    (a,) = wire.pull()
    wire.acknowledge(a.ack_id)
    stream = wire.stream(ack_ids=[a.ack_id])
    stream.send(modify_deadline_ack_ids=[a.ack_id], modify_deadline_seconds=[10])
    assert stream.is_quiet()


def test_with_exactly_once_delivery_a_streaming_pull_confirms_acknowledgements(wire: Wire) -> None:
    """The confirmation has the IDs that counted and the IDs that did not."""
    wire.create_with("a", "b", "c", enable_exactly_once_delivery=True)
    stream = wire.stream()
    a, b, c = (m.ack_id for m in stream.messages(3))
    # It has the right form but was never assigned.
    unknown = "ffffff" + a[a.index("-") :]
    stream.send(ack_ids=[unknown, b])
    acked = stream.next().acknowledge_confirmation
    assert [*acked.ack_ids, "invalid:", *acked.invalid_ack_ids] == [b, "invalid:", unknown]
    stream.send(modify_deadline_ack_ids=[b, c], modify_deadline_seconds=[30, 30])
    modified = stream.next().modify_ack_deadline_confirmation
    assert [*modified.ack_ids, "invalid:", *modified.invalid_ack_ids] == [c, "invalid:", b]


def ack_deadline(seconds: int, minimum: int) -> str:
    return (
        f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between "
        f"{minimum} and 600 seconds."
    )


LENGTHS = (
    "The fields modify_deadline_seconds and modify_deadline_ack_ids must have the same length; "
    "they have 0 and 1."
)
INVALID_ID = "You have passed an invalid ack ID to the service (ack_id=bad)."


@pytest.mark.parametrize(
    ("first", "code", "text"),
    [
        (
            {"subscription": None},
            "INVALID_ARGUMENT",
            "The first StreamingPullRequest must set the field subscription.",
        ),
        (
            {"stream_ack_deadline_seconds": None},
            "INVALID_ARGUMENT",
            "The first StreamingPullRequest must set the field stream_ack_deadline_seconds.",
        ),
        ({"subscription": "x"}, "INVALID_ARGUMENT", "Invalid resource name given (name=x)."),
        (
            {"subscription": "projects/test/subscriptions/missing"},
            "NOT_FOUND",
            "Resource not found (resource=missing).",
        ),
        *(
            ({"stream_ack_deadline_seconds": n}, "INVALID_ARGUMENT", ack_deadline(n, 10))
            for n in (-1, 9, 601)
        ),
        ({"modify_deadline_ack_ids": ["bad"]}, "INVALID_ARGUMENT", LENGTHS),
        ({"ack_ids": ["bad"]}, "INVALID_ARGUMENT", INVALID_ID),
    ],
)
def test_a_streaming_pull_with_an_invalid_first_request_is_refused(
    wire: Wire, first: dict[str, Any], code: str, text: str
) -> None:
    """The error names the field. No message was delivered to the stream."""
    wire.create_with("a")
    stream = wire.stream(**first)
    assert stream.end().name == code
    assert stream.details().startswith(text)
    assert [m.message.data for m in wire.pull()] == [b"a"]


def first_only(field: str) -> str:
    return f"The field {field} may be set only in the first StreamingPullRequest."


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ({"subscription": SUBSCRIPTION}, first_only("subscription")),
        ({"max_outstanding_messages": 5}, first_only("max_outstanding_messages")),
        ({"max_outstanding_bytes": 5}, first_only("max_outstanding_bytes")),
        ({"protocol_version": 1}, first_only("protocol_version")),
        ({"stream_ack_deadline_seconds": 9}, ack_deadline(9, 10)),
        ({"stream_ack_deadline_seconds": 601}, ack_deadline(601, 10)),
        ({"modify_deadline_ack_ids": ["bad"]}, LENGTHS),
        (
            {"modify_deadline_ack_ids": ["bad"], "modify_deadline_seconds": [10]},
            INVALID_ID,
        ),
        *(
            (
                {"modify_deadline_ack_ids": ["good"], "modify_deadline_seconds": [n]},
                ack_deadline(n, 0),
            )
            for n in (-1, 601)
        ),
    ],
)
def test_an_invalid_later_request_ends_a_streaming_pull_and_has_no_effect(
    wire: Wire, clock: ManualClock, later: dict[str, Any], text: str
) -> None:
    """The valid parts of the request are not carried out: the message is redelivered."""
    wire.create_with("a")
    stream = wire.stream()
    (a,) = stream.messages(1)
    good = {k: [a.ack_id] if v == ["good"] else v for k, v in later.items()}
    stream.send(ack_ids=[a.ack_id], **good)
    assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT
    assert stream.details() == text
    clock.advance(60)
    assert [m.message.data for m in wire.pull()] == [b"a"]


def test_an_undecodable_grpc_request_is_refused_with_invalid_argument(wire: Wire) -> None:
    """The code is one that clients do not retry, for the first request and for later ones."""
    wire.create()
    stream = wire.stream()
    stream.send_raw(GARBAGE)
    first = wire.raw("StreamingPull")(iter([GARBAGE]))
    unary = wire.raw("GetTopic").future(GARBAGE)
    waiting = wire.raw("Pull").future(GARBAGE)
    assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT
    assert stream.details().startswith("The request is not a valid StreamingPullRequest: ")
    assert first.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert unary.exception().code() is grpc.StatusCode.INVALID_ARGUMENT
    assert unary.details().startswith("The request is not a valid GetTopicRequest: ")
    assert waiting.exception().code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_streaming_pull_half_closed_before_any_request_ends_with_ok(wire: Wire) -> None:
    """The client requested nothing."""
    assert wire.raw("StreamingPull")(iter([])).code() is grpc.StatusCode.OK
