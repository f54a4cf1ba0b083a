"""Google's Python client with a topic and a subscription, for the tests of each subject."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock

# Google's client pings, retries and waits on its own threads, and always faster than this.
TIMEOUT = 30.0

PROJECT = "projects/test-project"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"


class Clients:
    """A publisher that keeps order, a subscriber, a topic and a subscription."""

    def __init__(self, **subscription: Any) -> None:
        self.publisher = pubsub_v1.PublisherClient(
            publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
        )
        self.subscriber = pubsub_v1.SubscriberClient()
        self.publisher.create_topic(name=TOPIC)
        self.subscriber.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, **subscription}
        )

    def publish(self, *data: bytes, key: str = "", **attributes: str) -> list[str]:
        futures = [
            self.publisher.publish(TOPIC, each, ordering_key=key, **attributes) for each in data
        ]
        return [future.result(TIMEOUT) for future in futures]

    def pull(
        self, max_messages: int = 100, *, subscription: str = SUBSCRIPTION, wait: bool = True
    ) -> list[Any]:
        """Pull messages, and without `wait` only those that are available now."""
        request: dict[str, Any] = {"subscription": subscription, "max_messages": max_messages}
        if not wait:
            request["return_immediately"] = True
        with warnings.catch_warnings():
            # The client warns of that field, but there is no other way to avoid the wait.
            warnings.simplefilter("ignore", DeprecationWarning)
            response = self.subscriber.pull(request=request, timeout=TIMEOUT)
        return list(response.received_messages)

    def drain(self, subscription: str = SUBSCRIPTION) -> list[bytes]:
        """Acknowledge all available messages, and return their data."""
        received = self.pull(subscription=subscription, wait=False)
        if received:
            self.acknowledge(*received, subscription=subscription)
        return [each.message.data for each in received]

    def acknowledge(self, *received: Any, subscription: str = SUBSCRIPTION) -> None:
        self.subscriber.acknowledge(
            subscription=subscription, ack_ids=[each.ack_id for each in received]
        )

    def nack(self, *received: Any) -> None:
        self.subscriber.modify_ack_deadline(
            subscription=SUBSCRIPTION,
            ack_ids=[each.ack_id for each in received],
            ack_deadline_seconds=0,
        )

    @contextmanager
    def subscribe(self, callback: Callable[[Any], None], **options: Any) -> Iterator[Any]:
        """Send messages to `callback` during the block, and yield the client's future."""
        future = self.subscriber.subscribe(SUBSCRIPTION, callback, **options)
        try:
            yield future
        finally:
            future.cancel()
            with suppress(exceptions.GoogleAPICallError):
                future.result(TIMEOUT)

    def close(self) -> None:
        self.publisher.stop()
        self.publisher.transport.close()
        self.subscriber.close()


# Makes the clients for the subscription settings that a test gives.
Connect = Callable[..., Clients]


@pytest.fixture
def connect(pubsub_emulator: Emulator) -> Iterator[Connect]:
    """Yield the function that makes clients for the broker of this test."""
    yield from _connections()


@pytest.fixture
def clients(connect: Connect) -> Clients:
    """Return clients and a subscription without settings."""
    return connect()


@pytest.fixture
def timeless(monkeypatch: pytest.MonkeyPatch) -> Iterator[ManualClock]:
    """Yield the clock of another broker, which moves only by `timeless.advance(seconds)`."""
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        yield clock


@pytest.fixture
def connect_timeless(timeless: ManualClock) -> Iterator[Connect]:
    """Yield the function that makes clients for the broker with that clock."""
    yield from _connections()


def _connections() -> Iterator[Connect]:
    made: list[Clients] = []

    def make(**subscription: Any) -> Clients:
        made.append(Clients(**subscription))
        return made[-1]

    yield make
    for clients in made:
        clients.close()
