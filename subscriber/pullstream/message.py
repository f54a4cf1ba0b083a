"""Received messages, and the means to settle them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from .ack_future import AckFuture
from .lazy_messages import RawMessages, RawResponse
from .runtime.validation import require_number

if TYPE_CHECKING:
    from pullstream_protocol.messages import pubsub_pb2 as pubsub

    Response = pubsub.StreamingPullResponse | pubsub.PullResponse | RawResponse


class Disposition(Enum):
    """A decision about a message."""

    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    DROP = "drop"
    # Made by the SDK: the lease was given up, or is over. No callback begins. A callback that has
    # begun may still settle the message, and the server decides.
    LOST = "lost"
    # Made by the SDK: the message goes back to the server, and the user's code has not tried to
    # handle it.
    RETURN = "return"


# Disposition, message, seconds (the delay of a nacked message, or the new length of a lease), and
# the future to resolve with the server's answer (or None).
Settlement = tuple[Disposition, "Message", int, "AckFuture | None"]

# Publishes a message to a dead-letter topic; see `ResponseBatch`.
Reject = Callable[["Message", str, "str | None"], str]

# Looking up a member in its Enum class costs more than the rest of `ack`.
_ACK, _NACK, _DROP, _LOST, _RETURN = (
    Disposition.ACK,
    Disposition.NACK,
    Disposition.DROP,
    Disposition.LOST,
    Disposition.RETURN,
)


class SettlementSink(Protocol):
    """Receiver of the decisions about messages."""

    def ack(self, message: Message) -> None:
        """Acknowledge a message, as nearly every callback does. Must never wait."""

    def ack_all(self, messages: list[Message]) -> None:
        """Acknowledge each of these messages."""

    def put(self, settlement: Settlement) -> None:
        """Accept a decision that has no future. Must never wait."""

    def put_tracked(self, settlement: Settlement) -> None:
        """Accept a decision with a future, which is resolved in any case."""

    @property
    def exactly_once(self) -> bool:
        """Whether the subscription delivers exactly once, according to the newest response."""


class ResponseBatch:
    """Data that the messages of one response share.

    Attributes:
        sink: Receives the decisions about the messages.
        ack: `sink.ack`, looked up once and not for each message.
        received_at: When the response came in, in seconds on the monotonic clock.
        bytes_each: Bytes of the response divided by the number of its messages. Flow control counts
            this for each message, because the response occupies one piece of memory.
        received: The messages of the response.
        unparsed: The same messages if they are not parsed; else None. An `isinstance` at each use
            would take 0.3 µs, because RawMessages has an abstract base.
        open: Number of outstanding messages.
        reject: Publishes a message to a dead-letter topic, given the reason and the topic or None;
            returns the new message ID. None: the owner of the messages cannot do that.
        may_be_stale: Whether the response may have been buffered for so long that its leases have
            ended.
        lease_ends: Time on the monotonic clock at which the leases of unfinished messages are over,
            unless they are extended until then. Infinite if it is not known.
    """

    __slots__ = (
        "ack",
        "bytes_each",
        "lease_ends",
        "may_be_stale",
        "open",
        "received",
        "received_at",
        "reject",
        "sink",
        "unparsed",
    )

    def __init__(
        self,
        sink: SettlementSink,
        received_at: float,
        bytes_each: int,
        response: Response,
    ) -> None:
        self.sink: SettlementSink = sink
        self.ack: Callable[[Message], None] = sink.ack
        self.received_at: float = received_at
        self.bytes_each: int = bytes_each
        self.received: Sequence[pubsub.ReceivedMessage] = response.received_messages
        self.unparsed: RawMessages | None = (
            response.received_messages if isinstance(response, RawResponse) else None
        )
        self.open: int = 0
        self.may_be_stale: bool = False
        self.lease_ends: float = math.inf
        self.reject: Reject | None = None

    def messages(self) -> list[Message]:
        """Create the Message objects. Called once, as each call creates new, unsettled ones."""
        return [Message(self, at) for at in range(len(self.received))]


class Message:
    """A received message, with methods to settle it.

    Settle each message once, with `ack()` or `nack()`, from any thread, inside the callback or
    later. Until it is settled, the SDK extends its lease, up to `FlowControl.max_lease_duration`.

    The messages of a response share memory. Keeping one of them keeps all of them in memory.
    """

    # Set when a callback begins. `clear_begun` deletes it again.
    begun: bool
    _counted_late: bool
    _is_tracked: bool

    __slots__ = (
        "_at",
        "_counted_late",
        "_is_tracked",
        "_key",
        "batch",
        "begun",
        "failure_noted",
        "leased",
        "settled",
    )

    def __init__(self, batch: ResponseBatch, at: int) -> None:
        # The index in the response. Each access to the content creates a Python object, which is
        # freed soon after. When these objects were created on arrival and kept until the end, they
        # took one of the seven microseconds that a message costs: the garbage collector visits
        # every waiting object, and memory that one thread allocates and another one frees later is
        # slow for both.
        self._at = at
        self._key: str | None = None
        # For the SDK itself: the response it came in; the first decision; whether it counts as
        # outstanding (set by LeaseTable); whether its failure was handled (set by MessagesOnHold).
        # `begun`, `_counted_late` and `_is_tracked` are not set here, because each assignment adds
        # to the cost of a message: see `has_begun`, `count_late` and `ack_is_tracked`.
        self.batch: ResponseBatch = batch
        self.settled: Disposition | None = None
        self.leased: bool = True
        self.failure_noted: bool = False

    # ---- content -------------------------------------------------------------------------------

    @property
    def _content(self) -> pubsub.PubsubMessage:
        """The published message. Properties that callbacks often read avoid this extra call."""
        return self.batch.received[self._at].message

    @property
    def received(self) -> pubsub.ReceivedMessage:
        """The ReceivedMessage as the server sent it; for the SDK itself."""
        return self.batch.received[self._at]

    @property
    def ack_id(self) -> str:
        """The ack ID: the server's name for this delivery of the message."""
        return self.batch.received[self._at].ack_id

    @property
    def message_id(self) -> str:
        """The ID that the server gave the message. Unique within the topic."""
        return self.batch.received[self._at].message.message_id

    @property
    def data(self) -> bytes:
        """The payload."""
        return self.batch.received[self._at].message.data

    @property
    def attributes(self) -> MutableMapping[str, str]:
        """The attributes. Reading a missing key with `[]` gives "", as in the official client."""
        return self.batch.received[self._at].message.attributes

    @property
    def publish_time(self) -> datetime:
        """When the server received the message from the publisher, in UTC."""
        stamp = self._content.publish_time
        return stamp.ToDatetime(tzinfo=timezone.utc)

    @property
    def published(self) -> tuple[int, int]:
        """`publish_time` as seconds since the epoch and nanoseconds; for the SDK itself."""
        stamp = self._content.publish_time
        return stamp.seconds, stamp.nanos

    @property
    def ordering_key(self) -> str:
        """The ordering key. "" if there is none."""
        key = self._key
        if key is None:
            key = self._key = self.batch.received[self._at].message.ordering_key
        return key

    @property
    def size(self) -> int:
        """Size of the published message on the wire in bytes, including data and attributes."""
        return self._content.ByteSize()

    @property
    def delivery_attempt(self) -> int | None:
        """Number of delivery attempts, from 1. None without a dead-letter policy."""
        return self.received.delivery_attempt or None

    @property
    def exactly_once_enabled(self) -> bool:
        """Whether the subscription has exactly-once delivery, according to the newest response."""
        return self.batch.sink.exactly_once

    # ---- settling ------------------------------------------------------------------------------

    def ack(self) -> None:
        """Acknowledge the message: the server need not deliver it again. Returns at once.

        Raises:
            ForkedProcess: This process is a fork of the process that received the message. The
                other methods that settle a message raise this, too.
        """
        if self.settled is None:
            self.settled = _ACK
        self.batch.ack(self)

    def nack(self, delay: float = 0) -> None:
        """Report that the message was not handled: the server redelivers it. Returns at once.

        Args:
            delay: Seconds until the redelivery, from 0 to 600, rounded up to whole seconds. Until
                then, the message does not count for flow control. Later messages of its ordering
                key wait, too. Default: 0.

        Raises:
            ValueError: `delay` is not between 0 and 600.
        """
        self._nack(delay, None)

    def reject(self, reason: str, dead_letter_topic: str | None = None) -> str:
        """Publish the message to a dead-letter topic, and acknowledge it then.

        Waits until the server has confirmed the copy, which has the data, the ordering key and the
        attributes of the message, the attributes that Google's service adds to dead letters, and
        the attribute `pullstream_reject_reason`. If this method raises, nothing is acknowledged: in
        a callback the error nacks the message. If the acknowledgement is lost, the message is
        delivered again, and the copy stays. In an `async def` callback, use
        `await asyncio.to_thread(message.reject, reason)`.

        Args:
            reason: The reason, for people. Longer ones than 1,024 bytes are shortened. It is left
                out if the message has no room for another attribute.
            dead_letter_topic: Full name of the topic. Default: the topic of the subscription's
                dead-letter policy, which the client reads once for each subscription.

        Returns:
            The message ID of the copy.

        Raises:
            TypeError: `reason` is not a str.
            ValueError: The message is settled already. Or the subscription has no dead-letter
                policy, and `dead_letter_topic` is missing.
            RpcError: A call to the server failed.
        """
        if self.settled is not None and self.settled is not _LOST:
            raise ValueError(
                f"message {self.message_id} is settled ({self.settled.value}); reject it instead "
                "of settling it"
            )
        if self.batch.reject is None:
            raise ValueError("this message was not received by a client, so it cannot be rejected")
        if not isinstance(reason, str):
            raise TypeError(f"reason is {reason!r:.80}; it must be a str, such as str(error)")
        copy = self.batch.reject(self, reason, dead_letter_topic)
        self.ack()
        return copy

    def drop(self) -> None:
        """Forget the message; the server redelivers it when its lease ends.

        A message of an ordering key is returned to the server at once, because the later messages
        of the key wait for it.
        """
        if self.settled is None:
            self.settled = _DROP
        self.batch.sink.put((_DROP, self, 0, None))

    def modify_ack_deadline(self, seconds: int) -> None:
        """Change the ack deadline of the message. Returns at once.

        The SDK extends leases by itself. Its next extension replaces this deadline.

        Args:
            seconds: Seconds from now until the lease ends, from 0 to 600. 0 is a nack.

        Raises:
            ValueError: `seconds` is not between 0 and 600.
        """
        self._modify(seconds, None)

    def ack_with_response(self) -> AckFuture:
        """Acknowledge the message, and return a future for the server's answer; see `ack`."""
        if self.settled is None:
            self.settled = _ACK
        self._is_tracked = True
        future = AckFuture()
        self.batch.sink.put_tracked((_ACK, self, 0, future))
        return future

    def nack_with_response(self, delay: float = 0) -> AckFuture:
        """Nack the message, and return a future for the server's answer; see `nack`.

        Args:
            delay: Seconds until the redelivery, as for `nack`.

        Raises:
            ValueError: `delay` is not between 0 and 600.
        """
        future = AckFuture()
        self._nack(delay, future)
        return future

    def modify_ack_deadline_with_response(self, seconds: int) -> AckFuture:
        """Change the ack deadline, and return a future for the server's answer.

        Args:
            seconds: Seconds from now until the lease ends, as for `modify_ack_deadline`.

        Raises:
            ValueError: `seconds` is not between 0 and 600.
        """
        future = AckFuture()
        self._modify(seconds, future)
        return future

    def _nack(self, delay: float, future: AckFuture | None) -> None:
        if not 0 <= require_number("delay", delay) <= 600:
            raise ValueError(f"delay is {delay}; it must be between 0 and 600 seconds")
        if self.settled is None:
            self.settled = _NACK
        self._put((_NACK, self, math.ceil(delay), future))

    def _modify(self, seconds: int, future: AckFuture | None) -> None:
        if not 0 <= seconds <= 600:
            raise ValueError(f"seconds is {seconds}; it must be between 0 and 600")
        if seconds == 0:
            self._nack(0, future)
        else:
            self._put((Disposition.EXTEND, self, seconds, future))

    def _put(self, settlement: Settlement) -> None:
        sink = self.batch.sink
        put = sink.put if settlement[3] is None else sink.put_tracked
        put(settlement)

    def __repr__(self) -> str:
        data = self.data
        shown = data if len(data) <= 50 else data[:50] + b"..."
        return (
            f"Message(message_id={self.message_id!r}, data={shown!r}, "
            f"ordering_key={self.ordering_key!r}, attributes={dict(self.attributes)!r})"
        )


