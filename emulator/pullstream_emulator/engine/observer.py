"""Interface for changes of the engine: storage persists them, tests record them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, Protocol

from .record import Record


class Resource(Enum):
    """The kinds of named resources that are kept until they are deleted."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    SNAPSHOT = "snapshot"
    SCHEMA = "schema"
    POLICY = "policy"
    # The number of Pull calls that may wait on a subscription, by its name.
    PULLS = "pulls"
    # A feed, by its topic's name; a router between feeds; a cursor.
    FEED = "feed"
    ROUTER = "router"
    CURSOR = "cursor"
    # Acknowledged IDs of the last minutes (acked_ids.py). Only noted, never saved.
    ACKED = "acked"


class LeaseEnd(Enum):
    """The reason for which a lease has ended without an acknowledgement."""

    NACK = "nack"
    EXPIRED = "expired"
    # No delivery attempt is counted: the consumer left or returned the message unseen, or an
    # earlier message of the same ordering key failed.
    GIVEN_BACK = "given back"


class ObservedDelivery(Protocol):
    """A message in one subscription; see `Delivery`. The engine changes it after the call."""

    @property
    def record(self) -> Record:
        """The message."""

    @property
    def ack_id(self) -> str:
        """The ack ID of its newest lease, "" before the first."""

    @property
    def attempts(self) -> int:
        """Number of failed deliveries."""

    @property
    def client(self) -> str:
        """The client that leases it now; may be empty."""


class Observer:
    """Receives every change of the engine, in order, on the engine's thread, after the change.

    The methods of this class do nothing; subclasses override the methods that they need. A method
    must not wait, raise or call the engine. All names are full resource names.
    """

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        """Called after a resource was created or changed.

        Args:
            kind: The kind of the resource.
            name: Its full name.
            value: The whole resource, serialized.
        """

    def removed(self, kind: Resource, name: str) -> None:
        """Called after a resource was deleted or has expired."""

    def noted(self, kind: Resource, name: str, value: bytes) -> None:
        """Called after a change of a resource's progress, which changes frequently.

        No caller waits until a note is stored, so a crash can leave an earlier note.

        Args:
            kind: The kind of the resource.
            name: The full name of the note.
            value: The progress, serialized. Empty: the note is removed.
        """

    def published(self, topic: str, records: Sequence[Record]) -> None:
        """Called after messages were appended to a topic and passed to its subscriptions.

        For messages that a subscription's filter rejects, a call of `finished` follows directly.
        """

    def skipped(self, topic: str, first: int, last: int) -> None:
        """Called when the newest sequence numbers of a topic will never have a message.

        Args:
            topic: The topic.
            first: The first of these numbers.
            last: The last of these numbers.
        """

    def delivered(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Called after messages were delivered to one consumer. There is at least one message."""

    def acknowledged(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Called after messages were acknowledged.

        A message with an ordering key may still be redelivered, until `finished` is called.
        """

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: LeaseEnd
    ) -> None:
        """Called after messages went back to the backlog.

        Args:
            subscription: The subscription.
            deliveries: The messages. Their `attempts` already include this failure.
            why: The reason for which the leases have ended.
        """

    def extended(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], seconds: int
    ) -> None:
        """Called after leases were extended.

        Args:
            subscription: The subscription.
            deliveries: The messages.
            seconds: The new ack deadline, from now.
        """

    def dead_lettered(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], topic: str
    ) -> None:
        """Called after messages that failed too often were published to the dead-letter topic.

        A call of `finished` follows directly.

        Args:
            subscription: The subscription.
            deliveries: The messages.
            topic: The dead-letter topic.
        """

    def finished(self, subscription: str, seqs: Collection[int]) -> None:
        """Called when messages will not be delivered again, except after a seek.

        The numbers of a whole backlog come as a SeqSet, which does not change.
        """

    def unfinished(self, subscription: str, seqs: Collection[int]) -> None:
        """Called when a seek has restored finished messages."""

    def discarded(self, topic: str, up_to: int) -> None:
        """Called when no message of a topic up to this sequence number is kept any more."""


_TOLD = tuple(name for name in vars(Observer) if not name.startswith("_"))


class ObserverFanout(Observer):
    """Passes on each event to the observers that override its method, in their order."""

    def __init__(self, *observers: Observer) -> None:
        for name in _TOLD:
            # Call only overridden methods: most observers use few events, and events are frequent.
            overridden = [
                getattr(observer, name)
                for observer in observers
                if getattr(type(observer), name) is not getattr(Observer, name)
            ]
            if overridden:
                setattr(self, name, overridden[0] if len(overridden) == 1 else _each(overridden))


def _each(listeners: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        for listener in listeners:
            listener(*arguments)

    return call
