"""Exactly-once delivery: guarantees and failures of acknowledgements."""

from __future__ import annotations

import pytest

from pullstream_emulator.engine.delivery.ack_ids import INVALID, TRANSIENT, UNORDERED
from pullstream_protocol import errors
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, Broker, Got, broker_holding
from tests.emulator.wire import Wire

REASON = "EXACTLY_ONCE_ACKID_FAILURE"


def exactly_once(*data: str, key: str = "") -> Broker:
    """Return a broker with these messages, in order if they have a key."""
    return broker_holding(
        *data, key=key, enable_exactly_once_delivery=True, enable_message_ordering=bool(key)
    )


def refused(broker: Broker, *got: Got) -> dict[str, str]:
    """Return why the messages could not be acknowledged, by data."""
    refusals = broker.engine.acknowledge(SUBSCRIPTION, [each.ack_id for each in got])
    return {each.data: refusals[each.ack_id] for each in got if each.ack_id in refusals}


def test_an_acknowledgement_with_an_expired_exactly_once_ack_id_is_refused() -> None:
    """The ID is refused even before the message is delivered again."""
    broker = exactly_once("a")
    consumer = broker.join(deadline=10)
    (late,) = consumer.take()
    broker.advance(10)
    assert refused(broker, late) == {"a": INVALID}
    assert consumer.take_data() == ["a"]


def test_an_already_acknowledged_exactly_once_ack_id_can_be_acknowledged_again() -> None:
    """The client may have lost the first answer."""
    broker = exactly_once("a")
    (got,) = broker.join().take()
    assert refused(broker, got) == {}
    assert refused(broker, got) == {}
    assert broker.backlog == 0


def test_valid_ack_ids_are_acknowledged_although_the_same_request_has_an_invalid_one() -> None:
    """A request is not a transaction."""
    broker = exactly_once("a", "b")
    old, good = broker.join().take()
    broker.nack(old)
    assert refused(broker, old, good) == {"a": INVALID}
    assert broker.backlog == 1


def test_with_exactly_once_delivery_messages_of_a_key_must_be_acknowledged_in_order() -> None:
    """An acknowledgement of a later message must be repeated afterwards.

    That message stays leased.
    """
    broker = exactly_once("1", "2", "3", key="k")
    one, two, three = broker.join(deadline=600).take()
    assert refused(broker, two, three) == {"2": UNORDERED, "3": UNORDERED}
    assert refused(broker, one) == {}
    assert refused(broker, three) == {"3": UNORDERED}
    assert refused(broker, two) == {}
    assert refused(broker, three) == {}
    assert broker.backlog == 0


def test_an_acknowledge_request_may_name_ack_ids_of_an_ordering_key_in_any_order() -> None:
    """The request is processed as a whole."""
    broker = exactly_once("1", "2", "3", key="k")
    one, two, three = broker.join().take()
    assert refused(broker, three, one, two) == {}
    assert broker.backlog == 0


def test_with_exactly_once_delivery_a_failed_message_restarts_its_key_at_that_message() -> None:
    """The messages after the failed one are redelivered with it, and their old IDs are stale."""
    broker = exactly_once("1", "2", "3", key="k")
    consumer = broker.join(deadline=600)
    one, two, three = consumer.take()
    broker.nack(one)
    again = consumer.take()
    assert refused(broker, three, two) == {"2": INVALID, "3": INVALID}
    assert [(got.data, got.failed_before) for got in again] == [("1", 1), ("2", 0), ("3", 0)]
    assert refused(broker, *again) == {}


def test_exactly_once_acks_of_other_messages_do_not_wait_for_a_blocked_ordering_key() -> None:
    """The order applies to one key."""
    broker = exactly_once("k1", key="k")
    broker.publish("x1", key="x")
    broker.publish("free")
    got = {each.data: each for each in broker.join().take()}
    assert refused(broker, got["free"], got["x1"]) == {}


