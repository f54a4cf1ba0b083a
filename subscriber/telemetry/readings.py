"""The statistics of many subscriptions, by name, in the form that metrics are exported in."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from subscriber.hooks import Hooks, StateChange
from subscriber.statistics import Statistics
from subscriber.streaming.state import SubscriptionState


class Metric(NamedTuple):
    """A field of Statistics as a metric; `unit` in the notation of UCUM."""

    field: str
    unit: str
    description: str


COUNTERS = (
    Metric("received", "{message}", "Messages that came in."),
    Metric("redelivered", "{message}", "Messages that came in with a delivery attempt above 1."),
    Metric("acked", "{message}", "Messages acked, by callbacks or by the SDK."),
    Metric("nacked", "{message}", "Messages nacked, by callbacks or by the SDK."),
    Metric("extended", "{lease}", "Leases prolonged, each time counted."),
    Metric("expired", "{lease}", "Leases lost; their messages are delivered again."),
    Metric("failed", "{message}", "Acks, nacks and deadline changes that the server did not take."),
    Metric("callback_errors", "{error}", "Callbacks that raised."),
    Metric("reopened", "{stream}", "Streams opened after the first one."),
)
GAUGES = (
    Metric("leased", "{message}", "Messages received and not finished."),
    Metric("leased_bytes", "By", "Bytes of the messages received and not finished."),
    Metric("held", "{message}", "Messages that wait behind another of their ordering key."),
    Metric("waiting", "{message}", "Messages that wait for a worker."),
    Metric("running", "{message}", "Messages in a callback."),
    Metric("unanswered", "{message}", "Acks that the server has not confirmed."),
    Metric("load", "1", "The fuller limit of flow control; the stream pauses at 1."),
)
LATENCY = "Seconds from the receipt of a message to its acknowledgement, of recent messages."
STATE = "Subscriptions of this name in this state: 1 or 0, unless several run at a time."


@dataclass(frozen=True, slots=True)
class Reading:
    """All subscriptions of one name, taken together.

    subscription: the full name.
    counters: by field of Statistics, with those of subscriptions that are over. They never fall.

    Of the subscriptions that are not over, and empty when all are:
        gauges: by field of Statistics; their sum, for `load` the greatest.
        states: how many are in each state, by its name.
        latency: by quantile, the greatest.
    """

    subscription: str
    counters: Mapping[str, int]
    gauges: Mapping[str, float]
    states: Mapping[str, int]
    latency: Mapping[str, float]


class Readings:
    """Knows every subscription that one adapter serves, and reads them when metrics are collected.

    A subscription that is over leaves its counts behind, so that another one of its name goes on
    from there; what its callbacks count afterwards is not seen. Any thread may call any method.
    """

    def __init__(self) -> None:
        # Held while statistics are taken as well: a subscription is read either as a running one or
        # as one that is over, never as both. The SDK calls hooks without a lock of its own.
        self._lock = threading.Lock()
        self._running: dict[str, list[Callable[[], Statistics]]] = {}
        self._over: dict[str, Counter[str]] = {}

    def begin(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        """Read `statistics` from now on, until it says that the subscription is closed."""
        with self._lock:
            self._running.setdefault(subscription, []).append(statistics)
            self._over.setdefault(subscription, Counter())

    def end(self, subscription: str) -> None:
        """A subscription of this name is closed: keep its counts and let go of the rest."""
        with self._lock:
            running = self._running.get(subscription, [])
            for statistics in tuple(running):
                last = statistics()
                if last.state is SubscriptionState.CLOSED:
                    running.remove(statistics)
                    self._over[subscription].update(_counts(last))

    def read(self) -> list[Reading]:
        """A reading of each name that ever began, in the order of their beginning."""
        with self._lock:
            return [
                _reading(name, self._over[name], [statistics() for statistics in running])
                for name, running in self._running.items()
            ]


class ReadingHooks(Hooks):
    """Hooks that read the statistics of the subscriptions they are given to."""

    def __init__(self) -> None:
        self._readings = Readings()

    def subscribed(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        self._readings.begin(subscription, statistics)

    def state_changed(self, subscription: str, change: StateChange) -> None:
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
