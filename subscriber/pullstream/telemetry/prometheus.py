"""Metrics for Prometheus. Needs the extra `pullstream[prometheus]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import MethodType
from typing import Any
from weakref import WeakMethod

from pullstream.hooks import Callback, PublisherHooks, RequestKind
from pullstream.statistics import PublisherStatistics
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import RpcError, code_name

from .observed_callback import End, observed
from .readings import COUNTERS, GAUGES, LATENCY, STATE, ReadingHooks, Readings

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError as error:
    raise ImportError(
        "pullstream.telemetry.prometheus needs prometheus-client: "
        "pip install 'pullstream[prometheus]'"
    ) from error

# A callback may take as long as its lease, an hour by default.
CALLBACK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class PrometheusHooks(ReadingHooks):
    """Exports a subscription to Prometheus: `subscribe(..., hooks=PrometheusHooks())`.

    Create one object, and pass it to every subscription. The label `subscription` is the full name.
    docs/observability.md lists the metrics. Counters and gauges are read from the subscription's
    statistics when Prometheus collects. The cost of a message is only the timing of its callback.

    When a subscription is closed, its counters keep their values, and a later subscription with the
    same name adds to them. Its gauges disappear.

    Args:
        registry: Registers the metrics; the global registry of prometheus_client by default.
        prefix: Prefix of the metrics' names.

    Raises:
        ValueError: The registry already has metrics with this prefix, or the prefix is invalid.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, prefix: str = "pullstream") -> None:
        super().__init__()
        self._callback_seconds = Histogram(
            f"{prefix}_callback_seconds",
            "Duration of callbacks in seconds.",
            ["subscription"],
            buckets=CALLBACK_BUCKETS,
            registry=registry,
        )
        self._request_seconds = Histogram(
            f"{prefix}_request_seconds",
            "Duration of calls to the server in seconds, by kind and gRPC status code.",
            ["subscription", "kind", "code"],
            registry=registry,
        )
        registry.register(_StatisticsCollector(prefix, self._readings))

    def wrap(self, subscription: str, callback: Callback) -> Callback:
        """Return a callback whose duration is recorded, also if it raises."""
        observe = self._callback_seconds.labels(subscription).observe

        def begin(_: Any) -> End:
            started = SYSTEM_CLOCK.monotonic()
            return lambda _: observe(SYSTEM_CLOCK.monotonic() - started)

        return observed(callback, begin)

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """Record the call's duration with its kind and its status code."""
        self._request_seconds.labels(subscription, kind, _code_of(error)).observe(seconds)


class _StatisticsCollector:
    """Reads all subscriptions when Prometheus collects."""

    def __init__(self, prefix: str, readings: Readings) -> None:
        self._prefix = prefix
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        readings = self._readings.read()
        for metric in COUNTERS:
            counter = CounterMetricFamily(
                f"{self._prefix}_{metric.field}", metric.description, labels=["subscription"]
            )
            for reading in readings:
                counter.add_metric([reading.subscription], reading.counters[metric.field])
            yield counter
        for metric in GAUGES:
            gauge = self._gauge(metric.field, metric.description)
            for reading in readings:
                if metric.field in reading.gauges:
                    gauge.add_metric([reading.subscription], reading.gauges[metric.field])
            yield gauge
        state = self._gauge("state", STATE, "state")
        latency = self._gauge("latency_seconds", LATENCY, "quantile")
        for reading in readings:
            for name, count in reading.states.items():
                state.add_metric([reading.subscription, name], count)
            for quantile, seconds in reading.latency.items():
                latency.add_metric([reading.subscription, quantile], seconds)
        yield state
        yield latency

    # A registry reads the names here, before there is any subscription.
    describe = collect

    def _gauge(self, name: str, description: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            f"{self._prefix}_{name}", description, labels=["subscription", *labels]
        )


class PrometheusPublisherHooks(PublisherHooks):
    """Exports publishers to Prometheus: `PublisherClient(hooks=PrometheusPublisherHooks())`.

    Create one object, and pass it to every client. The label `topic` is the full name.
    docs/observability.md lists the metrics. Their cost is per request, not per message.

    Args:
        registry: Registers the metrics; the global registry of prometheus_client by default.
        prefix: Prefix of the metrics' names.

    Raises:
        ValueError: The registry already has metrics with this prefix, or the prefix is invalid.
    """

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, prefix: str = "pullstream_publisher"
    ) -> None:
        counter = partial(Counter, labelnames=["topic"], registry=registry)
        self._published = counter(f"{prefix}_published", "Messages that the server has confirmed.")
        self._failed = counter(
            f"{prefix}_failed", "Messages that were not published, or not confirmed."
        )
        self._request_bytes = counter(f"{prefix}_request_bytes", "Bytes of all attempts.")
        self._publish_seconds = Histogram(
            f"{prefix}_publish_seconds",
            "Seconds from the first attempt of a request until its messages are confirmed.",
            ["topic"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            f"{prefix}_request_seconds",
            "Duration of attempts in seconds, by gRPC status code.",
            ["topic", "code"],
            registry=registry,
        )
        self._lock = CallLock()
        # References to the clients' statistics(); they return None for a client that is gone.
        self._clients: list[Callable[[], Callable[[], PublisherStatistics] | None]] = []
        for name, description in (
            ("waiting", "Messages without a result, including those in flight."),
            ("in_flight", "Requests that were sent and have no answer."),
        ):
            gauge = Gauge(f"{prefix}_{name}", description, registry=registry)
            gauge.set_function(partial(self._sum, name))

    def started(self, statistics: Callable[[], PublisherStatistics]) -> None:
        """Include the client in the gauges until it is garbage-collected."""
        is_method = isinstance(statistics, MethodType)
        reference = WeakMethod(statistics) if is_method else lambda: statistics
        with self._lock.once:
            self._clients = [client for client in self._clients if client() is not None]
            self._clients.append(reference)

    def published(self, topic: str, messages: int, seconds: float) -> None:
        """Count confirmed messages, and record the duration."""
        self._published.labels(topic).inc(messages)
        self._publish_seconds.labels(topic).observe(seconds)

    def failed(self, topic: str, messages: int, error: BaseException) -> None:
        """Count failed messages."""
        self._failed.labels(topic).inc(messages)

    def request_done(
        self, topic: str, messages: int, size: int, seconds: float, error: BaseException | None
    ) -> None:
        """Record an attempt with its status code."""
        self._request_seconds.labels(topic, _code_of(error)).observe(seconds)
        self._request_bytes.labels(topic).inc(size)

    def _sum(self, name: str) -> int:
        with self._lock.once:
            clients = [client() for client in self._clients]
        return sum(getattr(statistics(), name) for statistics in clients if statistics is not None)


def _code_of(error: BaseException | None) -> str:
    """Return the status code of a call."""
    if error is None:
        return "OK"
    return code_name(error) if isinstance(error, RpcError) else "UNKNOWN"
