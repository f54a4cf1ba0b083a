"""Metrics for Prometheus. It needs the extra `pullstream[prometheus]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.clock import SYSTEM_CLOCK
from protocol.errors import RpcError, code_name
from subscriber.hooks import Callback, RequestKind

from .observed_callback import End, observed
from .readings import COUNTERS, GAUGES, LATENCY, STATE, ReadingHooks, Readings

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Histogram
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError as error:
    raise ImportError(
        "subscriber.telemetry.prometheus needs prometheus-client: "
        "pip install 'pullstream[prometheus]'"
    ) from error

# A callback may take as long as its lease, an hour by default.
CALLBACK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class PrometheusHooks(ReadingHooks):
    """Exports a subscription to Prometheus: `subscribe(..., hooks=PrometheusHooks())`.

    Make one, and give it to every subscription: the label `subscription` bears the full name.
    docs/observability.md lists the metrics. Counts and levels are read from the subscription's
    statistics when Prometheus asks; a message costs only the timing of its callback.

    When a subscription is over its counters stay as they are, and another one of its name adds to
    them; its gauges disappear.

    Args:
        registry: where the metrics are registered; prometheus_client's own unless given.
        prefix: what the metrics' names begin with.

    Raises:
        ValueError: the registry has metrics of this prefix already, or no name may begin with it.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, prefix: str = "pullstream") -> None:
        super().__init__()
        self._callback_seconds = Histogram(
            f"{prefix}_callback_seconds",
            "Seconds that a callback took.",
            ["subscription"],
            buckets=CALLBACK_BUCKETS,
            registry=registry,
        )
        self._request_seconds = Histogram(
            f"{prefix}_request_seconds",
            "Seconds that a call to the server took, by its kind and gRPC status code.",
            ["subscription", "kind", "code"],
            registry=registry,
        )
        registry.register(_StatisticsCollector(prefix, self._readings))

    def wrap(self, subscription: str, callback: Callback) -> Callback:
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
        code = "OK" if error is None else code_name(error)
        self._request_seconds.labels(subscription, kind, code).observe(seconds)


class _StatisticsCollector:
    """Reads all subscriptions when Prometheus asks."""

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

    # By which a registry knows the names, before there is any subscription.
    describe = collect

    def _gauge(self, name: str, description: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            f"{self._prefix}_{name}", description, labels=["subscription", *labels]
        )
