"""Ack IDs of present leases, ack IDs of former leases, and IDs that never existed."""

from __future__ import annotations

import pytest

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC, Broker, broker_holding


def test_an_acknowledgement_after_the_end_of_the_lease_prevents_the_redelivery() -> None:
    """The acknowledgement counts if the message has not been delivered again."""
    broker = broker_holding("a", "b")
    late = broker.join(deadline=10).take()
    broker.advance(10)
    assert broker.acknowledge(late[0]) == []
    assert broker.backlog == 1
    assert broker.join().take_data() == ["b"]


def test_an_ack_id_of_an_earlier_delivery_neither_ends_nor_extends_the_current_lease() -> None:
    """The rule holds for an acknowledgement, a nack and an extension."""
    broker = broker_holding("a")
    consumer = broker.join(deadline=10)
    (old,) = consumer.take()
    broker.nack(old)
    (new,) = consumer.take()
    for answer in (broker.acknowledge(old), broker.nack(old), broker.modify(600, old)):
        assert answer == [old.ack_id]
    assert consumer.take_data() == []
    broker.advance(10)
    assert consumer.take_data() == ["a"]
    assert broker.acknowledge(new) == [new.ack_id]


def test_an_ack_id_repeated_in_an_acknowledge_request_acknowledges_its_message_once() -> None:
    """The second occurrence is not stale."""
    broker = broker_holding("a")
    (got,) = broker.join().take()
    assert broker.acknowledge(got, got) == []


def test_a_well_formed_ack_id_that_was_never_issued_is_treated_as_stale() -> None:
    """The broker cannot distinguish such an ID from one that was forgotten long ago."""
    broker = broker_holding("a")
    (got,) = broker.join().take()
    number, mark = got.ack_id.split("-")
    unknown = f"{int(number, 16) + 5:x}-{mark}"
    assert list(broker.engine.acknowledge(SUBSCRIPTION, [unknown])) == [unknown]


MALFORMED = ("", "x", "-", "1", "1-", "0x1-{mark}", "-1-{mark}", "A-{mark}", "{mark}", "1 -{mark}")


@pytest.mark.parametrize("bad", [*MALFORMED, "1" * 17 + "-{mark}", "{number}-{mark}-{mark}"])
def test_a_request_with_one_malformed_ack_id_is_refused_as_a_whole(bad: str) -> None:
    """The good IDs of the request are not applied either."""
    broker = broker_holding("a", "b")
    good, other = broker.join(deadline=10).take()
    number, mark = good.ack_id.split("-")
    bad = bad.format(number=number, mark=mark)
    text = f"You have passed an invalid ack ID to the service (ack_id={bad})."
    with pytest.raises(InvalidArgument) as refused:
        broker.engine.acknowledge(SUBSCRIPTION, [good.ack_id, bad])
    assert refused.value.message == text
    with pytest.raises(InvalidArgument) as refused:
        broker.engine.modify_ack_deadline(SUBSCRIPTION, [other.ack_id, bad], 600)
    assert refused.value.message == text
    broker.advance(10)
    assert broker.join().take_data() == ["a", "b"]


def test_acknowledging_an_ack_id_of_another_subscription_is_refused(broker: Broker) -> None:
    """The ID is an error of the caller, not a late answer."""
    other = f"{PROJECT}/subscriptions/other"
    broker.engine.create_subscription(pubsub.Subscription(name=other, topic=TOPIC))
    broker.publish("a")
    (got,) = broker.join().take()
    with pytest.raises(InvalidArgument, match="invalid ack ID"):
        broker.engine.acknowledge(other, [got.ack_id])
    assert broker.backlog == 1


def test_an_acknowledge_request_without_ack_ids_is_refused(broker: Broker) -> None:
    """An empty request is an error."""
    text = "You have not specified an ack ID in the request."
    with pytest.raises(InvalidArgument) as refused:
        broker.acknowledge()
    assert refused.value.message == text
    with pytest.raises(InvalidArgument) as refused:
        broker.modify(10)
    assert refused.value.message == text


@pytest.mark.parametrize("seconds", [-1, 601])
def test_modifying_an_ack_deadline_to_a_value_out_of_bounds_is_refused(seconds: int) -> None:
    """The limits are 0 and 600. The lease is unchanged."""
    broker = broker_holding("a")
    consumer = broker.join(deadline=10)
    (got,) = consumer.take()
    with pytest.raises(InvalidArgument) as refused:
        broker.modify(seconds, got)
    assert refused.value.message == (
        f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 "
        "and 600 seconds."
    )
    broker.advance(10)
    assert consumer.take_data() == ["a"]


def test_after_a_late_ack_only_the_consumer_that_may_take_the_next_message_is_woken() -> None:
    """A message that was acknowledged late wakes nobody. The holder of a key is woken instead."""
    broker = broker_holding("k1", "k2", "k3", key="k", enable_message_ordering=True)
    keyed, other, third = broker.join(max_messages=2), broker.join(max_messages=1), broker.join()
    k1, k2 = keyed.take()
    broker.publish("u1", "u2")
    (u1,) = other.take()
    (u2,) = third.take()
    assert other.take() == keyed.take() == []
    broker.nack(u2)
    broker.acknowledge(u2)
    # Now both have room, and there is one message: k3, which only the holder of its key may take.
    broker.acknowledge(k2, u1)
    assert (other.wakes, other.take()) == (0, [])
    assert (keyed.wakes, keyed.take_data()) == (1, ["k3"])
    assert broker.acknowledge(k1) == []
