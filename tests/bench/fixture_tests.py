"""Tests as users of the pytest fixtures have them. fixture_client.py runs them."""

from __future__ import annotations

from pullstream import Message, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_emulator.pytest_plugin import pubsub_config as pubsub_config
from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from pullstream_emulator.pytest_plugin import pubsub_emulator_options as pubsub_emulator_options
from pullstream_emulator.pytest_plugin import pubsub_session_emulator as pubsub_session_emulator
from pullstream_emulator.pytest_plugin import pubsub_shared_emulator as pubsub_shared_emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub

TOPIC = "projects/test-project/topics/orders"
SUBSCRIPTION = "projects/test-project/subscriptions/billing"


def receive(emulator: Emulator) -> None:
    """Receive a message with a topic, a subscription and a subscriber of the test."""
    emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
    subscription = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)
    emulator.inspect(lambda engine: engine.create_subscription(subscription))
    with SubscriberClient() as client:
        client.subscribe(SUBSCRIPTION, Message.ack)
        emulator.publish(TOPIC, b"order")
        emulator.wait_until_acked(SUBSCRIPTION)


def test_shared(pubsub_shared_emulator: Emulator, number: int) -> None:
    receive(pubsub_shared_emulator)


def test_own(pubsub_emulator: Emulator, number: int) -> None:
    receive(pubsub_emulator)


def test_none(number: int) -> None:
    pass
