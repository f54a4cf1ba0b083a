"""Events of a broker, and the events of one message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pullstream_protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from pullstream_emulator.engine.record import Record


class Kind(Enum):
    """Kinds of events of a message."""

    PUBLISH = "publish"
    DELIVERY = "delivery"
    ACK = "ack"
    NACK = "nack"
    EXPIRY = "expiry"
    # The message returned to the backlog without counting a delivery attempt: see
    # `pullstream_emulator.engine.observer.LeaseEnd`.
    RETURN = "return"
    DEADLINE_CHANGE = "deadline-change"
    # The message failed too often, and was published to the dead-letter topic.
    DEAD_LETTER = "dead-letter"
    # A push endpoint answered, or could not be reached.
    PUSH = "push"


class Event(NamedTuple):
    """One event of one message.

    Attributes:
        kind: The kind of event.
        time: Wall time of the broker's clock, in seconds since the epoch.
        resource: The topic of a publish, otherwise the subscription; a full name.
        record: The stored message.
        ack_id: Ack id of the lease; empty for a publish.
        attempt: Number of the delivery attempt, counted from 1; 0 for a publish.
        seconds: The deadline that a deadline change asked for.
        detail: The client of a delivery, the topic of a dead letter, or the endpoint's answer to a
            push; empty for other kinds.
        number: Position among all events of the history, counted from 1. Events that the history
            no longer has count, too.
    """

    kind: Kind
    time: float
    resource: str
    record: Record
    ack_id: str = ""
    attempt: int = 0
    seconds: int = 0
    detail: str = ""
    number: int = 0

    @property
    def message_id(self) -> str:
        """The message's id, which is its sequence number as text."""
        return str(self.record.seq)

    @property
    def message(self) -> pubsub.PubsubMessage:
        """The message as it was published; a new copy for each access."""
        return pubsub.PubsubMessage.FromString(self.record.encoded)

    @property
    def data(self) -> bytes:
        """The message's data, decoded at each access."""
        data: bytes = self.message.data
        return data


@dataclass(frozen=True)
class MessageHistory:
    """One message and its events, in order.

    Attributes:
        id: The message's id.
        topic: The topic of its publish; empty if the history does not reach back to it.
        message: The message as it was published.
        events: Its events.
    """

    id: str
    topic: str
    message: pubsub.PubsubMessage
    events: tuple[Event, ...]

    @property
    def deliveries(self) -> tuple[Event, ...]:
        """The deliveries to all subscriptions, including redeliveries."""
        return self._of(Kind.DELIVERY)

    @property
    def acks(self) -> tuple[Event, ...]:
        """The accepted acks of all subscriptions."""
        return self._of(Kind.ACK)

    @property
    def nacks(self) -> tuple[Event, ...]:
        """The nacks of all subscriptions."""
        return self._of(Kind.NACK)

    @property
    def expiries(self) -> tuple[Event, ...]:
        """The leases that reached their deadline, of all subscriptions."""
        return self._of(Kind.EXPIRY)

    @property
    def deadline_changes(self) -> tuple[Event, ...]:
        """The extensions of leases, of all subscriptions."""
        return self._of(Kind.DEADLINE_CHANGE)

    @property
    def dead_letters(self) -> tuple[Event, ...]:
        """The forwards to dead-letter topics, of all subscriptions."""
        return self._of(Kind.DEAD_LETTER)

    @property
    def pushes(self) -> tuple[Event, ...]:
        """The answers of push endpoints, of all subscriptions."""
        return self._of(Kind.PUSH)

    def _of(self, kind: Kind) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.kind is kind)
