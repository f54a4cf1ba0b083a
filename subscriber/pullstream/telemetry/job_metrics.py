"""Metrics of a job in this process, served for Prometheus. Needs `pullstream[prometheus]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError as _error:
    raise ImportError(
        "pullstream.telemetry.job_metrics needs prometheus-client: "
        "pip install 'pullstream[prometheus]'"
    ) from _error


class JobMetric(NamedTuple):
    """A metric with its present values.

    Attributes:
        name: Name of the metric.
        description: Text for the exported metric.
        values: By value of the label; with the key "" if there is no label.
        label: Name of the label; empty: there is none.
        is_counter: Whether the values never decrease.
    """

    name: str
    description: str
    values: Mapping[str, float]
    label: str = ""
    is_counter: bool = False


def serve_metrics(
    read: Callable[[], Iterable[JobMetric]], labels: Mapping[str, str], port: int, host: str = ""
) -> int:
    """Serve metrics at `/metrics` until the process ends, and return the port.

    Args:
        read: Returns the present metrics. It is called by the server's threads.
        labels: Labels of every metric.
        port: The port; 0: any free one.
        host: Address to listen on. Default: all addresses.

    Raises:
        OSError: The port cannot be used.
    """
    registry = CollectorRegistry()
    registry.register(JobCollector(read, labels))
    server, _ = start_http_server(port, host or "0.0.0.0", registry)
    return int(server.server_port)


class JobCollector:
    """Reads the metrics of a job when Prometheus collects.

    Args:
        read: Returns the present metrics.
        labels: Labels of every metric.
    """

    def __init__(self, read: Callable[[], Iterable[JobMetric]], labels: Mapping[str, str]) -> None:
        self._read = read
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        names = list(self._labels)
        for metric in self._read():
            labels = [*names, metric.label] if metric.label else names
            kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            family = kind(metric.name, metric.description, labels=labels)
            for own, value in metric.values.items():
                texts = [*self._labels.values(), *([own] if metric.label else [])]
                family.add_metric(texts, value)
            yield family
