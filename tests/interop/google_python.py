"""Google's Python client with a topic and a subscription, for the tests of each subject."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1

from emulator import Emulator
from protocol.clock import ManualClock

# Google's client pings, retries and waits on threads of its own; nothing here takes so long.
PATIENCE = 30.0

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
        return [future.result(PATIENCE) for future in futures]

    def pull(
        self, max_messages: int = 100, *, subscription: str = SUBSCRIPTION, wait: bool = True
    ) -> list[Any]:
        """Messages of the subscription; without `wait`, only those that are there already."""
        request: dict[str, Any] = {"subscription": subscription, "max_messages": max_messages}
        if not wait:
            request["return_immediately"] = True
        with warnings.catch_warnings():
            # The client warns of that field, but there is no other way not to wait.
            warnings.simplefilter("ignore", DeprecationWarning)
            response = self.subscriber.pull(request=request, timeout=PATIENCE)
        return list(response.received_messages)

    def drain(self, subscription: str = SUBSCRIPTION) -> list[bytes]:
        """Acknowledge all that is there; returns the data."""
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
        """Messages go to `callback` as long as this lasts; yields the client's future."""
        future = self.subscriber.subscribe(SUBSCRIPTION, callback, **options)
        try:
            yield future
        finally:
            future.cancel()
            with suppress(exceptions.GoogleAPICallError):
                future.result(PATIENCE)

    def close(self) -> None:
        self.publisher.stop()
        self.publisher.transport.close()
        self.subscriber.close()


# Makes the clients, once a test has said what subscription it wants.
Connect = Callable[..., Clients]


@pytest.fixture
def connect(pubsub_emulator: Emulator) -> Iterator[Connect]:
    """For clients of the broker of this test."""
    yield from _connections()


@pytest.fixture
def timeless(monkeypatch: pytest.MonkeyPatch) -> Iterator[ManualClock]:
    """The time of another broker, which passes only by `timeless.advance(seconds)`."""
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        yield clock


@pytest.fixture
def connect_timeless(timeless: ManualClock) -> Iterator[Connect]:
    """For clients of the broker of that time."""
    yield from _connections()


def _connections() -> Iterator[Connect]:
    made: list[Clients] = []

    def make(**subscription: Any) -> Clients:
        made.append(Clients(**subscription))
        return made[-1]

    yield make
    for clients in made:
        clients.close()
