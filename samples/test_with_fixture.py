"""Test your own code against a real broker: the fixture `pubsub_emulator` comes with pullstream.

    pytest samples/test_with_fixture.py

Each test gets a new, empty broker in some milliseconds. PUBSUB_EMULATOR_HOST contains its address,
so the code under test connects to it, whether it uses pullstream or Google's client.
"""

from __future__ import annotations

import threading

from pullstream import Message, PublisherClient, SubscriberClient
from pullstream_emulator import Emulator

TOPIC = "projects/test-project/topics/orders"
SUBSCRIPTION = "projects/test-project/subscriptions/orders"


def test_an_order_that_fails_once_is_delivered_again(pubsub_emulator: Emulator) -> None:
    """Check that a message whose callback raised is delivered again, and then acked."""
    done = threading.Event()
    deliveries: list[bytes] = []

    def handle(message: Message) -> None:
        deliveries.append(message.data)
        if len(deliveries) == 1:
            raise ValueError("out of stock")
        message.ack()
        done.set()

    with PublisherClient() as publisher, SubscriberClient() as client:
        publisher.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        publisher.publish(TOPIC, b"one book").result()
        future = client.subscribe(SUBSCRIPTION, handle)
        assert done.wait(10)
        future.cancel()
        future.result(10)

    assert deliveries == [b"one book", b"one book"]
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 0
