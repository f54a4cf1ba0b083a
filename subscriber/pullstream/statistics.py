"""Counters and present load of a subscription, and of a publisher."""

from __future__ import annotations

from dataclasses import dataclass

from .runtime.lifecycle import SubscriptionState


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the time from receipt to acknowledgement of recent messages, in seconds.

    The values come from a histogram with steps of 10 %, so they are accurate to about 5 %. They are
    0.0 before the first acknowledgement.

    Attributes:
        p50: The median.
        p90: The 90th percentile.
        p99: The 99th percentile.
    """

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """The state and the counters of one stream of a subscription.

    Attributes:
        state: CONNECTING, STREAMING or RECONNECTING.
        received: Counter of received messages.
        received_bytes: Counter of the bytes of the responses.
        reopened: Counter of the times that the stream was opened again.
    """

    state: SubscriptionState
    received: int = 0
    received_bytes: int = 0
    reopened: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """An immutable snapshot, taken by `StreamingPullFuture.statistics()`.

    The counters start at 0 when the subscription begins. `leased`, `held`, `waiting`, `running`,
    `unanswered` and `load` are values at the time of the snapshot.

    Attributes:
        state: The state.
        since: Wall time at which this state began, in seconds since the epoch.
        received: Counter of received messages.
        redelivered: Counter of received messages with a delivery attempt above 1. Only a
            subscription with a dead-letter policy reports attempts.
        acked: Counter of messages that callbacks acked.
        nacked: Counter of messages that callbacks nacked. A callback that raises nacks its message.
        returned: Counter of messages that the SDK returned to the server, because no callback had
            seen them, or because the shutdown ended before their callback settled them.
        extended: Counter of lease extensions.
        expired: Counter of lost leases: the SDK gave the message up after `max_lease_duration`, the
            server reported that the lease is over, or it ended while the process was stopped.
        failed: Counter of acks, nacks and deadline changes that the server refused, or had not
            confirmed when their time or the subscription was over.
        callback_errors: Counter of callbacks that raised.
        reopened: Counter of the times that a stream was opened again.
        leased: Number of outstanding messages. Includes `held`, `waiting` and `running`.
        leased_bytes: Bytes of the outstanding messages.
        held: Number of messages that wait behind another message of their ordering key.
        waiting: Number of messages that wait for a worker.
        running: Number of messages that are in a callback.
        unanswered: Number of acknowledgements that the server has not confirmed. Answers that no
            caller waits for are read when there is other work to do.
        load: The fuller one of the two limits of flow control. At 1.0 the stream is paused.
        latency: Time from receipt to acknowledgement of recent messages; see Latency.
        streams: The statistics of each stream.
    """

    state: SubscriptionState
    since: float
    received: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    returned: int = 0
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
    streams: tuple[StreamStatistics, ...] = ()


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """An immutable snapshot, taken by `PublisherClient.statistics()`.

    The counters start at 0 when the client is created.

    Attributes:
        waiting: Number of messages without a result, including those in flight.
        in_flight: Number of batches that were sent and have no answer.
        published: Counter of messages that the server has confirmed.
        failed: Counter of messages that were not published, or not confirmed.
        requests: Counter of requests with an answer.
        retries: Counter of requests that were repeated after an error.
        hedges: Counter of second requests for slow ones.
        bytes: Counter of the bytes of successful requests.
    """

    waiting: int = 0
    in_flight: int = 0
    published: int = 0
    failed: int = 0
    requests: int = 0
    retries: int = 0
    hedges: int = 0
    bytes: int = 0
