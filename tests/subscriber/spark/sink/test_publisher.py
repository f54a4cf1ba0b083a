"""The sink's publisher, on a broker and on a server that fails as the test orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.publisher.encoding import encode_message, encode_ordering_key
from pullstream.rpc.endpoint import access_of
from pullstream.spark.sink import publisher as publisher_module
from pullstream.spark.sink.publisher import SinkPublisher
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, PermissionDenied, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.scripted_server import Call, ScriptedServer

TOPIC = "projects/test-project/topics/rows"
SUBSCRIPTION = "projects/test-project/subscriptions/rows"


Encoded = dict[str, list[bytes]]


@pytest.fixture
def subscription(pubsub_emulator: Emulator) -> str:
    """Create a subscription that keeps order, on the broker of the environment."""
    with TopicAdminClient() as topics, SubscriberClient() as client:
        topics.create_topic(name=TOPIC)
        client.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
    return SUBSCRIPTION


def numbered(count: int, keys: int = 0) -> Iterator[pubsub.PubsubMessage]:
    """Yield messages 0, 1, 2, ... with this many ordering keys in turn, or without keys."""
    for number in range(count):
        key = f"k{number % keys}" if keys else ""
        yield pubsub.PubsubMessage(data=b"%d" % number, ordering_key=key)


def confirmed(call: Call) -> pubsub.PublishResponse:
    ids = [str(number) for number in range(len(call.request.messages))]
    return pubsub.PublishResponse(message_ids=ids)


def encoded(messages: Iterable[pubsub.PubsubMessage], rows: int = 1000) -> Iterator[Encoded]:
    """Yield the messages as the rows of record batches."""
    batch: Encoded = {}
    for number, message in enumerate(messages, 1):
        suffix = encode_ordering_key(message.ordering_key)
        batch.setdefault(message.ordering_key, []).append(encode_message(message.data, suffix))
        if number % rows == 0:
            yield batch
            batch = {}
    yield batch


def pulled(count: int) -> list[pubsub.PubsubMessage]:
    """Return this many messages of the subscription in the order of arrival."""
    found: list[pubsub.PubsubMessage] = []
    with SubscriberClient() as client:
        while len(found) < count:
            response = client.pull(subscription=SUBSCRIPTION, max_messages=1000)
            found += [received.message for received in response.received_messages]
            ack_ids = [received.ack_id for received in response.received_messages]
            client.acknowledge(subscription=SUBSCRIPTION, ack_ids=ack_ids)
    return found


def test_the_spark_sink_publishes_the_rows_of_each_ordering_key_in_order(subscription: str) -> None:
    """There are many more messages than in concurrent requests."""
    with SinkPublisher(TOPIC, access_of()) as publisher:
        publisher.publish(encoded(numbered(20_000, keys=7)))
        assert publisher.published == 20_000
    found = pulled(20_000)
    for key in range(7):
        numbers = [int(one.data) for one in found if one.ordering_key == f"k{key}"]
        assert numbers == list(range(key, 20_000, 7))


def test_the_spark_sink_reads_rows_no_faster_than_it_publishes_them(
    subscription: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many keys may prevent full requests."""
    monkeypatch.setattr(publisher_module, "MAX_UNCONFIRMED_BYTES", 1000)
    published_when_taken = []
    with SinkPublisher(TOPIC, access_of()) as publisher:

        def watched() -> Iterator[pubsub.PubsubMessage]:
            for number, message in enumerate(numbered(500, keys=500)):
                published_when_taken.append(number - publisher.published)
                yield message

        publisher.publish(encoded(watched(), rows=10))
    assert max(published_when_taken) < 100
    assert len(pulled(500)) == 500


def test_the_spark_sink_sends_no_publish_request_for_an_empty_partition() -> None:
    """A partition may be empty."""
    with (
        ScriptedServer() as server,
        SinkPublisher(TOPIC, access_of(endpoint=server.endpoint)) as publisher,
    ):
        publisher.publish(())
        assert server.calls == []


def test_the_spark_sink_keeps_the_order_of_a_key_when_it_retries_transient_failures() -> None:
    """The order is kept: no later message of its key overtakes it."""
    arrived: list[bytes] = []
    failures = Counter({"a": 2, "": 1})

    def answer(call: Call) -> pubsub.PublishResponse:
        key = call.request.messages[0].ordering_key
        if failures[key]:
            failures[key] -= 1
            raise Unavailable("for a while")
        arrived.extend(message.data for message in call.request.messages)
        return confirmed(call)

    messages = [
        *(pubsub.PubsubMessage(data=b"a%d" % n, ordering_key="a") for n in range(1500)),
        pubsub.PubsubMessage(data=b"none"),
    ]
    with (
        ScriptedServer(answer) as server,
        SinkPublisher(TOPIC, access_of(endpoint=server.endpoint)) as publisher,
    ):
        publisher.publish(encoded(messages))
        assert publisher.published == 1501
    assert b"none" in arrived
    assert [data for data in arrived if data != b"none"] == [b"a%d" % n for n in range(1500)]


def test_the_error_of_a_failed_spark_sink_request_names_the_topic_and_number_of_messages() -> None:
    """The error has the server's class."""

    def answer(call: Call) -> pubsub.PublishResponse:
        if call.request.messages[0].ordering_key == "b":
            raise PermissionDenied("not you")
        return confirmed(call)

    messages = [
        *(pubsub.PubsubMessage(data=b"x", ordering_key="a") for _ in range(3)),
        pubsub.PubsubMessage(data=b"x", ordering_key="b"),
    ]
    with (
        ScriptedServer(answer) as server,
        SinkPublisher(TOPIC, access_of(endpoint=server.endpoint)) as publisher,
        pytest.raises(PermissionDenied, match=r"not you \(publishing 1 messages to projects/test-"),
    ):
        publisher.publish(encoded(messages))


def test_the_spark_sink_fails_at_once_if_its_topic_is_missing(pubsub_emulator: Emulator) -> None:
    """The error comes at once, as no retry helps."""
    with SinkPublisher(TOPIC, access_of()) as publisher, pytest.raises(NotFound):
        publisher.publish(encoded(numbered(1)))


@pytest.mark.parametrize(("retry_for", "least_calls"), [(0.0, 1), (0.2, 2)])
def test_publish_retries_of_the_spark_sink_end_at_the_time_limit(
    retry_for: float, least_calls: int
) -> None:
    """The caller sets the time limit."""

    def answer(call: Call) -> None:
        raise Unavailable("for ever")

    with (
        ScriptedServer(answer) as server,
        SinkPublisher(TOPIC, access_of(endpoint=server.endpoint), retry_for=retry_for) as publisher,
        pytest.raises(Unavailable, match="for ever"),
    ):
        publisher.publish(encoded(numbered(1)))
    assert least_calls <= len(server.calls) <= 5


def test_the_error_of_a_spark_sink_task_says_that_an_earlier_attempt_may_have_succeeded() -> None:
    """The error keeps the type, the reason and this statement of the request's error."""
    failures: list[Exception] = [Unavailable("Socket closed"), NotFound("gone", reason="R")]

    def answer(call: Call) -> None:
        raise failures.pop(0)

    with (
        ScriptedServer(answer) as server,
        SinkPublisher(TOPIC, access_of(endpoint=server.endpoint)) as publisher,
        pytest.raises(NotFound, match=r"may have succeeded.*publishing 1 messages to") as raised,
    ):
        publisher.publish(encoded(numbered(1)))
    assert raised.value.may_have_succeeded