def has_begun(message: Message) -> bool:
    """Return whether a callback has begun to handle the message."""
    return hasattr(message, "begun")


def ack_is_tracked(message: Message) -> bool:
    """Return whether the user has a future for the result of the acknowledgement."""
    return hasattr(message, "_is_tracked")


def count_late(messages: Iterable[Message]) -> int:
    """Return how many messages are settled for the first time after they lost their lease.

    For the thread that counts settlements: each message counts in one call only.
    """
    count = 0
    for message in messages:
        if message.settled is _LOST and not hasattr(message, "_counted_late"):
            message._counted_late = True
            count += 1
    return count


def clear_begun(messages: Iterable[Message]) -> None:
    """Record that a callback took these messages and did not try to handle them."""
    for message in messages:
        if has_begun(message):
            del message.begun


def return_messages(messages: Iterable[Message]) -> None:
    """Return the unsettled ones of these messages to the server; for the SDK itself.

    If no callback has seen a message, pullstream's broker does not count a delivery attempt.
    """
    for message in messages:
        if message.settled is None:
            message.settled = _RETURN
            message.batch.sink.put((_RETURN, message, 0, None))


def lose(message: Message) -> None:
    """Drop an unsettled message whose lease is over; for the SDK itself."""
    message.settled = _LOST
    message.batch.sink.put((_DROP, message, 0, None))


