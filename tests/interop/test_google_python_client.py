"""Google's own Python client works against the broker, unaware that it is not the cloud."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.protobuf.field_mask_pb2 import FieldMask

from emulator import Emulator

PROJECT = "projects/interop"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/billing"
WAIT = 30.0


@pytest.fixture
def publisher(pubsub_emulator: Emulator) -> Iterator[Any]:
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    client = pubsub_v1.PublisherClient(publisher_options=options)
    yield client
    client.stop()
    client.transport.close()


@pytest.fixture
def subscriber(pubsub_emulator: Emulator) -> Iterator[Any]:
    with pubsub_v1.SubscriberClient() as client:
        yield client


@pytest.fixture
def subscription(publisher: Any, subscriber: Any) -> str:
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(
        request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
    )
    return SUBSCRIPTION


class Received:
    """Collects what a callback is given, and tells when there is enough of it."""

    def __init__(self, expected: int) -> None:
        self.messages: list[Any] = []
        self.complete = threading.Event()
        self._expected = expected
        self._lock = threading.Lock()

    def add(self, message: Any) -> int:
        with self._lock:
            self.messages.append(message)
            if len(self.messages) >= self._expected:
                self.complete.set()
            return len(self.messages)

    def __call__(self, message: Any) -> None:
        message.ack()
        self.add(message)


def subscribe(subscriber: Any, callback: Any, complete: threading.Event) -> None:
    """Receive until `complete`, then shut down and wait for that."""
    future = subscriber.subscribe(SUBSCRIPTION, callback, await_callbacks_on_shutdown=True)
    try:
        assert complete.wait(WAIT)
    finally:
        future.cancel()
        future.result(WAIT)


def test_published_messages_reach_a_callback_whole(
    pubsub_emulator: Emulator, publisher: Any, subscriber: Any, subscription: str
) -> None:
    """Data, attributes, id and publish time arrive as they were published; nothing is left."""
    ids = [publisher.publish(TOPIC, b"%d" % n, currency="EUR") for n in range(500)]
    published = {future.result(WAIT): b"%d" % n for n, future in enumerate(ids)}
    received = Received(500)
    subscribe(subscriber, received, received.complete)
    assert {m.message_id: m.data for m in received.messages} == published
    assert {m.attributes["currency"] for m in received.messages} == {"EUR"}
    assert all(m.publish_time.year >= 2024 for m in received.messages)
    assert pubsub_emulator.backlog(subscription) == 0


def test_ordered_messages_arrive_in_order_within_their_key(
    publisher: Any, subscriber: Any, subscription: str
) -> None:
    """Ten keys of fifty messages, handled on ten threads: each key in the order of publishing."""
    for n in range(50):
        for key in range(10):
            publisher.publish(TOPIC, b"%d" % n, ordering_key=f"key-{key}")
    received = Received(500)
    subscribe(subscriber, received, received.complete)
    by_key: dict[str, list[int]] = defaultdict(list)
    for message in received.messages:
        by_key[message.ordering_key].append(int(message.data))
    assert len(by_key) == 10
    assert all(numbers == list(range(50)) for numbers in by_key.values())


def test_a_nacked_message_comes_again(
    pubsub_emulator: Emulator, publisher: Any, subscriber: Any, subscription: str
) -> None:
    """A nack brings the message back at once, and an ack then ends it."""
    publisher.publish(TOPIC, b"stubborn").result(WAIT)
    received = Received(3)

    def callback(message: Any) -> None:
        if received.add(message) < 3:
            message.nack()
        else:
            message.ack()

    subscribe(subscriber, callback, received.complete)
    assert [m.data for m in received.messages] == [b"stubborn"] * 3
    assert pubsub_emulator.backlog(subscription) == 0


def test_synchronous_pull_and_acknowledge(
    pubsub_emulator: Emulator, publisher: Any, subscriber: Any, subscription: str
) -> None:
    """pull returns what is there, up to max_messages; acknowledged messages are gone."""
    for future in [publisher.publish(TOPIC, b"%d" % n) for n in range(10)]:
        future.result(WAIT)
    first = subscriber.pull(subscription=subscription, max_messages=4)
    rest = subscriber.pull(subscription=subscription, max_messages=100)
    assert len(first.received_messages) == 4
    assert len(rest.received_messages) == 6
    acked = [m.ack_id for m in (*first.received_messages, *rest.received_messages)]
    subscriber.acknowledge(subscription=subscription, ack_ids=acked)
    assert pubsub_emulator.backlog(subscription) == 0


def test_a_pull_that_finds_nothing_is_answered_before_its_deadline(
    subscriber: Any, subscription: str
) -> None:
    """An empty answer, where Google's emulator would let the client run into its own timeout."""
    answer = subscriber.pull(subscription=subscription, max_messages=1, timeout=1.0, retry=None)
    assert list(answer.received_messages) == []


