"""Our publisher with Google's Python client: received in order, traced, and with one contract."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pullstream import PublisherClient
from pullstream import types as our_types
from pullstream_emulator import Emulator

PROJECT = "projects/test-project"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"
TIMEOUT = 30.0


@pytest.fixture(autouse=True)
def emulator(pubsub_emulator: Emulator) -> Emulator:
    with PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
        publisher.create_topic(name=TOPIC)
        subscriber.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
    return pubsub_emulator


@pytest.fixture(params=["ours", "official"])
def publisher(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """Return a publisher with ordering and its module of types, ours and the official one."""
    if request.param == "ours":
        options = our_types.PublisherOptions(enable_message_ordering=True)
        with PublisherClient(publisher_options=options) as ours:
            yield ours, our_types
        return
    types = pubsub_v1.types
    official_options = types.PublisherOptions(enable_message_ordering=True)
    yield pubsub_v1.PublisherClient(publisher_options=official_options), types


def received(count: int) -> list[Any]:
    """Return the next messages as the official subscriber receives them, in their order."""
    found: list[Any] = []
    done = threading.Event()

    def callback(message: Any) -> None:
        found.append(message)
        message.ack()
        if len(found) == count:
            done.set()

    with pubsub_v1.SubscriberClient() as subscriber:
        future = subscriber.subscribe(SUBSCRIPTION, callback)
        assert done.wait(TIMEOUT)
        future.cancel()
        future.result(TIMEOUT)
    return found


def test_the_official_subscriber_receives_messages_of_pullstreams_publisher_in_key_order() -> None:
    """Many batches and keys are sent at a time, with all parts of the messages."""
    options = our_types.PublisherOptions(enable_message_ordering=True)
    settings = our_types.BatchSettings(max_messages=7)
    with PublisherClient(settings, options) as publisher:
        ids = [
            publisher.publish(TOPIC, b"%d" % number, f"c-{number % 5}", number=str(number))
            for number in range(300)
        ]
    messages = received(300)
    by_key: dict[str, list[int]] = {}
    for message in messages:
        by_key.setdefault(message.ordering_key, []).append(int(message.data))
        assert dict(message.attributes) == {"number": message.data.decode()}
        assert message.message_id == ids[int(message.data)].result(0)
    assert by_key == {f"c-{key}": list(range(key, 300, 5)) for key in range(5)}


# ---- the contract of both publishers -----------------------------------------------------------


def test_publish_futures_of_pullstream_and_the_official_client_return_the_message_id(
    publisher: tuple[Any, Any],
) -> None:
    """The future has the methods of a concurrent Future."""
    client, _ = publisher
    future = client.publish(TOPIC, b"data", a="1", b=b"2")
    message_id = future.result(TIMEOUT)
    assert isinstance(message_id, str)
    assert future.done()
    assert future.exception(0) is None
    assert future.cancel() is False
    assert future.cancelled() is False
    (message,) = received(1)
    assert (message.message_id, dict(message.attributes)) == (message_id, {"a": "1", "b": "2"})


def test_done_callbacks_of_publish_futures_get_the_future_as_in_the_official_client(
    publisher: tuple[Any, Any],
) -> None:
    """The callback runs on another thread, or at once if there is a result."""
    client, _ = publisher
    future = client.publish(TOPIC, b"data")
    called = threading.Event()
    found: list[Any] = []

    def callback(done: Any) -> None:
        found.append(done)
        called.set()

    future.add_done_callback(callback)
    assert called.wait(TIMEOUT)
    future.add_done_callback(found.append)
    assert found == [future, future]


@pytest.mark.parametrize(
    ("arguments", "attributes", "error"),
    [
        (("text",), {}, TypeError),
        ((b"data",), {"number": 1}, TypeError),
        ((b"x" * 10_000_001,), {}, ValueError),
    ],
    ids=["text", "attribute", "size"],
)
def test_invalid_publish_arguments_raise_the_same_errors_as_in_the_official_client(
    publisher: tuple[Any, Any],
    arguments: tuple[Any, ...],
    attributes: dict[str, Any],
    error: type[Exception],
) -> None:
    """The call raises."""
    client, _ = publisher
    with pytest.raises(error):
        client.publish(TOPIC, *arguments, **attributes)


def test_publishing_to_a_missing_topic_fails_the_future_as_in_the_official_client(
    publisher: tuple[Any, Any],
) -> None:
    """The error has the class of google-api-core."""
    client, _ = publisher
    with pytest.raises(exceptions.NotFound):
        client.publish(f"{PROJECT}/topics/missing", b"data").result(TIMEOUT)


def test_a_publisher_pauses_a_failed_ordering_key_as_the_official_publisher_does(
    publisher: tuple[Any, Any],
) -> None:
    """The pause lasts until `resume_publish`. The exception has the official name."""
    client, _ = publisher
    missing = f"{PROJECT}/topics/missing"
    with pytest.raises(exceptions.NotFound):
        client.publish(missing, b"1", ordering_key="k").result(TIMEOUT)
    paused = client.publish(missing, b"2", ordering_key="k").exception(TIMEOUT)
    assert type(paused).__name__ == "PublishToPausedOrderingKeyException"
    assert paused.ordering_key == "k"
    client.create_topic(name=missing)
    client.resume_publish(missing, "k")
    assert client.publish(missing, b"3", ordering_key="k").result(TIMEOUT)


def test_a_stopped_publisher_refuses_messages_as_the_official_publisher_does(
    publisher: tuple[Any, Any],
) -> None:
    """Accepted messages are sent."""
    client, _ = publisher
    future = client.publish(TOPIC, b"data")
    client.stop()
    assert future.result(TIMEOUT)
    with pytest.raises(RuntimeError):
        client.publish(TOPIC, b"data")
    with pytest.raises(RuntimeError):
        client.stop()


@pytest.mark.parametrize("behavior", ["BLOCK", "ERROR", "IGNORE"])
def test_publisher_flow_control_blocks_or_fails_messages_as_in_the_official_client(
    publisher: tuple[Any, Any], behavior: str
) -> None:
    """The limit of five is reached; ERROR fails some futures, and the others lose nothing."""
    client, types = publisher
    options = types.PublisherOptions(
        flow_control=types.PublishFlowControl(
            message_limit=5, limit_exceeded_behavior=types.LimitExceededBehavior[behavior]
        )
    )
    limited = type(client)(types.BatchSettings(max_messages=5), options)
    futures = [limited.publish(TOPIC, b"x") for _ in range(50)]
    errors = [future.exception(TIMEOUT) for future in futures]
    failed = [type(error).__name__ for error in errors if error is not None]
    assert set(failed) == ({"FlowControlLimitError"} if behavior == "ERROR" else set())
    limited.stop()


def test_a_publish_with_an_ordering_key_but_ordering_off_fails_as_in_the_official_client() -> None:
    """The option is `enable_message_ordering`."""
    for client in (PublisherClient(), pubsub_v1.PublisherClient()):
        with pytest.raises(ValueError, match="ordering"):
            client.publish(TOPIC, b"data", ordering_key="k")


# ---- traces ------------------------------------------------------------------------------------


def test_the_official_subscriber_continues_the_trace_of_pullstreams_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The span of the message links to ours, or is its child."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    options = our_types.PublisherOptions(enable_open_telemetry_tracing=True)
    with PublisherClient(publisher_options=options) as publisher:
        message_id = publisher.publish(TOPIC, b"data").result(TIMEOUT)
    (span,) = exporter.get_finished_spans()
    assert span.name == "create orders"
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == message_id
    (message,) = received(1)
    parent = message.attributes["googclient_traceparent"]
    context = span.get_span_context()
    assert context is not None
    assert parent.split("-")[1:3] == [f"{context.trace_id:032x}", f"{context.span_id:016x}"]
