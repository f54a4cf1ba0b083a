"""Both adapters on a real subscription: messages, callbacks and requests are reported."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace

from pullstream import Message
from pullstream_emulator import Emulator
from tests.completed import run_command
from tests.optional_tools import missing
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Stage, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

from .recorder import Recorder, attributes
from .test_prometheus import Page

ROOT = Path(__file__).parents[3]
ID = SUBSCRIPTION.rpartition("/")[2]


@pytest.fixture
def here() -> Iterator[Stage]:
    with stage() as here:
        yield here


@pytest.fixture
def page() -> Page:
    return Page()


def handle(message: Message) -> None:
    message.ack()


def test_prometheus_metrics_count_the_messages_callbacks_and_requests_of_a_subscription(
    here: Stage, page: Page
) -> None:
    """Messages, callbacks and requests are counted. Afterwards nothing is open."""
    future = here.client.subscribe(SUBSCRIPTION, handle, hooks=page.hooks)
    here.publish(*(b"%d" % number for number in range(20)))
    eventually(lambda: here.backlog == 0)
    eventually(lambda: page.value("pullstream_leased", SUBSCRIPTION) == 0)
    assert page.value("pullstream_received_total", SUBSCRIPTION) == 20
    assert page.value("pullstream_acked_total", SUBSCRIPTION) == 20
    assert page.value("pullstream_state", SUBSCRIPTION, state="streaming") == 1
    assert page.value("pullstream_load", SUBSCRIPTION) == 0
    latency = page.value("pullstream_latency_seconds", SUBSCRIPTION, quantile="0.99")
    assert latency is not None
    assert latency > 0
    eventually(lambda: page.value("pullstream_callback_seconds_count", SUBSCRIPTION) == 20)
    answered = {"kind": "acknowledge", "code": "OK"}
    name = "pullstream_request_seconds_count"
    eventually(lambda: (page.value(name, SUBSCRIPTION, **answered) or 0) >= 1)
    assert future.running()


def test_a_later_subscription_continues_the_prometheus_counters_of_an_ended_one(
    here: Stage, page: Page
) -> None:
    """The second subscription adds to the counters of the first one, whose gauges are gone."""
    for expected in (2, 4):
        future = here.client.subscribe(SUBSCRIPTION, handle, hooks=page.hooks)
        here.publish(b"a", b"b")
        eventually(lambda: here.backlog == 0)
        assert page.value("pullstream_leased", SUBSCRIPTION) is not None
        future.cancel()
        future.result(TIMEOUT)
        eventually(lambda: page.value("pullstream_leased", SUBSCRIPTION) is None)
        assert page.value("pullstream_acked_total", SUBSCRIPTION) == expected


def test_a_message_is_nacked_if_its_callback_raises_while_telemetry_observes_the_callback(
    here: Stage, page: Page
) -> None:
    """The adapter counts the exception and raises it, so the message is redelivered."""

    def fail(_: Message) -> None:
        raise ValueError("no")

    here.client.subscribe(SUBSCRIPTION, fail, hooks=page.hooks)
    here.publish(b"data")

    def raised() -> float:
        return page.value("pullstream_callback_errors_total", SUBSCRIPTION) or 0

    eventually(lambda: raised() >= 2)
    assert here.backlog == 1
    assert (page.value("pullstream_nacked_total", SUBSCRIPTION) or 0) >= 1


def told_of_acks(recorder: Recorder) -> list[int]:
    """Return the number of messages that each call has acknowledged."""
    acks = [span for span in recorder.spans() if span.name == f"ack {ID}"]
    return [attributes(span)["messaging.batch.message_count"] for span in acks]


def test_opentelemetry_creates_a_span_for_each_callback_and_request_of_a_subscription(
    here: Stage, recorder: Recorder
) -> None:
    """Each callback has a span with a link to the publisher's span, and each call has a span."""
    publisher = recorder.tracers.get_tracer("user").start_span("publish").get_span_context()
    parent = f"00-{trace.format_trace_id(publisher.trace_id)}-" + (
        f"{trace.format_span_id(publisher.span_id)}-01"
    )
    here.client.subscribe(SUBSCRIPTION, handle, hooks=recorder.hooks)
    here.publisher.publish(
        TOPIC,
        [{"data": b"linked", "attributes": {"googclient_traceparent": parent}}, {"data": b"bare"}],
    )
    eventually(lambda: here.backlog == 0)
    # In one call or in two.
    eventually(lambda: sum(told_of_acks(recorder)) == 2)
    eventually(lambda: [span.name for span in recorder.spans()].count(f"process {ID}") == 2)
    links = {
        attributes(span)["messaging.message.body.size"]: [link.context for link in span.links]
        for span in recorder.spans()
        if span.name == f"process {ID}"
    }
    assert [context.span_id for context in links[len(b"linked")]] == [publisher.span_id]
    assert links[len(b"bare")] == []
    assert all(
        [event.name for event in span.events] == ["ack"]
        for span in recorder.spans()
        if span.name == f"process {ID}"
    )
    assert recorder.values("pullstream.acked", "gcp.project_id") == {"p": 2}


