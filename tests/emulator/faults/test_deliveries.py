"""Faults of deliveries: duplicates, another order, and leases that end at once."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.faults import Faults
from pullstream_protocol.clock import ManualClock
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.wire import Wire, ack_ids_of, data_of

# Only keys define an order.
pytestmark = pytest.mark.subscription(enable_message_ordering=True)

LETTERS = [*"abcdefgh"]


# ---- duplicates ----------------------------------------------------------------------------------


def test_the_duplicate_fault_delivers_a_message_twice_on_a_streaming_pull(
    faults: Faults, wire: Wire
) -> None:
    """One response has the same message under two ack IDs."""
    fault = faults.duplicate_deliveries(times=1)
    wire.publish("a", "b")
    stream = wire.stream()
    first, second, other = stream.messages(3)
    assert (first.message, other.message.data) == (second.message, b"b")
    assert first.ack_id != second.ack_id
    assert fault.hits == 1


def test_the_duplicate_fault_delivers_each_message_of_a_pull_twice(
    faults: Faults, wire: Wire
) -> None:
    """Each message of the pull is duplicated while the fault is active."""
    faults.duplicate_deliveries()
    wire.publish("a", "b")
    assert data_of(wire.pull()) == ["a", "a", "b", "b"]


def test_one_acknowledgement_suffices_for_a_message_duplicated_by_a_fault(
    faults: Faults, wire: Wire, emulator: Emulator, clock: ManualClock
) -> None:
    """The client acknowledges, extends and nacks both copies."""
    faults.duplicate_deliveries()
    wire.publish("a", "b")
    a, again, b, _ = wire.pull()
    wire.modify(60, a.ack_id, again.ack_id)
    wire.acknowledge(a.ack_id, again.ack_id)
    assert emulator.backlog(SUBSCRIPTION) == 1
    wire.modify(0, again.ack_id)
    assert emulator.backlog(SUBSCRIPTION) == 1
    wire.acknowledge(b.ack_id)
    clock.advance(600)
    assert wire.pull(wait=False) == []


def test_messages_duplicated_by_a_fault_keep_the_order_of_their_ordering_key(
    faults: Faults, wire: Wire
) -> None:
    """The two copies are adjacent."""
    faults.duplicate_deliveries()
    wire.publish("a", "b", key="k")
    assert wire.stream().data(4) == ["a", "a", "b", "b"]


# ---- order ---------------------------------------------------------------------------------------


def test_the_shuffle_fault_changes_the_order_of_the_messages_of_a_response(
    faults: Faults, wire: Wire
) -> None:
    """Each message has its own ack ID. The next response has the normal order."""
    fault = faults.shuffle_deliveries(times=1)
    wire.publish(*LETTERS)
    received = wire.pull()
    assert data_of(received) != LETTERS
    assert sorted(data_of(received)) == LETTERS
    assert len(set(ack_ids_of(received))) == len(LETTERS)
    assert fault.hits == 1
    wire.modify(0, received[-1].ack_id)
    assert data_of(wire.pull()) == [received[-1].message.data.decode()]


def test_the_shuffle_fault_keeps_messages_with_an_ordering_key_in_order(
    faults: Faults, wire: Wire
) -> None:
    """The order of a key is promised, so only the other messages move."""
    faults.shuffle_deliveries()
    wire.publish(*LETTERS[:4], key="k")
    wire.publish(*LETTERS[4:])
    received = data_of(wire.pull())
    assert [data for data in received if data in LETTERS[:4]] == LETTERS[:4]
    assert [data for data in received if data in LETTERS[4:]] != LETTERS[4:]


def test_the_shuffle_fault_counts_no_hit_for_a_response_with_a_single_message(
    faults: Faults, wire: Wire
) -> None:
    """The fault waits for a response with more messages."""
    fault = faults.shuffle_deliveries(times=1)
    wire.publish("a")
    assert data_of(wire.pull()) == ["a"]
    assert fault.hits == 0
    wire.publish("b", "c")
    assert data_of(wire.pull()) == ["c", "b"]


# ---- leases --------------------------------------------------------------------------------------


def test_the_expire_fault_ends_a_lease_as_soon_as_the_message_is_sent(
    faults: Faults, wire: Wire
) -> None:
    """The message is redelivered under another ack ID, without any time passing."""
    fault = faults.expire_leases(times=1)
    wire.publish("a")
    stream = wire.stream()
    first, second = stream.messages(2)
    assert first.message == second.message
    assert first.ack_id != second.ack_id
    assert fault.hits == 1


def test_an_ack_id_whose_lease_the_expire_fault_ended_does_not_acknowledge_the_message(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """The rule holds after the redelivery."""
    faults.expire_leases(times=1)
    wire.publish("a")
    first, second = wire.stream().messages(2)
    wire.acknowledge(first.ack_id)
    assert emulator.backlog(SUBSCRIPTION) == 1
    wire.acknowledge(second.ack_id)
    assert emulator.backlog(SUBSCRIPTION) == 0


def test_the_expire_fault_ends_the_leases_of_messages_received_by_a_pull(
    faults: Faults, wire: Wire
) -> None:
    """The next pull receives the message again."""
    faults.expire_leases(times=1, resource="billing")
    wire.publish("a")
    assert data_of(wire.pull()) == ["a"]
    assert data_of(wire.pull()) == ["a"]
    assert wire.pull(wait=False) == []


def test_a_lease_ended_by_the_expire_fault_is_recorded_as_expiry_in_the_history(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """The end is recorded like a lease that reached its deadline."""
    faults.expire_leases(times=2)
    wire.publish("a")
    wire.stream().messages(3)
    assert [event.attempt for event in emulator.history.expiries(SUBSCRIPTION)] == [1, 2]
    assert [event.attempt for event in emulator.history.deliveries()] == [1, 2, 3]
