"""Leases of a subscription against the broker's own deadlines, on one clock moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pullstream import Message
from pullstream.exceptions import AcknowledgeStatus
from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import PATIENCE, eventually
from tests.subscriber.streaming.managed import Gate
from tests.subscriber.world import SUBSCRIPTION, World, world


@pytest.fixture
def here() -> Iterator[World]:
    with world(ManualClock(), enable_message_ordering=True) as here:
        yield here


def test_a_lease_is_extended_for_as_long_as_the_callback_runs(here: World) -> None:
    """The message is not redelivered, and its acknowledgement counts."""
    gate = Gate()
    manager = here.manage(gate)
    here.publish(b"a")
    gate.wait_for()
    here.advance_extending(200)
    assert here.free() == []
    gate.open()
    eventually(lambda: here.backlog == 0)
    assert len(gate.begun) == 1
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_a_message_waiting_for_a_worker_keeps_its_lease_too(here: World) -> None:
    """A message that is held for its key keeps its lease as well."""
    gate = Gate()
    manager = here.manage(gate, workers=1)
    here.publish(b"first", b"held", key="k")
    here.publish(b"waiting")
    gate.wait_for()
    eventually(lambda: len(manager._in_flight.leaser) == 3)
    here.advance_extending(200)
    assert here.free() == []
    gate.open(3)
    eventually(lambda: here.backlog == 0)
    assert len(gate.begun) == 3
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_a_message_not_settled_by_its_callback_keeps_its_lease_until_it_is(here: World) -> None:
    """A callback may pass the message on to other code that settles it later."""
    kept: list[Message] = []
    manager = here.manage(kept.append)
    here.publish(b"a")
    eventually(lambda: len(kept) == 1)
    here.advance_extending(200)
    assert here.free() == []
    assert kept[0].ack_with_response().result(PATIENCE) is AcknowledgeStatus.SUCCESS
    assert (here.backlog, len(kept)) == (0, 1)
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_adopted_leases_are_kept_until_they_are_settled(here: World) -> None:
    """Leases of another client are extended here, and acknowledged or returned at the end."""
    here.publish(b"a", b"b")
    pulled = here.other.pull(subscription=SUBSCRIPTION, max_messages=2).received_messages
    gate = Gate()
    manager = here.manage(gate)
    first, second = manager.future.adopt([one.ack_id for one in pulled], 100)
    statistics = manager.future.statistics()
    assert (statistics.leased, statistics.leased_bytes) == (2, 100)
    here.advance_extending(200)
    first.ack()
    eventually(lambda: here.backlog == 1)
    assert (len(gate.begun), second.ack_id) == (0, pulled[1].ack_id)
    manager.stop()
    assert manager.future.result(PATIENCE) is True
    assert here.free() == [b"b"]


def test_adopted_leases_may_pause_the_stream(here: World) -> None:
    """They count like received messages, and make room when they are settled."""
    here.publish(b"a", b"b")
    pulled = here.other.pull(subscription=SUBSCRIPTION, max_messages=2).received_messages
    gate = Gate()
    manager = here.manage(gate, max_messages=2)
    adopted = manager.future.adopt([one.ack_id for one in pulled])
    assert manager.future.statistics().load == 1.0
    here.publish(b"c")
    for message in adopted:
        message.ack()
    gate.wait_for()
    gate.open()
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_a_dropped_message_is_redelivered_when_its_lease_has_ended(here: World) -> None:
    """Nothing extends the lease."""
    dropped = threading.Event()

    def drop_once(message: Message) -> None:
        if dropped.is_set():
            message.ack()
        else:
            message.drop()
            dropped.set()

    manager = here.manage(drop_once)
    here.publish(b"a")
    assert dropped.wait(PATIENCE)
    eventually(lambda: len(manager._in_flight.leaser) == 0)
    here.advance(58)
    assert here.backlog == 1
    here.advance(2)
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(PATIENCE) is True


@pytest.mark.parametrize("key", ["", "k"])
def test_after_max_lease_duration_the_server_has_it_back(here: World, key: str) -> None:
    """While one callback is stuck, another gets the message, with a key or without."""
    gate = Gate()
    manager = here.manage(gate, max_lease_duration=100)
    here.publish(b"a", key=key)
    gate.wait_for()
    here.advance_extending(90)
    assert here.free() == []
    here.advance(30)
    if key:
        # The message waits behind itself, as each key has one callback at a time.
        eventually(lambda: len(manager._in_flight._hold) == 1)
        gate.open()
    gate.wait_for()
    gate.open(2)
    eventually(lambda: here.backlog == 0)
    assert len(gate.begun) == 2
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_a_deadline_set_by_hand_counts_until_the_next_extension(here: World) -> None:
    """A shorter deadline causes an earlier redelivery."""
    gate, other = Gate(), Gate()
    gates = iter((gate, other))
    manager = here.manage(lambda message: next(gates)(message))
    here.publish(b"a")
    gate.wait_for()
    # Its own lease is not extended in the first 48 seconds.
    message = next(iter(manager._in_flight.leaser.leased_messages()))
    assert message.modify_ack_deadline_with_response(20).result(PATIENCE)
    here.advance(18)
    assert here.free() == []
    here.advance(2)
    other.wait_for()
    gate.open()
    other.open()
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(PATIENCE) is True
