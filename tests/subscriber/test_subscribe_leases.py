"""Leases of a subscription against the broker's own deadlines, on one clock moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from protocol.clock import ManualClock
from subscriber import Message
from subscriber.exceptions import AcknowledgeStatus
from tests.subscriber.streaming.fakes import PATIENCE, eventually
from tests.subscriber.streaming.managed import Gate
from tests.subscriber.world import SUBSCRIPTION, World, world


@pytest.fixture
def here() -> Iterator[World]:
    with world(ManualClock(), enable_message_ordering=True) as here:
        yield here


def test_a_lease_is_extended_for_as_long_as_the_callback_runs(here: World) -> None:
    """The message does not come again, and its acknowledgement counts."""
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
    """And so does one that is held for its key."""
    gate = Gate()
    manager = here.manage(gate, workers=1)
    here.publish(b"first", b"held", key="k")
    here.publish(b"waiting")
    gate.wait_for()
    eventually(lambda: len(manager._leaser) == 3)
    here.advance_extending(200)
    assert here.free() == []
    gate.open(3)
    eventually(lambda: here.backlog == 0)
    assert len(gate.begun) == 3
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_a_message_not_settled_by_its_callback_keeps_its_lease_until_it_is(here: World) -> None:
    """Callbacks may hand it on to whoever settles it later."""
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
    """Granted to another client, they are extended here, acknowledged, or given back at the end."""
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
    """They count as what is received here does, and make room when they are settled."""
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


def test_a_dropped_message_comes_again_when_its_lease_has_ended(here: World) -> None:
    """Nobody extends it."""
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
    eventually(lambda: len(manager._leaser) == 0)
    here.advance(58)
    assert here.backlog == 1
    here.advance(2)
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(PATIENCE) is True


@pytest.mark.parametrize("key", ["", "k"])
def test_after_max_lease_duration_the_server_has_it_back(here: World, key: str) -> None:
    """With a key or without: while one callback is stuck the message comes to another."""
    gate = Gate()
    manager = here.manage(gate, max_lease_duration=100)
    here.publish(b"a", key=key)
    gate.wait_for()
    here.advance_extending(90)
    assert here.free() == []
    here.advance(30)
    if key:
        # It waits behind itself: one callback of a key at a time.
        eventually(lambda: len(manager._hold) == 1)
        gate.open()
    gate.wait_for()
    gate.open(2)
    eventually(lambda: here.backlog == 0)
    assert len(gate.begun) == 2
    manager.stop()
    assert manager.future.result(PATIENCE) is True


def test_a_deadline_set_by_hand_counts_until_the_next_extension(here: World) -> None:
    """A shorter one lets the message come again earlier."""
    gate, other = Gate(), Gate()
    gates = iter((gate, other))
    manager = here.manage(lambda message: next(gates)(message))
    here.publish(b"a")
    gate.wait_for()
    # Its own lease is not extended before 48 seconds have passed.
    message = next(iter(manager._leaser.messages()))
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
