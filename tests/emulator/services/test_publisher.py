"""Publish: IDs, times, recipients, and the errors for bad requests."""

from __future__ import annotations

import pytest

from pullstream_emulator.engine import Engine
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.message_limits import TRACE_ATTRIBUTES
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC, Broker
from tests.emulator.wire import Wire

MESSAGE = pubsub.PubsubMessage(data=b"data")


def stored(broker: Broker) -> list[pubsub.PubsubMessage]:
    """Return the messages that the subscription delivers."""
    received = []
    consumer = broker.join().consumer
    subscription = broker.engine.join(SUBSCRIPTION, consumer)
    while taken := broker.engine.take(subscription, consumer):
        received += [pubsub.PubsubMessage.FromString(d.record.encoded) for _, d in taken]
    return received


def publish(engine: Engine, *messages: pubsub.PubsubMessage) -> list[str]:
    return list(engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages)))


def test_message_ids_are_assigned_in_publish_order() -> None:
    """IDs are decimal numbers, counted per topic."""
    broker = Broker()
    assert broker.publish("a", "b") + broker.publish("c") == ["1", "2", "3"]
    other = f"{PROJECT}/topics/other"
    broker.engine.create_topic(pubsub.Topic(name=other))
    request = pubsub.PublishRequest(topic=other, messages=[MESSAGE])
    assert broker.engine.publish(request) == ["1"]


def test_a_pulled_message_has_the_fields_with_which_it_was_published() -> None:
    """Data, attributes and key are unchanged. ID and time are the broker's."""
    broker = Broker(ManualClock(start=1_700_000_000.1239))
    message = pubsub.PubsubMessage(
        data=b"\x00\xff", attributes={"a": "é", "b": ""}, ordering_key="key"
    )
    publish(broker.engine, message)
    (received,) = stored(broker)
    assert (received.data, dict(received.attributes), received.ordering_key) == (
        b"\x00\xff",
        {"a": "é", "b": ""},
        "key",
    )
    assert received.message_id == "1"
    assert (received.publish_time.seconds, received.publish_time.nanos) == (
        1_700_000_000,
        123_000_000,
    )


def test_message_ids_and_publish_times_set_by_a_publisher_are_replaced() -> None:
    """Values from the publisher are replaced."""
    broker = Broker()
    forged = pubsub.PubsubMessage(data=b"data", message_id="999")
    forged.publish_time.FromSeconds(1)
    assert publish(broker.engine, forged) == ["1"]
    (received,) = stored(broker)
    assert received.message_id == "1"
    assert received.publish_time.seconds == 1_700_000_000


class WallClock(ManualClock):
    """A clock with a settable wall time."""

    wall = 0.0

    def now(self) -> float:
        return self.wall


def test_publish_times_never_decrease() -> None:
    """The rule holds even if the wall clock is set back."""
    clock = WallClock()
    broker = Broker(clock)
    for clock.wall in (1000.5, 999.0, 1001.0):
        broker.publish("x")
    times = [message.publish_time.ToMilliseconds() for message in stored(broker)]
    assert times == [1_000_500, 1_000_500, 1_001_000]


def test_each_subscription_of_a_topic_gets_its_own_copy_of_a_message() -> None:
    """An acknowledgement on one subscription does not affect the other."""
    broker = Broker()
    other = f"{PROJECT}/subscriptions/other"
    broker.engine.create_subscription(pubsub.Subscription(name=other, topic=TOPIC))
    broker.publish("a")
    broker.acknowledge(*broker.join().take())
    assert (broker.backlog, broker.engine.backlog(other)) == (0, 1)


def test_a_topic_without_subscriptions_accepts_published_messages(engine: Engine) -> None:
    """The messages are dropped, and there is no error."""
    engine.create_topic(pubsub.Topic(name=TOPIC))
    assert publish(engine, MESSAGE) == ["1"]


