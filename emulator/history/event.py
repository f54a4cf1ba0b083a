"""One thing that happened in a broker, and all that happened to one message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from emulator.engine.record import Record


class Kind(Enum):
    """What can happen to a message."""

    PUBLISH = "publish"
    DELIVERY = "delivery"
    ACK = "ack"
    NACK = "nack"
    EXPIRY = "expiry"
    # Its consumer went away with it.
    RETURN = "return"
    DEADLINE_CHANGE = "deadline-change"


class Event(NamedTuple):
    """One thing that happened to one message.

    time: wall time of the broker's clock, in seconds since the epoch.
    resource: the topic of a publish, the subscription of all else; a full name.
    ack_id: of the lease that it was about; empty for a publish.
    attempt: which delivery of the message it was about, counted from 1; 0 for a publish.
    seconds: what a deadline change asked for.
    """

    kind: Kind
    time: float
    resource: str
    record: Record
    ack_id: str = ""
    attempt: int = 0
    seconds: int = 0

    @property
    def message_id(self) -> str:
        return str(self.record.seq)

    @property
    def message(self) -> pubsub.PubsubMessage:
        """The message as it was published, a copy for each caller."""
        return pubsub.PubsubMessage.FromString(self.record.encoded)

    @property
    def data(self) -> bytes:
        data: bytes = self.message.data
        return data


@dataclass(frozen=True)
class MessageHistory:
    """One message and all that happened to it, in order.

    topic: where it was published; empty if that is too long ago to be in the history.
    """

    id: str
    topic: str
    message: pubsub.PubsubMessage
    events: tuple[Event, ...]

    @property
    def deliveries(self) -> tuple[Event, ...]:
        return self._of(Kind.DELIVERY)

    @property
    def acks(self) -> tuple[Event, ...]:
        return self._of(Kind.ACK)

    @property
    def nacks(self) -> tuple[Event, ...]:
        return self._of(Kind.NACK)

    @property
    def expiries(self) -> tuple[Event, ...]:
        return self._of(Kind.EXPIRY)

    @property
    def deadline_changes(self) -> tuple[Event, ...]:
        return self._of(Kind.DEADLINE_CHANGE)

    def _of(self, kind: Kind) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.kind is kind)
