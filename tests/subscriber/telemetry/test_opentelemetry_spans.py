"""The spans of OpenTelemetryHooks: of callbacks, with their links, and of calls to the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from freezegun import freeze_time
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from pullstream.message import Message
from pullstream_protocol.errors import Unavailable

from .recorder import Recorder, attributes
from .source import SUBSCRIPTION, message

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PUBLISHER = 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{PUBLISHER:016x}-01"
OTHER_PARENT = f"00-{TRACE + 1:032x}-{PUBLISHER + 1:016x}-01"


def run(recorder: Recorder, argument: Any, callback: Any = lambda _: None) -> Any:
    return recorder.hooks.wrap(SUBSCRIPTION, callback)(argument)


# ---- callbacks ---------------------------------------------------------------------------------


def test_the_span_of_a_callback_has_name_kind_and_attributes_of_the_semantic_conventions(
    recorder: Recorder,
) -> None:
    """The span has the standard name, kind and attributes. Missing fields have no attribute."""
    run(recorder, message("7", data=b"12345"))
    span = recorder.span()
    assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
    assert attributes(span) == {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.subscription.name": "orders",
        "gcp.project_id": "p",
        "messaging.message.id": "7",
        "messaging.message.body.size": 5,
    }
    assert (span.status.status_code, span.links, span.events) == (StatusCode.UNSET, (), ())
    assert span.parent is None


def test_the_callback_span_of_an_invalid_subscription_name_contains_the_name_unchanged(
    recorder: Recorder,
) -> None:
    """The server refuses such a name. The span has no project."""
    recorder.hooks.wrap("orders", lambda _: None)(message())
    assert recorder.span().name == "process orders"
    assert "gcp.project_id" not in attributes(recorder.span())


def test_the_callback_span_has_the_ordering_key_and_delivery_attempt_if_present(
    recorder: Recorder,
) -> None:
    """The names are those of the conventions for Pub/Sub."""
    run(recorder, message(key="anna", attempt=3))
    of_span = attributes(recorder.span())
    assert of_span["messaging.gcp_pubsub.message.ordering_key"] == "anna"
    assert of_span["messaging.gcp_pubsub.message.delivery_attempt"] == 3


def test_the_callback_span_is_the_current_span_while_the_callback_runs(recorder: Recorder) -> None:
    """Spans of the callback are its children, and afterwards the previous span is current."""
    tracer = recorder.tracers.get_tracer("user")

    def handle(_: Message) -> None:
        tracer.start_span("work").end()

    run(recorder, message(), handle)
    work, process = recorder.spans()
    assert work.parent == process.get_span_context()
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_the_callback_span_is_not_a_child_of_another_span_that_is_open_on_the_thread(
    recorder: Recorder,
) -> None:
    """The callback's span is a root, and afterwards the previous span is current again."""
    with recorder.tracers.get_tracer("user").start_as_current_span("left open") as left_open:
        run(recorder, message())
        assert trace.get_current_span() is left_open
    process, _ = recorder.spans()
    assert (process.name, process.parent) == ("process orders", None)


def test_the_span_of_an_async_callback_ends_when_its_coroutine_ends(recorder: Recorder) -> None:
    """Two callbacks that alternate on one loop each keep their own span."""
    tracer = recorder.tracers.get_tracer("user")
    traced: list[str] = []

    async def handle(one: Message) -> None:
        await asyncio.sleep(0)
        with tracer.start_as_current_span(f"work {one.message_id}"):
            await asyncio.sleep(0)
        traced.append(one.message_id)

    async def handle_both() -> None:
        wrapped = recorder.hooks.wrap(SUBSCRIPTION, handle)
        await asyncio.gather(wrapped(message("1")), wrapped(message("2")))

    asyncio.run(handle_both())
    assert sorted(traced) == ["1", "2"]
    spans = recorder.spans()
    works = {span.name: span for span in spans if span.name.startswith("work")}
    for span in spans:
        if span.name == "process orders":
            of_message = attributes(span)["messaging.message.id"]
            assert works[f"work {of_message}"].parent == span.get_span_context()
    assert len(spans) == 4


def test_the_callback_span_records_the_error_of_the_callback(recorder: Recorder) -> None:
    """The error is the status, an attribute, and an event with the traceback."""

    def fail(_: Message) -> None:
        raise ValueError("no such order")

    with pytest.raises(ValueError, match="no such order"):
        run(recorder, message(), fail)
    span = recorder.span()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "ValueError: no such order"
    assert attributes(span)["error.type"] == "ValueError"
    (event,) = span.events
    assert event.name == "exception"
    assert "no such order" in attributes(event)["exception.stacktrace"]


