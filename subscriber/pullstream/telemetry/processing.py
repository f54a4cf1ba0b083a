"""The span and the metrics of a callback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter as MessageCounter
from opentelemetry.metrics import Histogram
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pullstream.message import Disposition, Message
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.names import short_id

from . import conventions
from .conventions import Attributes
from .observed_callback import End

# The official publisher writes this prefix before the names of the W3C headers.
GOOGLE_PREFIX = "googclient_"

_VERDICTS = (Disposition.ACK, Disposition.NACK)


class Processing:
    """Starts and ends the spans around the callbacks of one subscription. All its workers use it.

    Args:
        subscription: Full name.
        tracer: Creates the spans.
        consumed: Counts the messages of each callback.
        duration: Records the seconds of each callback.
    """

    def __init__(
        self,
        subscription: str,
        tracer: trace.Tracer,
        consumed: MessageCounter,
        duration: Histogram,
    ) -> None:
        self._tracer = tracer
        self._consumed = consumed
        self._duration = duration
        self._span_name = f"{conventions.PROCESS} {short_id(subscription)}"
        self._of_metrics: Attributes = {
            **conventions.of_subscription(subscription),
            conventions.OPERATION_NAME: conventions.PROCESS,
        }
        self._of_spans: Attributes = {
            **self._of_metrics,
            conventions.OPERATION_TYPE: conventions.PROCESS,
        }

    def begin(self, received: Message | Sequence[Message]) -> End:
        """Start a span for a message or for a batch, and make it the current span."""
        if isinstance(received, Message):
            messages: Sequence[Message] = (received,)
            of_messages, links = _of_message(received), _links(messages, with_id=False)
        else:
            # A copy, because the callback may change the list.
            messages = tuple(received)
            of_messages = {conventions.MESSAGE_COUNT: len(messages)}
            links = _links(messages, with_id=True)
        span = self._tracer.start_span(
            self._span_name,
            # A root span. Where threads are instrumented, the span that called subscribe() is
            # current here, and every callback would become its child.
            context=Context(),
            kind=trace.SpanKind.CONSUMER,
            attributes={**self._of_spans, **of_messages},
            links=links,
        )
        started = SYSTEM_CLOCK.monotonic()
        token = context.attach(trace.set_span_in_context(span))

        def end(error: BaseException | None) -> None:
            seconds = SYSTEM_CLOCK.monotonic() - started
            context.detach(token)
            try:
                if span.is_recording():
                    _record_verdicts(span, messages)
                    _record_error(span, error)
            finally:
                span.end()
            outcome = self._of_metrics
            if error is not None:
                outcome = {**outcome, conventions.ERROR_TYPE: _type_of(error)}
            self._duration.record(seconds, outcome)
            self._consumed.add(len(messages), outcome)

        return end


def _of_message(message: Message) -> Attributes:
    attributes: Attributes = {
        conventions.MESSAGE_ID: message.message_id,
        conventions.BODY_SIZE: len(message.data),
    }
    if message.ordering_key:
        attributes[conventions.ORDERING_KEY] = message.ordering_key
    if message.delivery_attempt is not None:
        attributes[conventions.DELIVERY_ATTEMPT] = message.delivery_attempt
    return attributes


def _links(messages: Sequence[Message], *, with_id: bool) -> list[trace.Link]:
    """Return a link to the publisher's span for each message that names one."""
    links = []
    for message in messages:
        publisher = creation_context(message.attributes)
        if publisher.is_valid:
            attributes = {conventions.MESSAGE_ID: message.message_id} if with_id else None
            links.append(trace.Link(publisher, attributes))
    return links


def _record_verdicts(span: trace.Span, messages: Sequence[Message]) -> None:
    """Add an event with the number of messages that the callback acked, and one for nacked ones.

    Messages that the callback left unsettled are not counted: they may be settled later.
    """
    counts = Counter(message.settled for message in messages)
    for verdict in _VERDICTS:
        if counts[verdict]:
            span.add_event(verdict.value, {conventions.MESSAGE_COUNT: counts[verdict]})


def _record_error(span: trace.Span, error: BaseException | None) -> None:
    if error is None:
        return
    span.set_attribute(conventions.ERROR_TYPE, _type_of(error))
    span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
    span.record_exception(error)


def _type_of(error: BaseException) -> str:
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


class _AttributeGetter(Getter[Mapping[str, str]]):
    """Reads the headers of a trace context from the attributes of a message."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        # `get` instead of `[]`, which would add a missing attribute to the message.
        value = carrier.get(self._prefix + key)
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_PROPAGATOR = TraceContextTextMapPropagator()
_GETTERS = (_AttributeGetter(GOOGLE_PREFIX), _AttributeGetter(""))


def creation_context(attributes: Mapping[str, str]) -> trace.SpanContext:
    """Return the publisher's span, as the official client writes it or under the plain W3C names.

    Returns:
        An invalid context if there is none, or none that can be parsed.
    """
    found = trace.INVALID_SPAN_CONTEXT
    for getter in _GETTERS:
        carried = _PROPAGATOR.extract(attributes, Context(), getter)
        found = trace.get_current_span(carried).get_span_context()
        if found.is_valid:
            break
    return found
