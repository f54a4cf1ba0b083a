"""Broken streams and lost brokers: automatic recovery, and permanent ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from pullstream import FlowControl, Message, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import PATIENCE, eventually
from tests.subscriber.streaming.managed import Gate
from tests.subscriber.world import SUBSCRIPTION, TOPIC, Collected, World, world
from tests.threads import assert_ended_since


@pytest.fixture
def here() -> Iterator[World]:
    with world(enable_message_ordering=True) as here:
        yield here


def restart(here: World) -> None:
    """Stop the broker, and start another on the same port with the same state."""
    stop(here)
    start_again(here)


def stop(here: World) -> None:
    here.emulator.stop()


def start_again(here: World) -> None:
    old = here.emulator
    here.emulator = Emulator(clock=here.clock, port=old.port, broker=old.broker).start()


def publish(here: World, *data: bytes) -> None:
    """Put messages into the broker without a connection, which may not work yet."""
    messages = [pubsub.PubsubMessage(data=one) for one in data]
    request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
    here.emulator.inspect(lambda engine: engine.publish(request))


def test_a_broker_that_comes_back_is_found_again(here: World) -> None:
    """The user does nothing, and messages published meanwhile arrive."""
    collected = Collected()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"before")
    eventually(lambda: here.backlog == 0 and len(collected.data) == 1)
    restart(here)
    publish(here, b"after")
    assert collected.wait_for(2) == [b"before", b"after"]
    eventually(lambda: here.backlog == 0)
    assert future.running()


def test_a_subscription_may_begin_before_its_broker(here: World) -> None:
    """The subscription waits for the broker as it does during an outage."""
    stop(here)
    collected = Collected()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    start_again(here)
    publish(here, b"a")
    assert collected.wait_for(1) == [b"a"]
    assert future.running()


def test_acknowledgements_made_while_the_broker_is_away_reach_it(here: World) -> None:
    """They are retried. A message that the broker gave to nobody else is not redelivered."""
    gate = Gate()
    here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=3))
    here.publish(b"a", b"b", b"c")
    gate.wait_for(3)
    stop(here)
    gate.open(3)
    start_again(here)
    gate.open(100)
    eventually(lambda: here.backlog == 0)


def test_a_reader_paused_by_flow_control_recovers_too(here: World) -> None:
    """The reader notices the break when it reads again."""
    gate = Gate()
    here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=1))
    here.publish(b"a")
    gate.wait_for()
    restart(here)
    publish(here, b"b")
    gate.open(10)
    eventually(lambda: here.backlog == 0)
    assert len(set(gate.begun)) == len(gate.begun)


def test_order_survives_a_break(here: World) -> None:
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
    assert some.wait(PATIENCE)
    restart(here)
    eventually(lambda: here.backlog == 0)
    assert skipped == []
    assert handled == set(range(200))


def test_cancelling_while_the_broker_is_away_does_not_wait_for_it(here: World) -> None:
    """The close does not need the broker."""
    collected = Collected()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"a")
    collected.wait_for(1)
    eventually(lambda: here.backlog == 0)
    stop(here)
    try:
        future.cancel()
        assert future.result(timeout=5) is True
    finally:
        start_again(here)


def test_deleting_the_subscription_ends_it(here: World) -> None:
    """The error is NOT_FOUND, for which a retry is useless."""
    collected = Collected()
    future = here.client.subscribe(SUBSCRIPTION, collected)
    here.publish(b"a")
    collected.wait_for(1)
    here.other.delete_subscription(subscription=SUBSCRIPTION)
    assert isinstance(future.exception(PATIENCE), NotFound)
    assert not future.running()


def test_a_channel_closed_by_its_owner_ends_the_subscription(here: World) -> None:
    """The channel cannot work again, and nothing waits for unsent requests."""
    before = set(threading.enumerate())
    channel = grpc.insecure_channel(here.emulator.endpoint)
    client = SubscriberClient(channel=channel)
    gate = Gate()
    future = client.subscribe(SUBSCRIPTION, gate)
    here.publish(b"a")
    gate.wait_for()
    channel.close()
    error = future.exception(timeout=5)
    assert "closed" in str(error)
    gate.open()
    client.close()
    assert_ended_since(before)
