"""Traces of published messages, up to the subscriber's callback."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pullstream import PublisherClient, PublisherOptions, SubscriberClient
from pullstream.telemetry.opentelemetry import OpenTelemetryHooks
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.fetching import NAME, TOPIC

TRACED = PublisherOptions(enable_message_ordering=True, enable_open_telemetry_tracing=True)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """Return a provider, which is the global one during the test."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return provider


@pytest.fixture
def publisher(broker: Emulator, provider: TracerProvider) -> Iterator[PublisherClient]:
    with PublisherClient(endpoint=broker.endpoint, publisher_options=TRACED) as client:
        yield client


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_the_span_of_a_published_message_ends_when_the_server_answers_the_request(
    publisher: PublisherClient, exporter: InMemorySpanExporter
) -> None:
    """The span is a child of the current span, and names topic, size, key and ID."""
    with trace.get_tracer("test").start_as_current_span("request") as current:
        future = publisher.publish(TOPIC, b"data", "k")
    message_id = future.result(10)
    publisher.close()
    span = next(one for one in exporter.get_finished_spans() if one.name.startswith("create"))
    assert span.kind is trace.SpanKind.PRODUCER
    assert span.parent is not None
    assert span.parent.span_id == current.get_span_context().span_id
    found = attributes_of(span)
    assert found["messaging.message.id"] == message_id
    assert found["messaging.message.body.size"] == 4
    assert found["messaging.gcp_pubsub.message.ordering_key"] == "k"
    assert found["messaging.destination.name"] == TOPIC.rpartition("/")[2]


def test_the_subscribers_callback_span_links_to_the_publish_span(
    publisher: PublisherClient,
    broker: Emulator,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
) -> None:
    """The span of the callback links to the span of the message."""
    done = threading.Event()

    def callback(message: object) -> None:
        done.set()

    publisher.publish(TOPIC, b"data").result(10)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        client.subscribe(NAME, callback, hooks=OpenTelemetryHooks(provider))
        assert done.wait(10)
    publisher.close()
    spans = {span.name.partition(" ")[0]: span for span in exporter.get_finished_spans()}
    (link,) = spans["process"].links
    created = spans["create"].get_span_context()
    assert created is not None
    assert link.context.span_id == created.span_id
    assert link.context.trace_id == created.trace_id


def test_the_span_of_a_message_that_could_not_be_published_records_the_error(
    publisher: PublisherClient, exporter: InMemorySpanExporter
) -> None:
    """The error is that of the request, or of the call."""
    assert publisher.publish("projects/p/topics/unknown", b"data").exception(10)
    with pytest.raises(ValueError, match="100"):
        publisher.publish(TOPIC, b"data", **{f"a{number}": "" for number in range(101)})
    publisher.close()
    spans = exporter.get_finished_spans()
    assert {attributes_of(span)["error.type"] for span in spans} == {"NotFound", "ValueError"}
    assert {span.status.status_code for span in spans} == {trace.StatusCode.ERROR}


def test_a_publish_many_call_creates_one_span_for_each_message(
    publisher: PublisherClient, exporter: InMemorySpanExporter, broker: Emulator
) -> None:
    """Each message carries the context of its span."""
    publisher.publish_many(TOPIC, [b"1", pubsub.PubsubMessage(data=b"2")]).result(10)
    publisher.close()
    contexts = {one.attributes["googclient_traceparent"] for one in broker.messages(TOPIC)}
    assert len(contexts) == len(exporter.get_finished_spans()) == 2


def test_a_message_with_100_attributes_is_published_without_the_trace_context(
    broker: Emulator, publisher: PublisherClient
) -> None:
    """The context is one more attribute, and is left out if there are 100."""
    attributes = {f"a{number}": "v" for number in range(100)}
    publisher.publish(TOPIC, b"one", **attributes).result(10)
    many = [pubsub.PubsubMessage(data=b"two", attributes=attributes)]
    publisher.publish_many(TOPIC, many).result(10)
    assert [dict(message.attributes) for message in broker.messages(TOPIC)] == [attributes] * 2
