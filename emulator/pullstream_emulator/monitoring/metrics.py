"""Metrics of a broker in the text format of Prometheus. Needs the extra `emulator`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from pullstream_protocol import names

from .loop_delay import BOUNDS, LoopDelay
from .status import SubscriptionStatus, TopicStatus

PREFIX = "pullstream_broker_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOPIC = ("project", "topic")
_SUBSCRIPTION = ("project", "subscription", "topic")

# The counters of a topic: the attribute of TopicCounts, the metric and its description.
_TOPIC_COUNTERS = (
    ("published", "published_messages", "Messages published to the topic."),
    ("published_bytes", "published_bytes", "Bytes of the messages published to the topic."),
)
# The counters of a subscription: the attribute of SubscriptionCounts, the metric, its description.
_SUBSCRIPTION_COUNTERS = (
    ("delivered", "delivered_messages", "Deliveries, including redeliveries."),
    ("acknowledged", "acknowledged_messages", "Accepted acknowledgements."),
    ("nacked", "nacked_messages", "Messages that a consumer nacked."),
    ("expired", "expired_leases", "Leases that reached their ack deadline."),
    ("returned", "returned_messages", "Messages returned without a counted delivery attempt."),
    ("extended", "extended_leases", "Extensions of ack deadlines."),
    ("dead_lettered", "dead_lettered_messages", "Messages forwarded to the dead-letter topic."),
)
# The gauges of a subscription: the attribute of SubscriptionStatus, the metric, its description.
_SUBSCRIPTION_GAUGES = (
    ("backlog", "backlog_messages", "Messages that are not finally acknowledged."),
    ("leased", "leased_messages", "Messages with a lease."),
    ("delayed", "delayed_messages", "Messages and ordering keys that wait for a retry delay."),
    (
        "oldest_unacked_seconds",
        "oldest_unacked_seconds",
        "Age of the oldest message that is not acknowledged.",
    ),
    ("streams", "open_streams", "Open streaming pulls."),
    ("waiting_pulls", "waiting_pulls", "Pull calls that wait for a message."),
)


@dataclass(frozen=True)
class MetricSources:
    """The parts of a broker that have metrics.

    Attributes:
        topics: The state of its topics.
        subscriptions: The state of its subscriptions.
        stored_bytes: Size of the stored messages, in bytes.
        loop_delay: Delay of the event loop.
        version: Version of the broker.
        max_bytes: Limit of the stored messages, in bytes; None: no limit.
        storage_bytes: Size of the data directory's files, in bytes; None: there is no directory.
        is_ready: Whether the broker can store changes.
    """

    topics: Sequence[TopicStatus]
    subscriptions: Sequence[SubscriptionStatus]
    stored_bytes: int
    loop_delay: LoopDelay
    version: str
    max_bytes: int | None
    storage_bytes: int | None
    is_ready: bool


def render(sources: MetricSources) -> bytes:
    """Return the metrics. Any thread may call it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collector(sources))
    text: bytes = generate_latest(registry)
    return text


class _Collector:
    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. prometheus_client calls it."""
        sources = self._sources
        topics = [(each.counts, _labels(each.name)) for each in sources.topics]
        subscriptions = [(each, _labels(each.name, each.topic)) for each in sources.subscriptions]
        counts = [(each.counts, labels) for each, labels in subscriptions]
        for table, label_names, rows in (
            (_TOPIC_COUNTERS, _TOPIC, topics),
            (_SUBSCRIPTION_COUNTERS, _SUBSCRIPTION, counts),
        ):
            for field, name, text in table:
                yield _filled(
                    CounterMetricFamily(PREFIX + name, text, labels=label_names), field, rows
                )
        for field, name, text in _SUBSCRIPTION_GAUGES:
            family = GaugeMetricFamily(PREFIX + name, text, labels=_SUBSCRIPTION)
            yield _filled(family, field, subscriptions)
        yield from self._of_broker()

    def _of_broker(self) -> Iterator[Metric]:
        sources = self._sources
        yield InfoMetricFamily(
            PREFIX.rstrip("_"), "The broker.", value={"version": sources.version}
        )
        for name, text, value in (
            ("ready", "1 if the broker can store changes, otherwise 0.", sources.is_ready),
            ("stored_bytes", "Bytes of all stored messages.", sources.stored_bytes),
            ("max_bytes", "Limit of the stored messages, in bytes.", sources.max_bytes),
            ("storage_bytes", "Bytes of the files in the data directory.", sources.storage_bytes),
        ):
            if value is not None:
                yield GaugeMetricFamily(PREFIX + name, text, value)
        delay = sources.loop_delay
        bounds = [str(bound) for bound in BOUNDS] + ["+Inf"]
        yield HistogramMetricFamily(
            PREFIX + "event_loop_delay_seconds",
            "Delay of the event loop, measured twice a second.",
            buckets=list(zip(bounds, accumulate(delay.counts), strict=True)),
            sum_value=delay.total,
        )


def _labels(name: str, *others: str) -> tuple[str, ...]:
    """Return the project and the short name of a resource, and short names that belong to it."""
    return (names.project_of(name), *map(names.short_id, (name, *others)))


def _filled(family: Any, field: str, rows: Iterable[tuple[object, tuple[str, ...]]]) -> Metric:
    for row, labels in rows:
        family.add_metric(labels, getattr(row, field))
    metric: Metric = family
    return metric
