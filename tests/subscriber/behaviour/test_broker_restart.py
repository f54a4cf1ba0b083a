"""Broken streams and lost brokers: automatic recovery, and permanent ends."""

from __future__ import annotations

import threading

import grpc
import pytest

from pullstream import FlowControl, Message, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Gate, Log, Stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.threads import assert_ended_since

pytestmark = pytest.mark.subscription(enable_message_ordering=True)


def restart(here: Stage) -> None:
    """Stop the broker, and start another on the same port with the same state."""
    stop(here)
    start_again(here)


def stop(here: Stage) -> None:
    here.emulator.stop()


def start_again(here: Stage) -> None:
    old = here.emulator
    here.emulator = Emulator(clock=here.clock, port=old.port, broker=old.broker).start()


def test_a_subscription_receives_new_messages_from_a_restarted_broker(here: Stage) -> None:
    """Messages published meanwhile arrive. While it is away again, the close does not wait."""
    collected = Log()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"before")
    eventually(lambda: here.backlog == 0 and len(collected.data) == 1)
    restart(here)
    here.publish(b"after")
    collected.wait_for(2)
    assert collected.data == [b"before", b"after"]
    eventually(lambda: here.backlog == 0)
    assert future.running()
    stop(here)
    try:
        future.cancel()
        assert future.result(TIMEOUT) is True
    finally:
        start_again(here)


def test_a_subscription_started_before_its_broker_connects_when_the_broker_is_up(
    here: Stage,
) -> None:
    """The subscription waits for the broker as it does during an outage."""
    stop(here)
    collected = Log()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    start_again(here)
    here.publish(b"a")
    collected.wait_for(1)
    assert collected.data == [b"a"]
    assert future.running()


def test_acks_made_during_a_broker_outage_are_sent_after_its_restart(here: Stage) -> None:
    """The acks are retried. A message that the broker gave to nobody else is not redelivered."""
    gate = Gate()
    here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=3))
    here.publish(b"a", b"b", b"c")
    gate.wait_for(3)
    stop(here)
    gate.open(3)
    start_again(here)
    gate.open(100)
    eventually(lambda: here.backlog == 0)


def test_a_subscription_paused_by_flow_control_reconnects_to_a_restarted_broker(
    here: Stage,
) -> None:
    """The reader notices the break when it reads again."""
    gate = Gate()
    here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=1))
    here.publish(b"a")
    gate.wait_for(1)
    restart(here)
    here.publish(b"b")
    gate.open(10)
    eventually(lambda: here.backlog == 0)
    ack_ids = [message.ack_id for message in gate.messages]
    assert len(set(ack_ids)) == len(ack_ids)


def test_messages_of_a_key_are_handled_in_order_across_a_broker_restart(here: Stage) -> None:
    """No redelivered message runs before all earlier ones of its key were handled."""
    handled: set[int] = set()
    skipped: list[int] = []
    some = threading.Event()

    def handle(message: Message) -> None:
        number = int(message.data)
        if not handled >= set(range(number)):
            skipped.append(number)
        if number == 50:
            some.set()
        handled.add(number)
        message.ack()

    for start in range(0, 200, 10):
        here.publish(*[str(number).encode() for number in range(start, start + 10)], key="k")
    here.client.subscribe(SUBSCRIPTION, handle, FlowControl(max_messages=20))
    assert some.wait(TIMEOUT)
    restart(here)
    eventually(lambda: here.backlog == 0)
    assert skipped == []
    assert handled == set(range(200))


def test_a_streaming_pull_ends_with_not_found_when_its_subscription_is_deleted(here: Stage) -> None:
    """The error is NOT_FOUND, for which a retry is useless."""
    collected = Log()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"a")
    collected.wait_for(1)
    here.other.delete_subscription(subscription=SUBSCRIPTION)
    assert isinstance(future.exception(TIMEOUT), NotFound)
    assert not future.running()


def test_a_subscription_ends_with_an_error_when_the_user_closes_its_channel(here: Stage) -> None:
    """The channel cannot work again, and nothing waits for unsent requests."""
    before = set(threading.enumerate())
    channel = grpc.insecure_channel(here.emulator.endpoint)
    client = SubscriberClient(channel=channel)
    gate = Gate()
    future = client.subscribe(SUBSCRIPTION, gate)
    here.publish(b"a")
    gate.wait_for(1)
    channel.close()
    error = future.exception(TIMEOUT)
    assert "closed" in str(error)
    gate.open()
    client.close()
    assert_ended_since(before)
