"""Traces and metrics for OpenTelemetry. Needs the extra `pullstream[opentelemetry]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
except ImportError as error:
    raise ImportError(
        "pullstream.telemetry.opentelemetry needs opentelemetry-api: "
        "pip install 'pullstream[opentelemetry]'"
    ) from error

from pullstream.hooks import Callback, RequestKind
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import RpcError, code_name
from pullstream_protocol.names import short_id

from . import conventions
from .conventions import Attributes
from .observed_callback import observed
from .processing import Processing
from .readings import COUNTERS, GAUGES, LATENCY, STATE, Reading, ReadingHooks, Readings

# Prefix of the metrics outside the conventions, and the name of the tracer and the meter.
PREFIX = "pullstream"

_Values = Callable[[Reading], Mapping[str, float]]

# A nack is a deadline change to 0 seconds, and is counted with the other deadline changes.
_OPERATIONS: dict[RequestKind, Attributes] = {
    "acknowledge": {
        conventions.OPERATION_NAME: "ack",
        conventions.OPERATION_TYPE: conventions.SETTLE,
    },
    "modify_ack_deadline": {conventions.OPERATION_NAME: "modack"},
}


class OpenTelemetryHooks(ReadingHooks):
    """Traces and measures a subscription: `subscribe(..., hooks=OpenTelemetryHooks())`.

    Create one object, and pass it to every subscription. Names follow the semantic conventions for
    messaging; docs/observability.md lists them.

    Each callback runs inside a new span, which is the current span while the callback runs. It has
    a link to the span in which the message was published. Calls to the server have spans, too.
    Counters and gauges are read from the subscription's statistics when metrics are collected.

    Args:
        tracer_provider: Destination of traces; the process's global provider by default.
        meter_provider: Destination of metrics; the process's global provider by default.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        super().__init__()
        self._tracer = trace.get_tracer(PREFIX, tracer_provider=tracer_provider)
        meter = metrics.get_meter(PREFIX, meter_provider=meter_provider)
        self._consumed = meter.create_counter(
            conventions.CONSUMED_MESSAGES,
            unit="{message}",
            description="Messages passed to a callback.",
        )
        self._process_duration = meter.create_histogram(
            conventions.PROCESS_DURATION,
            unit="s",
            description="Duration of callbacks.",
            explicit_bucket_boundaries_advisory=conventions.DURATION_BUCKETS,
        )
        self._operation_duration = meter.create_histogram(
            conventions.OPERATION_DURATION,
            unit="s",
            description="Duration of calls that settle messages or extend their leases.",
            explicit_bucket_boundaries_advisory=conventions.DURATION_BUCKETS,
        )
        _create_observables(meter, PREFIX, self._readings)

    def wrap(self, subscription: str, callback: Callback) -> Callback:
        """Return a callback that runs inside a span and whose duration is recorded."""
        processing = Processing(subscription, self._tracer, self._consumed, self._process_duration)
        return observed(callback, processing.begin)

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """Record the call's duration and a finished root span, which began `seconds` ago."""
        attributes = {**conventions.of_subscription(subscription), **_OPERATIONS[kind]}
        if error is not None:
            attributes[conventions.ERROR_TYPE] = code_name(error)
        self._operation_duration.record(seconds, attributes)
        ended = SYSTEM_CLOCK.now()
        span = self._tracer.start_span(
            f"{attributes[conventions.OPERATION_NAME]} {short_id(subscription)}",
            # A root span: the thread that reports the call does not belong to any callback.
            context=Context(),
            kind=trace.SpanKind.CLIENT,
            attributes={**attributes, conventions.MESSAGE_COUNT: ack_ids},
            start_time=_nanoseconds(ended - seconds),
        )
        if error is not None:
            span.set_status(trace.StatusCode.ERROR, error.message)
        span.end(_nanoseconds(ended))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _create_observables(meter: Meter, prefix: str, readings: Readings) -> None:
    """Create instruments that read `readings` at each collection, named `prefix`.received etc."""
    for metric in COUNTERS:
        meter.create_observable_counter(
            f"{prefix}.{metric.field}",
            [partial(_one, readings, lambda reading: reading.counters, metric.field)],
            metric.unit,
            metric.description,
        )
    for metric in GAUGES:
        meter.create_observable_gauge(
            f"{prefix}.{metric.field}",
            [partial(_one, readings, lambda reading: reading.gauges, metric.field)],
            metric.unit,
            metric.description,
        )
    states = partial(_each, readings, lambda reading: reading.states, "state")
    meter.create_observable_gauge(f"{prefix}.state", [states], "{subscription}", STATE)
    latency = partial(_each, readings, lambda reading: reading.latency, "quantile")
    meter.create_observable_gauge(f"{prefix}.latency", [latency], "s", LATENCY)


def _one(
    readings: Readings, values: _Values, field: str, _: CallbackOptions
) -> Iterator[Observation]:
    for reading in readings.read():
        value = values(reading).get(field)
        if value is not None:
            yield Observation(value, conventions.of_subscription(reading.subscription))


def _each(
    readings: Readings, values: _Values, attribute: str, _: CallbackOptions
) -> Iterator[Observation]:
    for reading in readings.read():
        of_all = conventions.of_subscription(reading.subscription)
        for key, value in values(reading).items():
            yield Observation(value, {**of_all, attribute: key})
