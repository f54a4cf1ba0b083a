"""What the answer to an Acknowledge or ModifyAckDeadline call means, ack id by ack id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc

from protocol.errors import RpcError
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus

# Nothing is wrong with the request itself: the same again may well succeed.
TRANSIENT_CODES = frozenset(
    {
        # Not by us: a server that stops cancels what it has in hand.
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
# An earlier message of its key is not acknowledged.
_UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


@dataclass
class Answer:
    """The ids of one request, sorted by what became of them."""

    succeeded: list[str] = field(default_factory=list)
    retry: list[str] = field(default_factory=list)
    # To be tried again, too, when those of earlier messages of their keys are through.
    too_early: list[str] = field(default_factory=list)
    # The server refused the request as a whole, and one of its ids, or its size, may be the reason.
    split: list[str] = field(default_factory=list)
    failed: dict[str, AcknowledgeError] = field(default_factory=dict)


def read_answer(ack_ids: Sequence[str], error: RpcError | None) -> Answer:
    """Sort the ids of a request by the outcome of its call; `error` is None if the call succeeded.

    With exactly-once delivery the server names the ids that failed in an ErrorInfo, and has applied
    the others. Without one the status counts for all of them: a status other than OK is never taken
    for success.
    """
    if error is None:
        return Answer(succeeded=list(ack_ids))
    named = dict(error.metadata or {})
    if not named.keys().isdisjoint(ack_ids):
        return _by_id(ack_ids, named)
    code = error.grpc_status_code
    if code in TRANSIENT_CODES:
        return Answer(retry=list(ack_ids))
    if code is grpc.StatusCode.INVALID_ARGUMENT and len(ack_ids) > 1:
        return Answer(split=list(ack_ids))
    status = _STATUS_OF_CODE.get(code, AcknowledgeStatus.OTHER)
    return Answer(failed={i: AcknowledgeError(status, error.message) for i in ack_ids})


def _by_id(ack_ids: Sequence[str], named: dict[str, str]) -> Answer:
    answer = Answer()
    for ack_id in ack_ids:
        problem = named.get(ack_id)
        if problem is None:
            answer.succeeded.append(ack_id)
        elif problem == _UNORDERED:
            answer.too_early.append(ack_id)
        elif problem.startswith(_TRANSIENT_PREFIX):
            answer.retry.append(ack_id)
        elif problem == _INVALID_ACK_ID:
            answer.failed[ack_id] = AcknowledgeError(AcknowledgeStatus.INVALID_ACK_ID, problem)
        else:
            answer.failed[ack_id] = AcknowledgeError(AcknowledgeStatus.OTHER, problem)
    return answer
