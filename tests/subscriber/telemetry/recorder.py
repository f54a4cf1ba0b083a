"""OpenTelemetry's SDK with everything kept in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pullstream.telemetry.opentelemetry import OpenTelemetryHooks


class Recorder:
    """Hooks and their recorded telemetry."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.hooks = OpenTelemetryHooks(self.tracers, self.meters)

    def spans(self) -> tuple[ReadableSpan, ...]:
        """Return the ended spans in the order of their end."""
        return self._exporter.get_finished_spans()

    def span(self) -> ReadableSpan:
        (span,) = self.spans()
        return span

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics by name, collected now."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric, which may be none."""
        metrics = self.metrics()
        return list(metrics[name].data.data_points) if name in metrics else []

    def values(self, name: str, attribute: str) -> dict[Any, float]:
        """Return the value of each point of a counter or gauge, by one of its attributes."""
        return {point.attributes.get(attribute): point.value for point in self.points(name)}

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


def attributes(item: Any) -> Mapping[str, Any]:
    """Return the attributes of a span, an event, a link or a data point."""
    return dict(item.attributes or {})


def recording() -> Iterator[Recorder]:
    """Yield a recorder, for a fixture."""
    recorder = Recorder()
    yield recorder
    recorder.close()
