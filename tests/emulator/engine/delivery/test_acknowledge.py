"""Acknowledge and ModifyAckDeadline over gRPC: exactly-once failures, attempts, sizes."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import status_pb2

from pullstream_emulator import Emulator
from pullstream_protocol import errors
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
TRANSIENT = "TRANSIENT_FAILURE_INVALID_ACK_ID"
SOME_INVALID = (
    "Some acknowledgement ids in the request were invalid. This could be because the "
    "acknowledgement ids have expired or the acknowledgement ids were malformed."
)


def acknowledge(*ack_ids: str) -> tuple[str, Message]:
    return "Acknowledge", pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)


def modify(seconds: int, *ack_ids: str) -> tuple[str, Message]:
    return "ModifyAckDeadline", pubsub.ModifyAckDeadlineRequest(
        subscription=SUBSCRIPTION, ack_ids=ack_ids, ack_deadline_seconds=seconds
    )


def publish_and_pull(wire: Wire, count: int) -> list[str]:
    wire.publish(*["x"] * count)
    ids: list[str] = []
    while len(ids) < count:
        ids += [m.ack_id for m in wire.pull(1000)]
    return ids


def test_an_acknowledged_message_is_removed_from_the_backlog_of_its_subscription(
    wire: Wire, emulator: Emulator
) -> None:
    """The call succeeds, also when repeated."""
    wire.create()
    (a,) = publish_and_pull(wire, 1)
    wire.acknowledge(a)
    wire.acknowledge(a)
    assert emulator.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize("how", ["nacked", "expired", "redelivered"])
def test_the_error_of_an_exactly_once_acknowledge_call_names_each_refused_ack_id(
    wire: Wire, clock: ManualClock, how: str
) -> None:
    """The good IDs are acknowledged, and named as failures to repeat: their repeat succeeds."""
    wire.create(enable_exactly_once_delivery=True)
    (bad,) = publish_and_pull(wire, 1)
    if how == "nacked":
        wire.modify(0, bad)
    else:
        clock.advance(10)
    if how == "redelivered":
        wire.pull()
    good = publish_and_pull(wire, 1)[0] if how == "redelivered" else ""
    for call in (
        modify(30, *filter(None, (good, bad))),
        acknowledge(*filter(None, (good, bad))),
    ):
        error = wire.failure(*call)
        assert isinstance(error, errors.InvalidArgument)
        assert error.message == SOME_INVALID
        assert error.reason == "EXACTLY_ONCE_ACKID_FAILURE"
        assert error.domain == "pubsub.googleapis.com"
        valid = {good: TRANSIENT} if good else {}
        assert dict(error.metadata) == {bad: INVALID, **valid}
    if good:
        # It was acknowledged together with the bad one, and can be repeated.
        wire.acknowledge(good)


@pytest.mark.parametrize("key", ["", "k"])
def test_with_exactly_once_delivery_a_repeated_acknowledgement_succeeds(
    wire: Wire, clock: ManualClock, key: str
) -> None:
    """The first answer may have been lost.

    This works for eleven minutes, because official clients repeat it for ten, and for
    acknowledgements only.
    """
    wire.create(enable_exactly_once_delivery=True, enable_message_ordering=True)
    wire.publish("a", "b", key=key)
    first, second = (message.ack_id for message in wire.pull(2))
    wire.acknowledge(first)
    assert dict(wire.failure(*modify(30, first)).metadata) == {first: INVALID}
    wire.acknowledge(first, second)
    clock.advance(659)
    wire.acknowledge(second, first)
    clock.advance(134)
    assert dict(wire.failure(*acknowledge(first)).metadata) == {first: INVALID}


def test_an_expired_exactly_once_ack_id_is_refused_though_its_message_is_acknowledged(
    wire: Wire, clock: ManualClock
) -> None:
    """The rule holds even if another ID of the message was acknowledged since."""
    wire.create(enable_exactly_once_delivery=True)
    (expired,) = publish_and_pull(wire, 1)
    clock.advance(10)
    (renewed,) = (message.ack_id for message in wire.pull())
    wire.acknowledge(renewed)
    error = wire.failure(*acknowledge(renewed, expired))
    assert dict(error.metadata) == {renewed: TRANSIENT, expired: INVALID}


def test_error_details_of_an_acknowledge_call_repeat_the_code_and_text_of_its_grpc_status(
    wire: Wire,
) -> None:
    """The official Python client discards details with another code or text."""
    wire.create(enable_exactly_once_delivery=True)
    (a,) = publish_and_pull(wire, 1)
    wire.modify(0, a)
    refused = wire.start(*acknowledge(a)).exception()
    (details,) = (v for k, v in refused.trailing_metadata() if k == "grpc-status-details-bin")
    status = status_pb2.Status.FromString(details)
    assert (status.code, status.message) == (refused.code().value[0], refused.details())


def test_an_exactly_once_acknowledge_call_with_too_many_stale_ack_ids_acknowledges_nothing(
    wire: Wire, emulator: Emulator
) -> None:
    """Clients refuse longer headers, and would repeat the request for minutes."""
    wire.create(enable_exactly_once_delivery=True)
    stale = publish_and_pull(wire, 150)
    wire.modify(0, *stale)
    wire.acknowledge(*(message.ack_id for message in wire.pull(150)))
    (good,) = publish_and_pull(wire, 1)
    for call in (acknowledge(good, *stale), modify(0, good, *stale)):
        error = wire.failure(*call)
        assert isinstance(error, errors.InvalidArgument)
        assert error.message == (
            "150 of the 151 acknowledgement ids in the request were invalid. An error cannot list "
            "all of them, so the request had no effect."
        )
    assert emulator.backlog(SUBSCRIPTION) == 1
    assert wire.pull(wait=False) == []
    error = wire.failure(*acknowledge(good, *stale[:90]))
    assert dict(error.metadata) == {good: TRANSIENT, **dict.fromkeys(stale[:90], INVALID)}
    assert emulator.backlog(SUBSCRIPTION) == 0


def test_without_exactly_once_delivery_acknowledge_ignores_stale_ack_ids(
    wire: Wire,
) -> None:
    """A client that was disconnected for a while acknowledges its old messages."""
    wire.create()
    stale = publish_and_pull(wire, 1000)
    wire.acknowledge(*stale)
    wire.acknowledge(*stale)


def test_with_a_dead_letter_policy_pulled_messages_have_a_delivery_attempt_number(
    wire: Wire, clock: ManualClock
) -> None:
    """The attempt is the number of nacks and expired leases plus one."""
    dead = f"{TOPIC}-dead"
    wire.call("CreateTopic", pubsub.Topic(name=dead))
    wire.create_with("a", dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=dead))
    (first,) = wire.pull()
    wire.modify(0, first.ack_id)
    (second,) = wire.pull()
    clock.advance(10)
    (third,) = wire.stream().messages(1)
    attempts = [m.delivery_attempt for m in (first, second, third)]
    assert attempts == [1, 2, 3]


def test_without_a_dead_letter_policy_pulled_messages_have_no_delivery_attempt_number(
    wire: Wire,
) -> None:
    """The field is 0, which clients show as unknown."""
    wire.create_with("a")
    for _ in range(2):
        (a,) = wire.pull()
        assert a.delivery_attempt == 0
        wire.modify(0, a.ack_id)


def test_an_acknowledge_request_of_more_than_512_kilobytes_is_refused(wire: Wire) -> None:
    """The error names the limit."""
    wire.create()
    (a,) = publish_and_pull(wire, 1)
    for method, request in (acknowledge(a, "0" * 524_288), modify(10, a, "0" * 524_288)):
        refused = wire.start(method, request).exception()
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refused.details() == (
            "The value for request_size is too large. You passed "
            f"{request.ByteSize()} in the request, but the maximum value is 524288."
        )


def test_an_error_about_a_long_ack_id_quotes_only_a_part_of_the_id(wire: Wire) -> None:
    """A status travels in a header. Clients refuse long headers with a code that is retried."""
    wire.create()
    refused = wire.start(*acknowledge("é" * 100_000)).exception()
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.details().startswith("You have passed an invalid ack ID to the service")
    assert refused.details().endswith("é...")
