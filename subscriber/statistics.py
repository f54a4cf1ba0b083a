"""What a subscription has done so far, and what it holds now."""

from __future__ import annotations

from dataclasses import dataclass

from .streaming.state import SubscriptionState


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the receipt of a message to its acknowledgement, of recent messages.

    Read off a histogram whose steps are a tenth wide: good to about 5 %. All 0.0 before the first.
    """

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot, taken by `StreamingPullFuture.statistics()`. It never changes.

    Counted since the subscription began:
        received: messages that came in. redelivered: those of them with a delivery attempt above 1,
            which only a subscription with a dead-letter policy tells.
        acked, nacked: messages settled so, by callbacks or by the SDK itself.
        extended: leases prolonged, each time counted.
        expired: leases lost: given up after max_lease_duration, or found to be over.
        failed: acknowledgements, nacks and deadline changes that the server did not take.
        callback_errors: callbacks that raised.
        reopened: streams opened after the first one.

    As they are now:
        state, since: the state, and the wall time in seconds at which it began.
        leased: messages received and not finished, `leased_bytes` of them. Of these `held` wait
            behind another message of their ordering key, `waiting` for a worker, and `running` are
            in a callback.
        unanswered: acknowledgements that the server has not confirmed. Answers that nobody waits
            for are read when there is something else to do.
        load: the fuller of the two limits of flow control; the stream pauses at 1.0.
        latency: see Latency.
    """

    state: SubscriptionState
    since: float
    received: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    expired: int = 0
    failed: int = 0
    callback_errors: int = 0
    reopened: int = 0
    leased: int = 0
    leased_bytes: int = 0
    held: int = 0
    waiting: int = 0
    running: int = 0
    unanswered: int = 0
    load: float = 0.0
    latency: Latency = Latency()