@pytest.mark.parametrize(
    "message",
    [
        pubsub.PubsubMessage(attributes={"only": "attributes"}),
        pubsub.PubsubMessage(data=b"x", ordering_key="é" * 512),
        pubsub.PubsubMessage(data=b"x", attributes={"é" * 128: "é" * 512}),
        pubsub.PubsubMessage(data=b"x", attributes={f"k{i}": "" for i in range(100)}),
        pubsub.PubsubMessage(attributes=dict.fromkeys(TRACE_ATTRIBUTES, "00-ab-cd-01")),
    ],
    ids=["without data", "longest key", "longest attribute", "most attributes", "trace context"],
)
def test_a_message_at_the_limits_of_attributes_and_ordering_key_is_accepted(
    message: pubsub.PubsubMessage,
) -> None:
    """The message arrives unchanged."""
    broker = Broker()
    publish(broker.engine, message)
    (received,) = stored(broker)
    assert (received.attributes, received.ordering_key) == (
        message.attributes,
        message.ordering_key,
    )


def too_large(name: str, passed: int, maximum: int) -> str:
    return (
        f"The value for {name} is too large. You passed {passed} in the request, but the maximum "
        f"value is {maximum}."
    )


def bad_key(key: str) -> str:
    return (
        f"Invalid attribute key given (key={key}). An attribute key must not be empty and must not "
        "begin with 'goog'."
    )


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (
            pubsub.PubsubMessage(),
            "One or more messages in the publish request is empty. Each message must contain "
            "either non-empty data, or at least one attribute.",
        ),
        (
            pubsub.PubsubMessage(ordering_key="alone"),
            "One or more messages in the publish request is empty. Each message must contain "
            "either non-empty data, or at least one attribute.",
        ),
        (
            pubsub.PubsubMessage(data=b"x", ordering_key="k" * 1025),
            too_large("ordering_key_size", 1025, 1024),
        ),
        (
            pubsub.PubsubMessage(data=b"x", attributes={f"k{i}": "" for i in range(101)}),
            too_large("attribute_count", 101, 100),
        ),
        (
            pubsub.PubsubMessage(data=b"x", attributes={"é" * 129: ""}),
            too_large("attribute_key_size", 258, 256),
        ),
        (
            pubsub.PubsubMessage(data=b"x", attributes={"k": "v" * 1025}),
            too_large("attribute_value_size", 1025, 1024),
        ),
        (pubsub.PubsubMessage(data=b"x", attributes={"": "v"}), bad_key("")),
        (pubsub.PubsubMessage(data=b"x", attributes={"google": "v"}), bad_key("google")),
    ],
)
def test_a_publish_request_with_one_invalid_message_is_refused_as_a_whole(
    bad: pubsub.PubsubMessage, text: str
) -> None:
    """None of the messages is published, and no ID is used."""
    broker = Broker()
    with pytest.raises(InvalidArgument) as refused:
        publish(broker.engine, MESSAGE, bad)
    assert refused.value.message == text
    assert broker.backlog == 0
    assert broker.publish("next") == ["1"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (
            0,
            "The value for message_count is too small. You passed 0 in the request, but the "
            "minimum value is 1.",
        ),
        (1001, too_large("message_count", 1001, 1000)),
    ],
)
def test_a_publish_request_with_no_message_or_more_than_a_thousand_is_refused(
    count: int, text: str
) -> None:
    """1,000 messages are accepted, and 1,001 are not."""
    broker = Broker()
    with pytest.raises(InvalidArgument) as refused:
        publish(broker.engine, *[MESSAGE] * count)
    assert refused.value.message == text
    assert broker.backlog == 0
    assert len(publish(broker.engine, *[MESSAGE] * 1000)) == 1000


def of_size(size: int) -> pubsub.PublishRequest:
    """Return a request with this many bytes on the wire."""
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"x" * size)])
    extra = request.ByteSize() - size
    request.messages[0].data = b"x" * (size - extra)
    assert request.ByteSize() == size
    return request


def test_a_publish_request_of_more_than_ten_million_bytes_is_refused(wire: Wire) -> None:
    """A larger one is refused with a code that clients do not retry."""
    wire.create()
    assert wire.call("Publish", of_size(10_000_000)).message_ids == ["1"]
    for size, text in (
        (10_000_001, too_large("request_size", 10_000_001, 10_000_000)),
        (10_485_760, too_large("request_size", 10_485_760, 10_000_000)),
        (10_485_761, "Request payload size exceeds the limit: 10485760 bytes."),
    ):
        refusal = wire.start("Publish", of_size(size)).exception()
        assert (refusal.code().name, refusal.details()) == ("INVALID_ARGUMENT", text)