def test_giving_a_pulled_message_back(publisher: Any, subscriber: Any, subscription: str) -> None:
    """modify_ack_deadline with 0 seconds makes the message available at once."""
    publisher.publish(TOPIC, b"again").result(WAIT)
    (first,) = subscriber.pull(subscription=subscription, max_messages=1).received_messages
    subscriber.modify_ack_deadline(
        subscription=subscription, ack_ids=[first.ack_id], ack_deadline_seconds=0
    )
    (second,) = subscriber.pull(subscription=subscription, max_messages=1).received_messages
    assert second.message.message_id == first.message.message_id
    assert second.ack_id != first.ack_id


def test_topics_are_managed(publisher: Any, subscriber: Any, subscription: str) -> None:
    """Topics are created, got, listed, updated and deleted; their subscriptions stay."""
    publisher.create_topic(name=f"{PROJECT}/topics/another")
    assert [t.name for t in publisher.list_topics(project=PROJECT)] == [
        f"{PROJECT}/topics/another",
        TOPIC,
    ]
    changed = publisher.update_topic(
        topic={"name": TOPIC, "labels": {"team": "shop"}}, update_mask=FieldMask(paths=["labels"])
    )
    assert dict(changed.labels) == {"team": "shop"}
    assert publisher.get_topic(topic=TOPIC) == changed
    assert list(publisher.list_topic_subscriptions(topic=TOPIC)) == [subscription]
    publisher.delete_topic(topic=TOPIC)
    assert subscriber.get_subscription(subscription=subscription).topic == "_deleted-topic_"


def test_subscriptions_are_managed(subscriber: Any, subscription: str) -> None:
    """Subscriptions are got with their defaults, listed, updated by mask and deleted."""
    got = subscriber.get_subscription(subscription=subscription)
    assert got.ack_deadline_seconds == 10
    assert got.expiration_policy.ttl.days == 31
    changed = subscriber.update_subscription(
        subscription={"name": subscription, "ack_deadline_seconds": 60},
        update_mask=FieldMask(paths=["ack_deadline_seconds"]),
    )
    assert changed.ack_deadline_seconds == 60
    assert [s.name for s in subscriber.list_subscriptions(project=PROJECT)] == [subscription]
    subscriber.delete_subscription(subscription=subscription)
    assert list(subscriber.list_subscriptions(project=PROJECT)) == []


def test_lists_are_paged(publisher: Any) -> None:
    """The client follows page tokens to the end, and sees every name once."""
    names = [f"{PROJECT}/topics/topic-{n:02}" for n in range(25)]
    for name in names:
        publisher.create_topic(name=name)
    listed = publisher.list_topics(request={"project": PROJECT, "page_size": 10})
    assert [len(page.topics) for page in listed.pages] == [10, 10, 5]
    again = publisher.list_topics(request={"project": PROJECT, "page_size": 10})
    assert [topic.name for topic in again] == names


@pytest.mark.parametrize(
    ("provoke", "error"),
    [
        (lambda p, s: p.create_topic(name=TOPIC), exceptions.AlreadyExists),
        (lambda p, s: p.create_topic(name=f"{PROJECT}/topics/x"), exceptions.InvalidArgument),
        (lambda p, s: p.get_topic(topic=f"{PROJECT}/topics/none"), exceptions.NotFound),
        (
            lambda p, s: s.create_subscription(
                name=f"{PROJECT}/subscriptions/new", topic=TOPIC, ack_deadline_seconds=5
            ),
            exceptions.InvalidArgument,
        ),
        (
            lambda p, s: s.acknowledge(subscription=SUBSCRIPTION, ack_ids=["nonsense"]),
            exceptions.InvalidArgument,
        ),
        (
            lambda p, s: p.publish(f"{PROJECT}/topics/none", b"x").result(WAIT),
            exceptions.NotFound,
        ),
    ],
)
def test_refusals_are_the_exceptions_that_users_catch(
    publisher: Any, subscriber: Any, subscription: str, provoke: Any, error: type[Exception]
) -> None:
    """A bad request raises google.api_core's exception for it, at once and without retries."""
    with pytest.raises(error):
        provoke(publisher, subscriber)


def test_a_subscriber_survives_a_restart_of_the_broker(
    pubsub_emulator: Emulator, publisher: Any, subscriber: Any, subscription: str
) -> None:
    """The broker goes away and comes back on its port with its state: Google's client goes on."""
    received = Received(2)
    first = threading.Event()

    def callback(message: Any) -> None:
        received(message)
        first.set()

    future = subscriber.subscribe(subscription, callback)
    publisher.publish(TOPIC, b"before").result(WAIT)
    assert first.wait(WAIT)
    pubsub_emulator.stop()
    with Emulator(port=pubsub_emulator.port, engine=pubsub_emulator.engine):
        publisher.publish(TOPIC, b"after").result(WAIT)
        assert received.complete.wait(WAIT)
        future.cancel()
        future.result(WAIT)
    assert {m.data for m in received.messages} == {b"before", b"after"}
