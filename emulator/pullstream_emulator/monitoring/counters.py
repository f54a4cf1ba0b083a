"""Counters of topics and subscriptions since the start of the broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pullstream_emulator.engine.observer import (
    LeaseEnd,
    ObservedDelivery,
    Observer,
    Resource,
)
from pullstream_emulator.engine.record import Record, size_of


@dataclass(slots=True)
class TopicCounts:
    """Counters of one topic.

    Attributes:
        published: Published messages.
        published_bytes: Their size in bytes.
    """

    published: int = 0
    published_bytes: int = 0


@dataclass(slots=True)
class SubscriptionCounts:
    """Counters of one subscription.

    Attributes:
        delivered: Deliveries, including redeliveries.
        acknowledged: Accepted acknowledgements.
        nacked: Messages that a consumer nacked.
        expired: Leases that reached their ack deadline.
        returned: Messages that came back without a counted delivery attempt.
        extended: Extensions of leases.
        dead_lettered: Messages that were forwarded to the dead-letter topic.
    """

    delivered: int = 0
    acknowledged: int = 0
    nacked: int = 0
    expired: int = 0
    returned: int = 0
    extended: int = 0
    dead_lettered: int = 0


class Counters(Observer):
    """Counts the events of an engine, on the engine's thread.

    The counters of a resource begin at 0 with its first event, and end with its deletion.

    Attributes:
        topics: The counters of each topic with an event, by full name.
        subscriptions: The counters of each subscription with an event, by full name.
    """

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        self.subscriptions: defaultdict[str, SubscriptionCounts] = defaultdict(SubscriptionCounts)

    def published(self, topic: str, records: Sequence[Record]) -> None:
        """Count messages and their bytes."""
        counts = self.topics[topic]
        counts.published += len(records)
        counts.published_bytes += size_of(records)

    def delivered(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Count deliveries."""
        self.subscriptions[subscription].delivered += len(deliveries)

    def acknowledged(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Count acknowledgements."""
        self.subscriptions[subscription].acknowledged += len(deliveries)

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: LeaseEnd
    ) -> None:
        """Count nacks, ended leases, or returns."""
        counts = self.subscriptions[subscription]
        if why is LeaseEnd.NACK:
            counts.nacked += len(deliveries)
        elif why is LeaseEnd.EXPIRED:
            counts.expired += len(deliveries)
        else:
            counts.returned += len(deliveries)

    def extended(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], seconds: int
    ) -> None:
        """Count extensions."""
        self.subscriptions[subscription].extended += len(deliveries)

    def dead_lettered(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], topic: str
    ) -> None:
        """Count dead letters."""
        self.subscriptions[subscription].dead_lettered += len(deliveries)

    def removed(self, kind: Resource, name: str) -> None:
        """Forget the counters of a deleted resource."""
        if kind is Resource.TOPIC:
            self.topics.pop(name, None)
        elif kind is Resource.SUBSCRIPTION:
            self.subscriptions.pop(name, None)
