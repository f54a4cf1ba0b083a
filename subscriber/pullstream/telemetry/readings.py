"""Statistics of all subscriptions, by name, in the form in which metrics are exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pullstream.hooks import Hooks, StateChange
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Statistics
from pullstream_protocol.call_lock import CallLock


class Metric(NamedTuple):
    """A field of Statistics as a metric.

    Attributes:
        field: Name of the field.
        unit: Unit in the notation of UCUM.
        description: Text for the exported metric.
    """

    field: str
    unit: str
    description: str


COUNTERS = (
    Metric("received", "{message}", "Messages received."),
    Metric("redelivered", "{message}", "Messages received with a delivery attempt above 1."),
    Metric("acked", "{message}", "Messages acked."),
    Metric("nacked", "{message}", "Messages nacked, including those whose callback raised."),
    Metric("returned", "{message}", "Messages returned by the SDK, not settled by a callback."),
    Metric("extended", "{lease}", "Lease extensions."),
    Metric("expired", "{lease}", "Leases lost; their messages are redelivered."),
    Metric("failed", "{message}", "Acks, nacks and deadline changes that failed permanently."),
    Metric("callback_errors", "{error}", "Callbacks that raised an exception."),
    Metric("reopened", "{stream}", "Streams opened again."),
)
GAUGES = (
    Metric("leased", "{message}", "Messages received and not finished."),
    Metric("leased_bytes", "By", "Bytes of the messages received and not finished."),
    Metric("held", "{message}", "Messages that wait behind another one of their ordering key."),
    Metric("waiting", "{message}", "Messages that wait for a worker."),
    Metric("running", "{message}", "Messages in a callback."),
    Metric("unanswered", "{message}", "Acks that the server has not confirmed."),
    Metric("load", "1", "The fuller limit of flow control; the stream pauses at 1."),
)
LATENCY = "Seconds from receipt to acknowledgement, for recent messages."
STATE = "Subscriptions with this name in this state: 1 or 0, unless several run at a time."


@dataclass(frozen=True, slots=True)
class Reading:
    """The sum of all subscriptions with one name.

    `gauges`, `states` and `latency` cover only open subscriptions, and are empty if there are none.

    Attributes:
        subscription: The full name.
        counters: By field of Statistics, including closed subscriptions. They never decrease.
        gauges: By field of Statistics: the sum, or the maximum in the case of `load`.
        states: Number of subscriptions in each state, by the name of the state.
        latency: By quantile: the maximum, in seconds.
    """

    subscription: str
    counters: Mapping[str, int]
    gauges: Mapping[str, float]
    states: Mapping[str, int]
    latency: Mapping[str, float]


class Readings:
    """The subscriptions of one adapter, which are read when metrics are collected.

    The counts of a closed subscription are kept, so that a later one with the same name continues
    from them. Counts that its callbacks add after the close are lost. Any thread may call any
    method.
    """

    def __init__(self) -> None:
        # Held also while statistics are read, so that a subscription is read either as open or as
        # closed, never as both. The SDK calls hooks without holding a lock.
        self._lock = CallLock()
        self._running: dict[str, list[Callable[[], Statistics]]] = {}
        self._over: dict[str, Counter[str]] = {}

    def begin(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        """Read `statistics` from now on, until it reports that the subscription is closed."""
        with self._lock.once:
            self._running.setdefault(subscription, []).append(statistics)
            self._over.setdefault(subscription, Counter())

    def end(self, subscription: str) -> None:
        """Keep the counts of a subscription that was closed, and drop the rest."""
        with self._lock.once:
            running = self._running.get(subscription, [])
            for statistics in tuple(running):
                last = statistics()
                if last.state is SubscriptionState.CLOSED:
                    running.remove(statistics)
                    self._over[subscription].update(_counts(last))

    def read(self) -> list[Reading]:
        """Return a reading for each name, in the order of their first subscriptions."""
        with self._lock.once:
            return [
                _reading(name, self._over[name], [statistics() for statistics in running])
                for name, running in self._running.items()
            ]


class ReadingHooks(Hooks):
    """Hooks that read the statistics of the subscriptions they are given to."""

    def __init__(self) -> None:
        self._readings = Readings()

    def subscribed(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        """Include the subscription's statistics in every collection of metrics from now on."""
        self._readings.begin(subscription, statistics)

    def state_changed(self, subscription: str, change: StateChange) -> None:
        """Take the subscription out of the readings when it is closed."""
        if change.state is SubscriptionState.CLOSED:
            self._readings.end(subscription)


def _counts(statistics: Statistics) -> dict[str, int]:
    return {metric.field: getattr(statistics, metric.field) for metric in COUNTERS}


def _reading(name: str, over: Counter[str], snapshots: Sequence[Statistics]) -> Reading:
    counters = Counter(over)
    for snapshot in snapshots:
        counters.update(_counts(snapshot))
    live = [snapshot for snapshot in snapshots if snapshot.state is not SubscriptionState.CLOSED]
    if not live:
        return Reading(name, counters, {}, {}, {})
    gauges: dict[str, float] = {
        metric.field: sum(getattr(snapshot, metric.field) for snapshot in live) for metric in GAUGES
    }
    gauges["load"] = max(snapshot.load for snapshot in live)
    states = Counter(snapshot.state for snapshot in live)
    return Reading(
        name,
        counters,
        gauges,
        {state.value: states[state] for state in SubscriptionState},
        {
            "0.5": max(snapshot.latency.p50 for snapshot in live),
            "0.9": max(snapshot.latency.p90 for snapshot in live),
            "0.99": max(snapshot.latency.p99 for snapshot in live),
        },
    )