def test_prometheus_and_opentelemetry_record_an_async_callback_until_its_coroutine_ends(
    here: Stage, page: Page, recorder: Recorder
) -> None:
    """The span covers the coroutine to its end. An exception is still a nack."""
    inside: list[bool] = []

    async def handle_later(message: Message) -> None:
        await asyncio.sleep(0)
        inside.append(trace.get_current_span().is_recording())
        if len(inside) == 1:
            raise ValueError("not yet")
        message.ack()

    here.client.subscribe(SUBSCRIPTION, handle_later, hooks=[page.hooks, recorder.hooks])
    here.publish(b"data")
    eventually(lambda: here.backlog == 0)
    eventually(lambda: page.value("pullstream_callback_seconds_count", SUBSCRIPTION) == 2)
    assert inside == [True, True]
    assert page.value("pullstream_callback_errors_total", SUBSCRIPTION) == 1
    spans = [span for span in recorder.spans() if span.name == f"process {ID}"]
    assert [attributes(span).get("error.type") for span in spans] == ["ValueError", None]


def test_telemetry_records_the_callback_of_a_batch_of_messages_as_one_callback(
    here: Stage, page: Page, recorder: Recorder
) -> None:
    """A batch is one callback and one span, with the number of its messages."""
    here.client.subscribe_batch(
        SUBSCRIPTION,
        lambda messages: messages.ack(),
        max_messages=5,
        max_latency=TIMEOUT,
        hooks=[page.hooks, recorder.hooks],
    )
    here.publish(*(b"%d" % number for number in range(5)))
    eventually(lambda: here.backlog == 0)
    eventually(lambda: page.value("pullstream_callback_seconds_count", SUBSCRIPTION) == 1)
    (span,) = [span for span in recorder.spans() if span.name == f"process {ID}"]
    assert attributes(span)["messaging.batch.message_count"] == 5
    assert [attributes(event) for event in span.events] == [{"messaging.batch.message_count": 5}]
    assert page.value("pullstream_acked_total", SUBSCRIPTION) == 5


OFFICIAL_PUBLISHER = """
import json, threading
from google.cloud import pubsub_v1
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pullstream import SubscriberClient
from pullstream.telemetry.opentelemetry import OpenTelemetryHooks

exporter, tracers, handled = InMemorySpanExporter(), TracerProvider(), threading.Event()
tracers.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(tracers)
options = pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=True)
publisher = pubsub_v1.PublisherClient(publisher_options=options)
with SubscriberClient() as client:
    name, topic = "projects/p/subscriptions/orders", "projects/p/topics/orders"
    publisher.create_topic(name=topic)
    client.create_subscription(request={"name": name, "topic": topic})

    def handle(message):
        message.ack()
        handled.set()

    future = client.subscribe(
        name, handle, hooks=OpenTelemetryHooks(), await_callbacks_on_shutdown=True
    )
    publisher.publish(topic, b"data").result()
    assert handled.wait(20)
publisher.stop()
publisher.transport.close()
spans = {span.name: span for span in exporter.get_finished_spans()}
(link,) = spans["process orders"].links
created = spans["orders create"].get_span_context()
linked = link.context
print(json.dumps([linked.trace_id == created.trace_id, linked.span_id == created.span_id]))
"""


def test_the_span_of_a_callback_links_to_the_official_publishers_span(
    pubsub_emulator: Emulator,
) -> None:
    """The link comes from google-cloud-pubsub's own tracing.

    The test needs a separate process because the official client takes the global provider, which
    can be set once.
    """
    try:
        import google.cloud.pubsub_v1  # noqa: F401
    except ImportError:
        missing(
            "interop", "google-cloud-pubsub is not installed: pip install 'pullstream[interop]'"
        )
    result = run_command([sys.executable, "-c", OFFICIAL_PUBLISHER], cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [True, True]
