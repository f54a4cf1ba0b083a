"""An engine with one topic and one subscription, driven without a network and without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullstream_emulator.engine import Consumer, Engine
from pullstream_emulator.engine.delivery.subscription import MAX_PER_RESPONSE
from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_protocol.clock import Clock, ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub

PROJECT = "projects/test"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"
SNAPSHOT = f"{PROJECT}/snapshots/before"


@dataclass(frozen=True)
class Got:
    """One message as a consumer received it."""

    data: str
    ack_id: str
    key: str
    size: int
    failed_before: int


def new_engine(clock: Clock, **options: Any) -> Engine:
    return Engine(wall=clock.now, monotonic=clock.monotonic, **options)


def update_request(*paths: str, **settings: Any) -> pubsub.UpdateSubscriptionRequest:
    """Return a request that changes settings of the subscription, and resets those at `paths`."""
    return pubsub.UpdateSubscriptionRequest(
        subscription=pubsub.Subscription(name=SUBSCRIPTION, **settings),
        update_mask={"paths": [*paths, *settings]},
    )


class Broker:
    """An engine with short names for frequent operations."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        engine: Engine | None = None,
        topic: dict[str, Any] | None = None,
        **subscription: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.engine = engine or new_engine(self.clock)
        self.engine.create_topic(pubsub.Topic(name=TOPIC, **topic or {}))
        self.engine.create_subscription(
            pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, **subscription)
        )

    def publish(self, *data: str, key: str = "", **attributes: str) -> list[str]:
        messages = [
            pubsub.PubsubMessage(data=d.encode(), ordering_key=key, attributes=attributes)
            for d in data
        ]
        request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
        return list(self.engine.publish(request))

    def update(self, *paths: str, **settings: Any) -> pubsub.Subscription:
        """Change settings of the subscription, and reset the settings at `paths`."""
        return self.engine.update_subscription(update_request(*paths, **settings))

    def update_topic(self, **settings: Any) -> pubsub.Topic:
        topic = pubsub.Topic(name=TOPIC, **settings)
        request = pubsub.UpdateTopicRequest(topic=topic, update_mask={"paths": settings})
        return self.engine.update_topic(request)

    def take_snapshot(self) -> None:
        request = pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)
        self.engine.create_snapshot(request)

    def seek_to_snapshot(self) -> None:
        self.engine.seek(pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT))

    def seek(self, seconds: float) -> None:
        """Seek to a time of the broker's clock."""
        request = pubsub.SeekRequest(subscription=SUBSCRIPTION)
        request.time.FromMilliseconds(round(seconds * 1000))
        self.engine.seek(request)

    def join(
        self, *, deadline: int = 10, max_messages: int = 0, max_bytes: int = 0
    ) -> ConsumerDriver:
        return ConsumerDriver(self, deadline, max_messages, max_bytes)

    def acknowledge(self, *got: Got) -> list[str]:
        """Acknowledge these IDs, and return the refused ones."""
        return list(self.engine.acknowledge(SUBSCRIPTION, [g.ack_id for g in got]))

    def modify(self, seconds: int, *got: Got) -> list[str]:
        refused = self.engine.modify_ack_deadline(SUBSCRIPTION, [g.ack_id for g in got], seconds)
        return list(refused)

    def nack(self, *got: Got) -> list[str]:
        return self.modify(0, *got)

    def advance(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)
        self.engine.advance()

    @property
    def backlog(self) -> int:
        return self.engine.backlog(SUBSCRIPTION)


class SavedResources(Observer):
    """Keeps the saved resources of one kind, as storage would."""

    def __init__(self, kind: Resource) -> None:
        self._kind = kind
        self.kept: dict[str, bytes] = {}

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        assert kind is self._kind
        self.kept[name] = value

    def removed(self, kind: Resource, name: str) -> None:
        assert kind is self._kind
        del self.kept[name]


def broker_holding(*data: str, key: str = "", **subscription: Any) -> Broker:
    """Return a broker whose subscription has these messages."""
    broker = Broker(**subscription)
    if data:
        broker.publish(*data, key=key)
    return broker


class ConsumerDriver:
    """A consumer of the broker's subscription. `wakes` counts its wake-ups."""

    def __init__(self, broker: Broker, deadline: int, max_messages: int, max_bytes: int) -> None:
        self.wakes = 0
        self.consumer = Consumer(
            ack_deadline=deadline, wake=self._wake, max_messages=max_messages, max_bytes=max_bytes
        )
        self._engine = broker.engine
        self._subscription = broker.engine.join(SUBSCRIPTION, self.consumer)

    def take(self, limit: int = MAX_PER_RESPONSE) -> list[Got]:
        """Return the messages of one response."""
        return [
            Got(
                message.data.decode(),
                ack_id,
                message.ordering_key,
                delivery.record.size,
                delivery.attempts,
            )
            for ack_id, delivery in self._engine.take(self._subscription, self.consumer, limit)
            for message in [pubsub.PubsubMessage.FromString(delivery.record.encoded)]
        ]

    def take_data(self, limit: int = MAX_PER_RESPONSE) -> list[str]:
        return [got.data for got in self.take(limit)]

    def leave(self, *, give_back: bool = True) -> None:
        self._engine.leave(self._subscription, self.consumer, give_back=None if give_back else ())

    def _wake(self) -> None:
        self.wakes += 1
