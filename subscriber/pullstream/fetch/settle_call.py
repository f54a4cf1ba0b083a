"""Rules for settling many messages by calls that the caller waits for."""

from __future__ import annotations

from collections.abc import Iterable

from pullstream.exceptions import AcknowledgeError
from pullstream.rpc.sansio import Sleep, Steps
from pullstream.streaming.ack_requests import Purpose
from pullstream.streaming.outbox import Outbox
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError

# How long calls are retried after transient errors, in seconds.
RETRY_FOR = 60.0


def settle(
    subscription: str,
    purpose: Purpose,
    ack_ids: Iterable[str],
    clock: Clock,
    *,
    seconds: int = 0,
    retry_for: float = RETRY_FOR,
    timeout: float = RETRY_FOR,
) -> Steps[dict[str, AcknowledgeError]]:
    """Acknowledge messages, or change their ack deadlines.

    One call settles up to 2,500 messages, or fewer if their ids are very long.

    Args:
        subscription: Full name.
        purpose: ACK to acknowledge, or the reason for a deadline change.
        ack_ids: The deliveries.
        clock: Measures time.
        seconds: 0 to nack, or the new ack deadline in seconds from now.
        retry_for: Seconds in which calls are retried while the server is unreachable.
        timeout: Longest duration of all calls together, in seconds.

    Returns:
        The ids that the server refused, with the error of each.
    """
    outbox = Outbox()
    outbox.add_ack_ids(purpose, ack_ids, seconds)
    failed: dict[str, AcknowledgeError] = {}
    began = clock.monotonic()
    give_up_at, ends_at = began + retry_for, began + timeout
    while not outbox.is_empty:
        request = outbox.next_request(clock.monotonic())
        if request is None:
            yield Sleep(outbox.next_due() or 0.0)
            continue
        request.give_up_at = min(request.give_up_at, give_up_at)
        error: RpcError | None = None
        try:
            yield request.call(subscription, max(ends_at - clock.monotonic(), 0.0))
        except RpcError as raised:
            error = raised
        failed.update(outbox.record_answer(request, error, clock.monotonic()).failed)
    return failed