def test_exactly_once_delivery_can_be_switched_on_by_an_update() -> None:
    """An earlier acknowledgement after an unfinished message of the key causes no failure."""
    broker = broker_holding("1", "2", "3", key="k", enable_message_ordering=True)
    one, two, three = broker.join().take()
    broker.acknowledge(two)
    broker.update(enable_exactly_once_delivery=True)
    assert refused(broker, three) == {"3": UNORDERED}
    assert refused(broker, one) == {}
    assert refused(broker, three) == {}
    assert broker.backlog == 0


def test_an_expired_exactly_once_ack_id_cannot_get_a_new_ack_deadline() -> None:
    """The lease can be neither extended nor ended."""
    broker = exactly_once("a")
    (late,) = broker.join(deadline=10).take()
    broker.advance(10)
    for seconds in (0, 60):
        refusals = broker.engine.modify_ack_deadline(SUBSCRIPTION, [late.ack_id], seconds)
        assert refusals == {late.ack_id: INVALID}


# ---- over gRPC -----------------------------------------------------------------------------------


def test_the_error_of_an_exactly_once_acknowledge_call_has_the_result_of_each_ack_id(
    wire: Wire,
) -> None:
    """An ErrorInfo names every ID. The valid ones are acknowledged, and their repeat succeeds.

    Official clients count an ID that such an error does not name as failed.
    """
    wire.create(enable_exactly_once_delivery=True, enable_message_ordering=True)
    wire.publish("1", "2", "3", key="k")
    wire.publish("free", "returned")
    by_data = {r.message.data.decode(): r.ack_id for r in wire.pull()}
    wire.acknowledge(by_data["1"])
    wire.modify(0, by_data["returned"])
    ack_ids = [by_data[data] for data in ("1", "3", "free", "returned")]
    request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
    error = wire.failure("Acknowledge", request)
    assert isinstance(error, errors.InvalidArgument)
    assert error.reason == REASON
    assert error.metadata == {
        by_data["returned"]: INVALID,
        by_data["3"]: UNORDERED,
        by_data["1"]: TRANSIENT,
        by_data["free"]: TRANSIENT,
    }
    wire.acknowledge(by_data["1"], by_data["free"])


def test_a_streaming_pull_with_exactly_once_delivery_confirms_each_acknowledged_ack_id(
    wire: Wire,
) -> None:
    """The results are acknowledged, invalid, and out of order."""
    wire.create(enable_exactly_once_delivery=True, enable_message_ordering=True)
    wire.publish("1", "2", "3", key="k")
    stream = wire.stream()
    one, two, three = (received.ack_id for received in stream.messages(3))
    wire.acknowledge(one)
    # It has the right form but was never assigned.
    unknown = "ffffff" + one[one.index("-") :]
    stream.send(ack_ids=[unknown, one, three])
    confirmation = stream.next().acknowledge_confirmation
    assert confirmation == pubsub.StreamingPullResponse.AcknowledgeConfirmation(
        ack_ids=[one], invalid_ack_ids=[unknown], unordered_ack_ids=[three]
    )
    stream.send(ack_ids=[two, three])
    assert list(stream.next().acknowledge_confirmation.ack_ids) == [two, three]
    stream.send(modify_deadline_ack_ids=[two], modify_deadline_seconds=[0])
    assert list(stream.next().modify_ack_deadline_confirmation.invalid_ack_ids) == [two]


@pytest.mark.parametrize("ordered", [False, True])
def test_without_exactly_once_delivery_acknowledging_a_stale_ack_id_succeeds(
    wire: Wire, ordered: bool
) -> None:
    """A stale ID is ignored."""
    wire.create(enable_message_ordering=ordered)
    wire.publish("1", "2", key="k")
    one, two = (received.ack_id for received in wire.pull())
    wire.acknowledge(two)
    wire.acknowledge(two, one, one)
    wire.acknowledge(one)