def return_dropped(messages: Iterable[Message]) -> None:
    """Return dropped messages to the server; for the SDK itself."""
    for message in messages:
        message.batch.sink.put((_RETURN, message, 0, None))


def ack_ids_of(messages: Iterable[Message]) -> list[str]:
    """Return the ack ID of each message, without a call for each."""
    ack_ids: list[str] = []
    # Neighbouring messages are nearly always from the same response.
    for batch, neighbours in groupby(messages, attrgetter("batch")):
        received = batch.received
        if batch.unparsed is not None:
            own = batch.unparsed.ack_ids
            ack_ids += [own[message._at] for message in neighbours]
        else:
            ack_ids += [received[message._at].ack_id for message in neighbours]
    return ack_ids


def attempts_of(batch: ResponseBatch) -> Sequence[int]:
    """Return the delivery attempts of the messages of a response; empty if there are none."""
    if batch.unparsed is not None:
        return batch.unparsed.delivery_attempts
    received = batch.received
    # A server reports attempts only with a dead-letter policy, and then for every message.
    return [one.delivery_attempt for one in received] if received[0].delivery_attempt else ()


def encoded_of(messages: Iterable[Message]) -> list[bytes]:
    """Return the serialized ReceivedMessage of each message."""
    encoded: list[bytes] = []
    for batch, neighbours in groupby(messages, attrgetter("batch")):
        received = batch.received
        if batch.unparsed is not None:
            own = batch.unparsed.encoded
            encoded += [own[message._at] for message in neighbours]
        else:
            encoded += [received[message._at].SerializeToString() for message in neighbours]
    return encoded


class MessageBatch(list[Message]):
    """The list of messages that a callback of `subscribe_batch` gets.

    The callback settles the messages one by one, or together with `ack` and `nack`.
    """

    def ack(self) -> None:
        """Acknowledge every message that is not settled."""
        unsettled = []
        for message in self:
            if message.settled is None:
                message.settled = _ACK
                unsettled.append(message)
            elif message.settled is _LOST:
                unsettled.append(message)
        # A user may build a list from messages of several subscriptions.
        for sink, messages in groupby(unsettled, attrgetter("batch.sink")):
            sink.ack_all(list(messages))

    def nack(self, delay: float = 0) -> None:
        """Nack every message that is not settled.

        Args:
            delay: Seconds until the redelivery, from 0 to 600; see `Message.nack`. Default: 0.

        Raises:
            ValueError: `delay` is not between 0 and 600.
        """
        for message in self:
            if message.settled is None or message.settled is _LOST:
                message.nack(delay)
