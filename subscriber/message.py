"""A received message, as a callback sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from protocol.messages import columns_pb2 as columns

from .arguments import number
from .futures import AckFuture
from .unparsed import UnparsedMessages

if TYPE_CHECKING:
    from protocol.messages import pubsub_pb2 as pubsub

    Response = pubsub.StreamingPullResponse | pubsub.PullResponse | columns.ResponseColumns


class Verdict(Enum):
    """What was decided about a message."""

    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    DROP = "drop"


# Verdict, message, seconds (how long a nacked message stays away, or a lease is to last), future to
# resolve with the server's answer (or None).
Outcome = tuple[Verdict, "Message", int, "AckFuture | None"]

# A member looked up in its Enum class costs more than all else that `ack` does.
_ACK, _NACK, _DROP = Verdict.ACK, Verdict.NACK, Verdict.DROP


class Outcomes(Protocol):
    """Where a message sends what was decided about it."""

    def ack(self, message: Message) -> None:
        """What nearly every message ends with. Must never wait."""

    def ack_all(self, messages: list[Message]) -> None:
        """As `ack` of each."""

    def put(self, outcome: Outcome) -> None:
        """Hand over, and never wait."""

    def put_tracked(self, outcome: Outcome) -> None:
        """Hand over an outcome with a future, which is resolved whatever happens."""

    @property
    def exactly_once(self) -> bool:
        """Whether the subscription delivers exactly once, by the newest response."""


class Batch:
    """What the messages of one response have in common.

    received_at: when it came, on the monotonic clock, in seconds.
    share: each message's equal part of the response's bytes. It is what flow control counts, as the
        memory of a response is one piece.
    received: the messages of the response.
    open: how many of its messages are not finished.
    ack: `outcomes.ack`, looked up once and not for each message.
    """

    __slots__ = ("ack", "open", "outcomes", "received", "received_at", "share")

    def __init__(
        self,
        outcomes: Outcomes,
        received_at: float,
        share: int,
        response: Response,
    ) -> None:
        self.outcomes: Outcomes = outcomes
        self.ack: Callable[[Message], None] = outcomes.ack
        self.received_at: float = received_at
        self.share: int = share
        self.received: Sequence[pubsub.ReceivedMessage] = (
            UnparsedMessages(response)
            if isinstance(response, columns.ResponseColumns)
            else response.received_messages
        )
        self.open: int = 0

    def messages(self) -> list[Message]:
        """The messages. Called once: each call makes others, with verdicts of their own."""
        return [Message(self, at) for at in range(len(self.received))]


class Message:
    """One message, with the means to settle it.

    Settle each message once, by `ack()` or `nack()`, from any thread, inside the callback or later.
    While it is not settled its lease is extended, up to FlowControl.max_lease_duration.

    A message shares memory with the others of its response: one that is kept for long keeps them.
    """

    __slots__ = (
        "_at",
        "_key",
        "batch",
        "leased",
        "purged",
        "settled",
    )

    def __init__(self, batch: Batch, at: int) -> None:
        # Its place in the response. What is there becomes an object of Python at each look, and
        # goes again. Made on arrival and kept until the end, such objects took one of the seven
        # microseconds that a message costs: the garbage collector goes through all that wait, and
        # memory that one thread fills and another one frees later is slow for both.
        self._at = at
        self._key: str | None = None
        # For the SDK itself: the response it came in; the first verdict; whether it counts as
        # unfinished (LeaseTable's); whether its failure was dealt with (MessagesOnHold's).
        self.batch: Batch = batch
        self.settled: Verdict | None = None
        self.leased: bool = True
        self.purged: bool = False

    # ---- content -------------------------------------------------------------------------------

    @property
    def _content(self) -> pubsub.PubsubMessage:
        """What was published. Properties that callbacks often read spare themselves this call."""
        return self.batch.received[self._at].message

    @property
    def received(self) -> pubsub.ReceivedMessage:
        """All of it as it came over the wire; for the SDK itself."""
        return self.batch.received[self._at]

    @property
    def ack_id(self) -> str:
        """What the server knows this delivery by."""
        return self.batch.received[self._at].ack_id

    @property
    def message_id(self) -> str:
        return self.batch.received[self._at].message.message_id

    @property
    def data(self) -> bytes:
        return self.batch.received[self._at].message.data

    @property
    def attributes(self) -> MutableMapping[str, str]:
        """The attributes; a missing key read by `[]` gives "", as in the official client."""
        return self.batch.received[self._at].message.attributes

    @property
    def publish_time(self) -> datetime:
        """When the server took the message, in UTC."""
        stamp = self._content.publish_time
        return stamp.ToDatetime(tzinfo=timezone.utc)

    @property
    def published(self) -> tuple[int, int]:
        """`publish_time` as seconds since the epoch and nanoseconds; for the SDK itself."""
        stamp = self._content.publish_time
        return stamp.seconds, stamp.nanos

    @property
    def ordering_key(self) -> str:
        """The key within which order is kept, "" if there is none."""
        key = self._key
        if key is None:
            key = self._key = self.batch.received[self._at].message.ordering_key
        return key

    @property
    def size(self) -> int:
        """Bytes of the message on the wire: data, attributes, and all else."""
        return self._content.ByteSize()

    @property
    def delivery_attempt(self) -> int | None:
        """How often it was delivered, counting from 1; None without a dead-letter policy."""
        return self.received.delivery_attempt or None

    @property
    def exactly_once_enabled(self) -> bool:
        return self.batch.outcomes.exactly_once

    # ---- verdicts ------------------------------------------------------------------------------

    def ack(self) -> None:
        """It is handled: the server need not deliver it again. Returns at once.

        Raises:
            ForkedProcess: this is a child of the process that received it, as with all verdicts.
        """
        if self.settled is None:
            self.settled = _ACK
        self.batch.ack(self)

    def nack(self, delay: float = 0) -> None:
        """It is not handled: the server should deliver it again. Returns at once.

        Args:
            delay: seconds to wait before that, 0 to 600, rounded up to whole ones. Meanwhile the
                message counts no more for flow control here. With an ordering key the later
                messages of the key wait, too.

        Raises:
            ValueError: the delay is out of its range.
        """
        self._give_back(delay, None)

    def drop(self) -> None:
        """Forget it without telling the server, which delivers it again when its lease ends."""
        if self.settled is None:
            self.settled = _DROP
        self.batch.outcomes.put((_DROP, self, 0, None))

    def modify_ack_deadline(self, seconds: int) -> None:
        """Let the lease end `seconds` from now (0 to 600; 0 is a nack). Returns at once.

        Leases are extended by themselves; the next extension overrides this one.
        """
        self._modify(seconds, None)

    def ack_with_response(self) -> AckFuture:
        """As `ack()`; the future resolves with what the server answered."""
        if self.settled is None:
            self.settled = _ACK
        future = AckFuture()
        self.batch.outcomes.put_tracked((_ACK, self, 0, future))
        return future

    def nack_with_response(self, delay: float = 0) -> AckFuture:
        """As `nack()`; the future resolves with what the server answered."""
        future = AckFuture()
        self._give_back(delay, future)
        return future

    def modify_ack_deadline_with_response(self, seconds: int) -> AckFuture:
        """As `modify_ack_deadline()`; the future resolves with what the server answered."""
        future = AckFuture()
        self._modify(seconds, future)
        return future

    def _give_back(self, delay: float, future: AckFuture | None) -> None:
        if not 0 <= number("delay", delay) <= 600:
            raise ValueError(f"delay is {delay}; a nack can wait between 0 and 600 seconds")
        if self.settled is None:
            self.settled = _NACK
        self._put((_NACK, self, math.ceil(delay), future))

    def _modify(self, seconds: int, future: AckFuture | None) -> None:
        if not 0 <= seconds <= 600:
            raise ValueError(f"seconds is {seconds}; an ack deadline is between 0 and 600 seconds")
        if seconds == 0:
            self._give_back(0, future)
        else:
            self._put((Verdict.EXTEND, self, seconds, future))

    def _put(self, outcome: Outcome) -> None:
        outcomes = self.batch.outcomes
        put = outcomes.put if outcome[3] is None else outcomes.put_tracked
        put(outcome)

    def __repr__(self) -> str:
        data = self.data
        shown = data if len(data) <= 50 else data[:50] + b"..."
        return (
            f"Message(message_id={self.message_id!r}, data={shown!r}, "
            f"ordering_key={self.ordering_key!r}, attributes={dict(self.attributes)!r})"
        )


# A message's bytes as flow control counts them.
SHARE: Callable[[Message], int] = attrgetter("batch.share")


def ack_ids_of(messages: Iterable[Message]) -> list[str]:
    """`message.ack_id` of each, without a call for each."""
    ack_ids: list[str] = []
    # Neighbours are nearly always of one response.
    for batch, neighbours in groupby(messages, attrgetter("batch")):
        received = batch.received
        if isinstance(received, UnparsedMessages):
            own = received.ack_ids
            ack_ids += [own[message._at] for message in neighbours]
        else:
            ack_ids += [received[message._at].ack_id for message in neighbours]
    return ack_ids


def encoded_of(messages: Iterable[Message]) -> list[bytes]:
    """The ReceivedMessage of each, serialized."""
    encoded: list[bytes] = []
    for batch, neighbours in groupby(messages, attrgetter("batch")):
        received = batch.received
        if isinstance(received, UnparsedMessages):
            own = received.encoded
            encoded += [own[message._at] for message in neighbours]
        else:
            encoded += [received[message._at].SerializeToString() for message in neighbours]
    return encoded


class MessageBatch(list[Message]):
    """What a callback of `subscribe_batch` gets: a list, to be settled one by one or as a whole."""

    def ack(self) -> None:
        """Acknowledge every message that is not settled."""
        unsettled = []
        for message in self:
            if message.settled is None:
                message.settled = _ACK
                unsettled.append(message)
        # Whoever makes a list may put in messages of several subscriptions.
        for outcomes, messages in groupby(unsettled, attrgetter("batch.outcomes")):
            outcomes.ack_all(list(messages))

    def nack(self, delay: float = 0) -> None:
        """Give back every message that is not settled; see `Message.nack`."""
        for message in self:
            if message.settled is None:
                message.nack(delay)
