"""Requests to the server about messages: their purpose, their retry time and their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, overload

import grpc

from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.rpc.calls import PendingCall
from pullstream.rpc.rpcs import Rpcs
from pullstream.rpc.sansio import UnaryCall
from pullstream.runtime.retry_clock import Backoff
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import UNSEEN

# How long a request is retried after transient errors, in seconds. A deadline change is useless
# after the end of the lease, so it is retried for the length of its extension. A nack is retried
# until the lease has probably expired.
ACK_RETRY_FOR = 600.0
NACK_RETRY_FOR = 60.0

# Errors that are not caused by the request: a retry may succeed.
TRANSIENT_CODES = frozenset(
    {
        # Not cancelled by this client: a server that stops cancels its running calls.
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
    }
)

_STATUS_OF_CODE = {
    grpc.StatusCode.PERMISSION_DENIED: AcknowledgeStatus.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION: AcknowledgeStatus.FAILED_PRECONDITION,
}

_TRANSIENT_PREFIX = "TRANSIENT_"
_INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"
# An earlier message of the same ordering key is not acknowledged.
_UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


def new_backoff() -> Backoff:
    """Return the pauses before retries of a request."""
    return Backoff(0.1, 30.0)


class Purpose(Enum):
    """The purpose of a request, which decides how its answer is read and how long it is retried."""

    ACK = "ack"
    # Changes an ack deadline at the user's request.
    USER = "user"
    # Extends a lease that is about to end.
    LEASE = "lease"
    # Ends a lease, now or some seconds from now.
    NACK = "nack"
    # Returns a message that no callback has seen.
    RETURN = "return"
    # Asks the server whether the ack ids of new deliveries are valid.
    RECEIPT = "receipt"
    # Extends the lease of an acknowledgement that has no answer yet. Its own answer is ignored.
    KEEPALIVE = "keepalive"


class RequestKind(Enum):
    """A kind of requests with a separate limit of calls in flight."""

    DEADLINES = "deadlines"
    ACKS = "acks"


ALL_KINDS = tuple(RequestKind)


class SentAckIds(Sequence[str]):
    """The ack ids of a request that was sent. They are parsed at every access.

    gRPC keeps the bytes until the answer, so the ids take no further memory: 0.4 instead of 0.6 KB
    for each acknowledgement without an answer. Most requests succeed, and then nobody reads the
    ids.

    Args:
        encoded: The request, serialized.
        count: Number of its ack ids.
        request_type: The type of the request, which has the field `ack_ids`.
    """

    def __init__(self, encoded: bytes, count: int, request_type: Any) -> None:
        self._encoded = encoded
        self._count = count
        self._type = request_type

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._parsed()[at]

    def _parsed(self) -> Sequence[str]:
        # A slice is one operation in protobuf, and independent of the message.
        ack_ids: Sequence[str] = self._type.FromString(self._encoded).ack_ids[:]
        return ack_ids


@dataclass(eq=False)
class AckRequest:
    """One Acknowledge or ModifyAckDeadline call.

    Attributes:
        purpose: The reason for the call. ACK makes it an Acknowledge call.
        ack_ids: The deliveries. After `begin`, they are parsed at every access.
        give_up_at: When to stop retrying, on the outbox's clock.
        seconds: The new deadline in seconds from now. 0 for an Acknowledge call.
        number: Counts requests in the order in which they were made.
        is_ordered_retry: Whether it retries acknowledgements that were refused as too early
            (OrderedAckRetry).
        sent_at: When it was last sent, on the outbox's clock.
        may_have_succeeded: Whether an earlier attempt may have taken effect: it was sent, and the
            server has neither confirmed nor refused each of its ids.
        backoff: The pauses between attempts.
    """

    purpose: Purpose
    ack_ids: Sequence[str]
    give_up_at: float
    seconds: int = 0
    number: int = 0
    is_ordered_retry: bool = False
    sent_at: float = 0.0
    may_have_succeeded: bool = False
    backoff: Backoff = field(default_factory=new_backoff)

    @property
    def is_ack(self) -> bool:
        """Whether this is an Acknowledge call and not a ModifyAckDeadline call."""
        return self.purpose is Purpose.ACK

    @property
    def kind(self) -> RequestKind:
        """The kind, whose limit of calls in flight applies to this request."""
        return kind_of(self.purpose)

    @property
    def is_receipt(self) -> bool:
        """Whether the answer confirms the ack IDs of new deliveries."""
        return self.purpose is Purpose.RECEIPT

    @property
    def is_nack(self) -> bool:
        """Whether the request ends leases for a redelivery, as a nack or as a return."""
        return self.purpose in (Purpose.NACK, Purpose.RETURN)

    @property
    def is_awaited(self) -> bool:
        """Whether messages are held until the answer arrives."""
        return self.is_receipt or self.is_nack

    def call(self, subscription: str, timeout: float) -> UnaryCall:
        """Return the call that sends this request.

        Args:
            subscription: Full name.
            timeout: Seconds for the call.
        """
        if self.is_ack:
            ack = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=self.ack_ids)
            return UnaryCall("Acknowledge", ack, timeout)
        modify = pubsub.ModifyAckDeadlineRequest(
            subscription=subscription, ack_ids=self.ack_ids, ack_deadline_seconds=self.seconds
        )
        metadata = ((UNSEEN, "1"),) if self.purpose is Purpose.RETURN else ()
        return UnaryCall("ModifyAckDeadline", modify, timeout, metadata=metadata)

    def begin(self, subscription: str, timeout: float, rpcs: Rpcs) -> PendingCall:
        """Begin the call that sends this request, and keep the ack ids only as a part of its bytes.

        Args:
            subscription: Full name.
            timeout: Seconds for the call.
            rpcs: Makes the call.
        """
        call = self.call(subscription, timeout)
        encoded = call.request.SerializeToString()
        self.ack_ids = SentAckIds(encoded, len(self.ack_ids), type(call.request))
        return call.begin_or_wait(rpcs, encoded)


def kind_of(purpose: Purpose) -> RequestKind:
    """Return the kind of the requests with a purpose."""
    return RequestKind.ACKS if purpose is Purpose.ACK else RequestKind.DEADLINES


def retry_for(purpose: Purpose, seconds: int) -> float:
    """Return the seconds from the first attempt to the last."""
    if purpose is Purpose.ACK:
        return ACK_RETRY_FOR
    is_nack = purpose in (Purpose.NACK, Purpose.RETURN)
    return NACK_RETRY_FOR if is_nack or not seconds else float(seconds)


@dataclass
class AckResult:
    """The ack ids of one request, sorted by result.

    Attributes:
        succeeded: Accepted by the server.
        retry: Failed with a transient error. It is unknown whether the request took effect.
        unnamed: Not named by an error that names others. It is unknown whether the request took
            effect for them.
        too_early: Refused because of ordering; to retry after the earlier messages of their keys.
        split: The server refused the whole request, possibly because of one id or of its size; to
            retry in smaller requests.
        failed: Failed permanently, with the error of each.
        names_ids: Whether the server judged single ids, and not the call as a whole.
    """

    succeeded: Sequence[str] = field(default_factory=list)
    retry: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    too_early: list[str] = field(default_factory=list)
    split: list[str] = field(default_factory=list)
    failed: dict[str, AcknowledgeError] = field(default_factory=dict)
    names_ids: bool = False


def read_ack_result(ack_ids: Sequence[str], error: RpcError | None) -> AckResult:
    """Sort the ids of a request by the result of its call.

    Only OK is a success. With exactly-once delivery the server names failed ids in an ErrorInfo.
    Servers differ about the ids that it does not name: some have applied the request for them, and
    some have not. So these ids are sent again, without the refused ones, until the server answers
    for them. Without an ErrorInfo the status counts for all ids.

    Args:
        ack_ids: The ids of the request.
        error: The error of the call; None if it succeeded.
    """
    if error is None:
        return AckResult(succeeded=ack_ids)
    named = dict(error.metadata or {})
    if not named.keys().isdisjoint(ack_ids):
        return _by_id(ack_ids, named)
    code = error.grpc_status_code
    if code in TRANSIENT_CODES:
        return AckResult(retry=list(ack_ids))
    if code is grpc.StatusCode.INVALID_ARGUMENT and len(ack_ids) > 1:
        return AckResult(split=list(ack_ids))
    status = _STATUS_OF_CODE.get(code, AcknowledgeStatus.OTHER)
    answer = AckResult(failed={i: AcknowledgeError(status, error.message) for i in ack_ids})
    for failure in answer.failed.values():
        failure.__cause__ = error
    return answer


def unconfirmed(info: str) -> AcknowledgeError:
    """Return the error for an id that was sent and that the server has not answered for."""
    return AcknowledgeError(
        AcknowledgeStatus.OTHER, f"{info}; it may have succeeded", may_have_succeeded=True
    )


def after_doubt(error: AcknowledgeError) -> AcknowledgeError:
    """Return the error for an id whose last attempt failed and an earlier one may have succeeded.

    Example: the server acknowledged a message, its answer was lost, and it then refused the second
    attempt, because the ack id is used up.
    """
    info = f"{error.info}; an earlier attempt, which was not answered, may have succeeded"
    doubtful = AcknowledgeError(error.error_code, info, may_have_succeeded=True)
    doubtful.__cause__ = error.__cause__
    return doubtful


def _by_id(ack_ids: Sequence[str], named: dict[str, str]) -> AckResult:
    answer = AckResult(names_ids=True)
    for ack_id in ack_ids:
        problem = named.get(ack_id)
        if problem is None:
            answer.unnamed.append(ack_id)
        elif problem == _UNORDERED:
            answer.too_early.append(ack_id)
        elif problem.startswith(_TRANSIENT_PREFIX):
            answer.retry.append(ack_id)
        elif problem == _INVALID_ACK_ID:
            answer.failed[ack_id] = AcknowledgeError(AcknowledgeStatus.INVALID_ACK_ID, problem)
        else:
            answer.failed[ack_id] = AcknowledgeError(AcknowledgeStatus.OTHER, problem)
    return answer