def test_a_callback_span_ends_even_if_the_text_of_the_callbacks_error_is_unreadable(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """The error's text raises. The callback's error is still raised, and the problem is logged."""

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail(_: Message) -> None:
        raise Unspeakable

    with pytest.raises(Unspeakable):
        run(recorder, message(), fail)
    assert recorder.span().name == "process orders"
    assert [record.name for record in caplog.records] == ["pullstream.telemetry"]


def test_the_callback_span_names_the_type_of_a_non_builtin_error_with_its_module(
    recorder: Recorder,
) -> None:
    """Two modules may have errors with the same name."""

    def fail(_: Message) -> None:
        raise Unavailable("later")

    with pytest.raises(Unavailable):
        run(recorder, message(), fail)
    assert attributes(recorder.span())["error.type"] == "pullstream_protocol.errors.Unavailable"


@pytest.mark.parametrize("verdict", ["ack", "nack"])
def test_an_ack_or_nack_in_a_callback_is_recorded_as_an_event_of_the_callback_span(
    recorder: Recorder, verdict: str
) -> None:
    """The event has the number of messages."""
    run(recorder, message(), lambda one: getattr(one, verdict)())
    (event,) = recorder.span().events
    assert (event.name, attributes(event)) == (verdict, {"messaging.batch.message_count": 1})


# ---- links -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["googclient_traceparent", "traceparent"])
def test_the_callback_span_links_to_the_publishers_span(recorder: Recorder, name: str) -> None:
    """The link comes from the official client's attribute or the W3C one. It is not a parent."""
    one = message()
    one.attributes[name] = PARENT
    run(recorder, one)
    (link,) = recorder.span().links
    assert (link.context.trace_id, link.context.span_id) == (TRACE, PUBLISHER)
    assert link.context.is_remote
    assert recorder.span().parent is None


def test_the_span_link_of_a_message_prefers_the_trace_attribute_of_the_official_client(
    recorder: Recorder,
) -> None:
    """The sender may have set the plain attribute before it called the client."""
    run(recorder, message(traceparent=OTHER_PARENT, googclient_traceparent=PARENT))
    (link,) = recorder.span().links
    assert link.context.span_id == PUBLISHER


def test_the_link_of_a_callback_span_has_the_trace_state_of_the_message(recorder: Recorder) -> None:
    """The trace state has the same prefix as the parent."""
    run(
        recorder,
        message(googclient_traceparent=PARENT, googclient_tracestate="a=1", tracestate="a=2"),
    )
    (link,) = recorder.span().links
    assert link.context.trace_state.get("a") == "1"


@pytest.mark.parametrize("value", ["", "nonsense", f"00-{0:032x}-{0:016x}-01"])
def test_a_callback_span_has_no_link_if_the_trace_context_of_the_message_is_invalid(
    recorder: Recorder, value: str
) -> None:
    """The span exists without a link."""
    run(recorder, message(googclient_traceparent=value))
    assert recorder.span().links == ()


def test_reading_the_trace_context_of_a_message_adds_no_attribute_to_the_message(
    recorder: Recorder,
) -> None:
    """Reading a missing attribute with [] would add an empty one."""
    one = message(currency="EUR")
    run(recorder, one)
    assert dict(one.attributes) == {"currency": "EUR"}


def test_a_batch_callback_has_one_span_with_a_link_for_each_message(recorder: Recorder) -> None:
    """A link has the id of its message.

    Messages without a context have none. Events count dispositions.
    """
    batch = [
        message("1", traceparent=PARENT),
        message("2"),
        message("3", googclient_traceparent=OTHER_PARENT),
    ]

    def handle(messages: list[Message]) -> None:
        messages[0].nack()
        messages[1].ack()
        messages[2].ack()

    run(recorder, batch, handle)
    span = recorder.span()
    of_span = attributes(span)
    assert of_span["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in of_span
    assert [(link.context.span_id, attributes(link)) for link in span.links] == [
        (PUBLISHER, {"messaging.message.id": "1"}),
        (PUBLISHER + 1, {"messaging.message.id": "3"}),
    ]
    assert [(event.name, attributes(event)) for event in span.events] == [
        ("ack", {"messaging.batch.message_count": 2}),
        ("nack", {"messaging.batch.message_count": 1}),
    ]


# ---- calls to the server -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "operation", "operation_type"),
    [("acknowledge", "ack", "settle"), ("modify_ack_deadline", "modack", None)],
)
def test_the_span_of_a_request_has_name_kind_and_attributes_of_the_semantic_conventions(
    recorder: Recorder, kind: Any, operation: str, operation_type: str | None
) -> None:
    """The span ends now, and its length is the duration of the call."""
    with freeze_time("2030-01-01"):
        recorder.hooks.request_done(SUBSCRIPTION, kind, 25, 0.5, None)
    span = recorder.span()
    assert (span.name, span.kind) == (f"{operation} orders", SpanKind.CLIENT)
    expected = {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
        "messaging.destination.name": "orders",
        "messaging.destination.subscription.name": "orders",
        "gcp.project_id": "p",
        "messaging.batch.message_count": 25,
    }
    assert attributes(span) == {key: value for key, value in expected.items() if value is not None}
    assert span.status.status_code is StatusCode.UNSET
    assert span.start_time is not None
    assert span.end_time == 1_893_456_000 * 10**9
    assert span.end_time - span.start_time == 500_000_000


def test_the_span_of_a_failed_request_contains_the_status_code_of_the_request(
    recorder: Recorder,
) -> None:
    """The code is error.type, and the server's text is the description."""
    recorder.hooks.request_done(SUBSCRIPTION, "acknowledge", 1, 0.1, Unavailable("try later"))
    span = recorder.span()
    assert attributes(span)["error.type"] == "UNAVAILABLE"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "try later"


def test_the_span_of_a_request_is_not_a_child_of_another_span_open_on_the_thread(
    recorder: Recorder,
) -> None:
    """A span was left open on the thread."""
    with recorder.tracers.get_tracer("user").start_as_current_span("left open"):
        recorder.hooks.request_done(SUBSCRIPTION, "acknowledge", 1, 0.1, None)
    assert recorder.spans()[0].parent is None
