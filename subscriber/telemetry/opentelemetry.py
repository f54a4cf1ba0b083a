"""Traces and metrics for OpenTelemetry. It needs the extra `pullstream[opentelemetry]`."""

from __future__ import annotations

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(
        "subscriber.telemetry.opentelemetry needs opentelemetry-api: "
        "pip install 'pullstream[opentelemetry]'"
    ) from error

from protocol.clock import SYSTEM_CLOCK
from protocol.errors import RpcError, code_name
from protocol.names import short_id
from subscriber.hooks import Callback, RequestKind

from . import conventions
from .conventions import Attributes
from .observables import create_observables
from .observed_callback import observed
from .processing import Processing
from .readings import ReadingHooks

# Of the metrics that are not the conventions', and the name of the tracer and the meter.
PREFIX = "pullstream"

# A nack is a change of the deadline to 0 seconds, sent with the others.
_OPERATIONS: dict[RequestKind, Attributes] = {
    "acknowledge": {
        conventions.OPERATION_NAME: "ack",
        conventions.OPERATION_TYPE: conventions.SETTLE,
    },
    "modify_ack_deadline": {conventions.OPERATION_NAME: "modack"},
}


class OpenTelemetryHooks(ReadingHooks):
    """Traces and measures a subscription: `subscribe(..., hooks=OpenTelemetryHooks())`.

    Make one, and give it to every subscription. Names follow the semantic conventions for
    messaging; docs/observability.md lists them.

    Each callback runs inside a span of its own, the current one while it runs, with a link to the
    span in which the message was published; calls to the server have spans too. Counts and levels
    are read from the subscription's statistics when metrics are collected.

    Args:
        tracer_provider, meter_provider: where to; the process's global ones unless given.
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
            description="Messages that were handed to a callback.",
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
            description="Duration of calls that settle messages or prolong their leases.",
            explicit_bucket_boundaries_advisory=conventions.DURATION_BUCKETS,
        )
        create_observables(meter, PREFIX, self._readings)

    def wrap(self, subscription: str, callback: Callback) -> Callback:
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
        attributes = {**conventions.of_subscription(subscription), **_OPERATIONS[kind]}
        if error is not None:
            attributes[conventions.ERROR_TYPE] = code_name(error)
        self._operation_duration.record(seconds, attributes)
        ended = SYSTEM_CLOCK.now()
        span = self._tracer.start_span(
            f"{attributes[conventions.OPERATION_NAME]} {short_id(subscription)}",
            # A root: the thread that tells of it has nothing to do with any callback.
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
