"""A received message, as a callback sees it."""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from .futures import AckFuture

if TYPE_CHECKING:
    from protocol.messages import pubsub_pb2 as pubsub


class Verdict(Enum):
    """What was decided about a message."""

    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    DROP = "drop"


# Verdict, message, seconds (EXTEND only), future to resolve with the server's answer (or None).
Outcome = tuple[Verdict, "Message", int, "AckFuture | None"]


class Outcomes(Protocol):
    """Where a message sends what was decided about it."""

    def put(self, outcome: Outcome) -> None:
        """Hand over, and never wait."""

    def put_tracked(self, outcome: Outcome) -> None:
        """Hand over an outcome with a future, which is resolved whatever happens."""

    @property
    def exactly_once(self) -> bool:
        """Whether the subscription delivers exactly once, by the newest response."""


class Message:
    """One message, with the means to settle it.

    Settle each message once, by `ack()` or `nack()`, from any thread, inside the callback or later.
    While it is not settled its lease is extended, up to FlowControl.max_lease_duration.

    A message shares memory with the others of its response: one that is kept for long keeps them.
    """

    __slots__ = (
        "_key",
        "_outcomes",
        "_received",
        "ack_id",
        "received_at",
        "settled",
        "share",
    )

    def __init__(
        self, received: pubsub.ReceivedMessage, outcomes: Outcomes, received_at: float, share: int
    ) -> None:
        self._received = received
        self._outcomes = outcomes
        self._key: str | None = None
        self.ack_id = received.ack_id
        # For the SDK itself: when it came (monotonic clock); its equal share of the response's
        # bytes, which flow control counts, as the memory of a response is one piece; the first
        # verdict.
        self.received_at = received_at
        self.share = share
        self.settled: Verdict | None = None

    # ---- content -------------------------------------------------------------------------------

    @property
    def message_id(self) -> str:
        return self._received.message.message_id

    @property
    def data(self) -> bytes:
        return self._received.message.data

    @property
    def attributes(self) -> MutableMapping[str, str]:
        """The attributes; a missing key read by `[]` gives "", as in the official client."""
        return self._received.message.attributes

    @property
    def publish_time(self) -> datetime:
        """When the server took the message, in UTC."""
        stamp = self._received.message.publish_time
        return stamp.ToDatetime(tzinfo=timezone.utc)

    @property
    def ordering_key(self) -> str:
        """The key within which order is kept, "" if there is none."""
        key = self._key
        if key is None:
            key = self._key = self._received.message.ordering_key
        return key

    @property
    def size(self) -> int:
        """Bytes of the message on the wire: data, attributes, and all else."""
        return self._received.message.ByteSize()

    @property
    def delivery_attempt(self) -> int | None:
        """How often it was delivered, counting from 1; None without a dead-letter policy."""
        return self._received.delivery_attempt or None

    @property
    def exactly_once_enabled(self) -> bool:
        return self._outcomes.exactly_once

    # ---- verdicts ------------------------------------------------------------------------------

    def ack(self) -> None:
        """It is handled: the server need not deliver it again. Returns at once, never raises."""
        if self.settled is None:
            self.settled = Verdict.ACK
        self._outcomes.put((Verdict.ACK, self, 0, None))

    def nack(self) -> None:
        """It is not handled: the server should deliver it again, now. Returns at once."""
        if self.settled is None:
            self.settled = Verdict.NACK
        self._outcomes.put((Verdict.NACK, self, 0, None))

    def drop(self) -> None:
        """Forget it without telling the server, which delivers it again when its lease ends."""
        if self.settled is None:
            self.settled = Verdict.DROP
        self._outcomes.put((Verdict.DROP, self, 0, None))

    def modify_ack_deadline(self, seconds: int) -> None:
        """Let the lease end `seconds` from now (0 to 600; 0 is a nack). Returns at once.

        Leases are extended by themselves; the next extension overrides this one.
        """
        self._modify(seconds, None)

    def ack_with_response(self) -> AckFuture:
        """As `ack()`; the future resolves with what the server answered."""
        if self.settled is None:
            self.settled = Verdict.ACK
        return self._tracked(Verdict.ACK)

    def nack_with_response(self) -> AckFuture:
        """As `nack()`; the future resolves with what the server answered."""
        if self.settled is None:
            self.settled = Verdict.NACK
        return self._tracked(Verdict.NACK)

    def modify_ack_deadline_with_response(self, seconds: int) -> AckFuture:
        """As `modify_ack_deadline()`; the future resolves with what the server answered."""
        future = AckFuture()
        self._modify(seconds, future)
        return future

    def _tracked(self, verdict: Verdict) -> AckFuture:
        future = AckFuture()
        self._outcomes.put_tracked((verdict, self, 0, future))
        return future

    def _modify(self, seconds: int, future: AckFuture | None) -> None:
        if not 0 <= seconds <= 600:
            raise ValueError(f"seconds is {seconds}; an ack deadline is between 0 and 600 seconds")
        verdict = Verdict.EXTEND if seconds else Verdict.NACK
        if verdict is Verdict.NACK and self.settled is None:
            self.settled = Verdict.NACK
        put = self._outcomes.put if future is None else self._outcomes.put_tracked
        put((verdict, self, seconds, future))

    def __repr__(self) -> str:
        data = self.data
        shown = data if len(data) <= 50 else data[:50] + b"..."
        return (
            f"Message(message_id={self.message_id!r}, data={shown!r}, "
            f"ordering_key={self.ordering_key!r}, attributes={dict(self.attributes)!r})"
        )
