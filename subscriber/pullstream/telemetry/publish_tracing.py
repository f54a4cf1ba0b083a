"""Traces of publishing, whose context reaches the subscriber in the attributes of the message."""

from __future__ import annotations

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(
        "enable_open_telemetry_tracing needs opentelemetry-api: "
        "pip install 'pullstream[opentelemetry]'"
    ) from error

from typing import Any

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pullstream_protocol.names import short_id

from . import conventions
from .processing import GOOGLE_PREFIX

_PROPAGATOR = TraceContextTextMapPropagator()


class PublishSpan:
    """The span of one message, from `publish` to the server's answer.

    Attributes:
        carrier: The attributes with the context of the span.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers, trace.set_span_in_context(span, Context()))
        self.carrier: dict[str, str] = {
            f"{GOOGLE_PREFIX}{name}": value for name, value in headers.items()
        }

    def end(self, future: Any) -> None:
        """End the span with the result of a future that is done."""
        error = future.exception()
        if error is not None:
            self.end_with(error)
            return
        result = future.result()
        if isinstance(result, str):
            self._span.set_attribute(conventions.MESSAGE_ID, result)
        self._span.end()

    def end_with(self, error: BaseException) -> None:
        """End the span with an error."""
        self._span.set_attribute(conventions.ERROR_TYPE, type(error).__qualname__)
        self._span.set_status(trace.StatusCode.ERROR, str(error))
        self._span.record_exception(error)
        self._span.end()


class PublishTracer:
    """Starts the spans of messages, with the names of the semantic conventions.

    Args:
        tracer_provider: Destination of traces; the process's global provider by default.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("pullstream", tracer_provider=tracer_provider)

    def begin(self, topic: str, data: bytes, ordering_key: str) -> PublishSpan:
        """Start the span of a message, as a child of the current span.

        Args:
            topic: Full name of the topic.
            data: The data.
            ordering_key: The ordering key; empty for none.
        """
        attributes = conventions.of_topic(topic)
        attributes[conventions.BODY_SIZE] = len(data)
        if ordering_key:
            attributes[conventions.ORDERING_KEY] = ordering_key
        span = self._tracer.start_span(
            f"{conventions.CREATE} {short_id(topic)}",
            kind=trace.SpanKind.PRODUCER,
            attributes=attributes,
        )
        return PublishSpan(span)
