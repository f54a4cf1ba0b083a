"""The rules of settling many messages by calls that somebody waits for."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.clock import Clock
from protocol.errors import RpcError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.exceptions import AcknowledgeError
from subscriber.rpc import DEFAULT_TIMEOUT
from subscriber.steps import Call, Pause, Steps
from subscriber.streaming.outbox import Outbox
from subscriber.streaming.requests import Request

# How long calls that fail for passing reasons are made again, in seconds.
PATIENCE = 60.0


def settle(
    subscription: str,
    seconds: int,
    ack_ids: Iterable[str],
    clock: Clock,
    *,
    patience: float = PATIENCE,
    timeout: float = PATIENCE,
) -> Steps[dict[str, AcknowledgeError]]:
    """Acknowledge (`seconds` is ACK), or let the leases end so many seconds from now (0: nack).

    One call for 2,500 messages, unless their ids are very long; tried again for `patience` seconds
    while the server is away. All of it takes `timeout` seconds at most. Returns the ids that were
    not taken, each with the reason.
    """
    outbox = Outbox()
    outbox.add(seconds, ack_ids)
    failed: dict[str, AcknowledgeError] = {}
    began = clock.monotonic()
    give_up_at, ends_at = began + patience, began + timeout
    while not outbox.is_empty:
        request = outbox.next_request(clock.monotonic())
        if request is None:
            yield Pause(outbox.next_due() or 0.0)
            continue
        request.give_up_at = min(request.give_up_at, give_up_at)
        error: RpcError | None = None
        try:
            yield call_for(subscription, request, max(ends_at - clock.monotonic(), 0.0))
        except RpcError as raised:
            error = raised
        failed.update(outbox.answered(request, error, clock.monotonic()).failed)
    return failed


def call_for(subscription: str, request: Request, timeout: float = DEFAULT_TIMEOUT) -> Call:
    """The call that tells the server what `request` says."""
    if request.is_ack:
        acknowledge = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=request.ack_ids)
        return Call("Acknowledge", acknowledge, timeout)
    modify = pubsub.ModifyAckDeadlineRequest(
        subscription=subscription,
        ack_ids=request.ack_ids,
        ack_deadline_seconds=request.seconds,
    )
    return Call("ModifyAckDeadline", modify, timeout)
