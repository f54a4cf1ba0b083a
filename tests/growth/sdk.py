"""The dimensions of the SDK. The broker has a separate process, so only the SDK is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pullstream import FlowControl, Message, PublisherClient, StreamingPullFuture, SubscriberClient
from pullstream.feeds import CaughtUp, Frame, Records
from pullstream.publisher import BatchSettings, PublisherOptions
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.bench.publisher import Broker

from .dimension import DONE, Dimension, End, Probe, Serve

TOPIC = "projects/growth/topics/topic"
SUBSCRIPTION = "projects/growth/subscriptions/sub"
TIMEOUT = 120.0
BATCH = 500

MESSAGES = (5_000, 10_000, 20_000, 40_000)
KEYS = (500, 1_000, 2_000, 4_000)
OPEN = (25, 50, 100, 200)
FEW = (3, 6)
Steps = Iterator[Probe | End | None]


class Count:
    """Waits until something has happened a number of times."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._lock = threading.Lock()
        self._done = threading.Event()

    def add(self, number: int = 1) -> None:
        """Count one more event."""
        with self._lock:
            self._left -= number
            if self._left <= 0:
                self._done.set()

    def wait(self) -> None:
        """Wait for the last event."""
        if not self._done.wait(TIMEOUT):
            raise TimeoutError(f"{self._left} of the expected events are missing")


class StatisticsProbe:
    """Asks a subscription for its statistics, once there is one."""

    def __init__(self) -> None:
        self.future: StreamingPullFuture | None = None

    def __call__(self) -> None:
        if self.future is not None:
            self.future.statistics()


@contextmanager
def subscribed(serve: Serve, **settings: Any) -> Iterator[tuple[Broker, SubscriberClient]]:
    """Serve a broker with a topic and a subscription, and connect to it."""
    with serve() as endpoint, SubscriberClient(endpoint=endpoint) as client:
        broker = Broker(endpoint)
        broker.create_topic(pubsub.Topic(name=TOPIC))
        config = pubsub.Subscription(
            name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=600, **settings
        )
        broker.create_subscription(config)
        yield broker, client


def fill(broker: Broker, size: int, key: Callable[[int], str], data: bytes = b"x") -> None:
    """Publish messages, with these ordering keys."""
    messages = [pubsub.PubsubMessage(data=data, ordering_key=key(n)) for n in range(size)]
    for first in range(0, size, BATCH):
        batch = messages[first : first + BATCH]
        broker.publish(pubsub.PublishRequest(topic=TOPIC, messages=batch))


def no_key(number: int) -> str:
    """Return no ordering key."""
    return ""


def receive_all(
    client: SubscriberClient, window: int, callback: Callable[[Message], None], count: Count
) -> Steps:
    """Subscribe with a window of this many messages, until the count is complete."""
    probe = StatisticsProbe()
    yield probe
    options = FlowControl(max_messages=window)
    probe.future = client.subscribe(SUBSCRIPTION, callback, options)
    count.wait()
    yield DONE


def ordering_keys(size: int, serve: Serve) -> Steps:
    """Receive messages with an ordering key each."""
    with subscribed(serve, enable_message_ordering=True) as (broker, client):
        fill(broker, size, lambda n: f"key-{n}")
        count = Count(size)

        def callback(message: Message) -> None:
            message.ack()
            count.add()

        yield from receive_all(client, size, callback, count)


def failing_keys(size: int, serve: Serve) -> Steps:
    """Nack the first of two messages of each ordering key."""
    with subscribed(serve, enable_message_ordering=True) as (broker, client):
        fill(broker, 2 * size, lambda n: f"key-{n % size}")
        count, failed = Count(2 * size), set[str]()

        def callback(message: Message) -> None:
            if message.ordering_key in failed:
                message.ack()
                count.add()
            else:
                failed.add(message.ordering_key)
                message.nack()

        yield from receive_all(client, 2 * size, callback, count)


def waiting_in_a_failing_key(size: int, serve: Serve) -> Steps:
    """Nack the first message of a key three times, while all others wait behind it."""
    with subscribed(serve, enable_message_ordering=True) as (broker, client):
        fill(broker, size, lambda n: "key")
        count = Count(size)
        left, room = [3], threading.Event()

        def callback(message: Message) -> None:
            if left[0]:
                left[0] -= 1
                room.wait(0.5)
                message.nack()
            else:
                message.ack()
                count.add()

        yield from receive_all(client, size, callback, count)


def outstanding(size: int, serve: Serve) -> Steps:
    """Hold messages until all have come, and acknowledge them."""
    with subscribed(serve) as (broker, client):
        fill(broker, size, no_key)
        count, held = Count(size), list[Message]()

        def callback(message: Message) -> None:
            held.append(message)
            count.add()

        probe = StatisticsProbe()
        yield probe
        options = FlowControl(max_messages=size)
        probe.future = client.subscribe(SUBSCRIPTION, callback, options, release_after="ack")
        count.wait()
        for message in held:
            message.ack()
        yield DONE


def subscriptions(size: int, serve: Serve) -> Steps:
    """Open subscriptions, each of which receives a message."""
    with subscribed(serve) as (broker, client):
        for number in range(size):
            name = f"{SUBSCRIPTION}-{number}"
            broker.create_subscription(pubsub.Subscription(name=name, topic=TOPIC))
        fill(broker, 1, no_key)
        count = Count(size)

        def callback(message: Message) -> None:
            message.ack()
            count.add()

        yield None
        for number in range(size):
            client.subscribe(f"{SUBSCRIPTION}-{number}", callback)
        count.wait()
        yield DONE


@contextmanager
def publishing(serve: Serve, **options: Any) -> Iterator[PublisherClient]:
    """Serve a broker with a topic, and connect a publisher to it."""
    with serve() as endpoint:
        Broker(endpoint).create_topic(pubsub.Topic(name=TOPIC))
        with PublisherClient(
            publisher_options=PublisherOptions(**options), endpoint=endpoint
        ) as client:
            yield client


def publisher_keys(size: int, serve: Serve) -> Steps:
    """Publish a message of each ordering key."""
    with publishing(serve, enable_message_ordering=True) as client:
        yield client.statistics
        futures = [client.publish(TOPIC, b"x", ordering_key=f"{n}") for n in range(size)]
        for future in futures:
            future.result(TIMEOUT)
        yield DONE


def publisher_futures(size: int, serve: Serve) -> Steps:
    """Publish messages, and wait for their futures."""
    with publishing(serve) as client:
        yield client.statistics
        futures = [client.publish(TOPIC, b"x" * 100) for _ in range(size)]
        for future in futures:
            future.result(TIMEOUT)
        yield DONE


def without_a_server(size: int, serve: Serve) -> Steps:
    """Keep batches of one message while the server is away."""
    client = PublisherClient(batch_settings=BatchSettings(max_messages=1), endpoint="localhost:1")
    try:
        yield client.statistics
        for _ in range(size):
            client.publish(TOPIC, b"x")
        threading.Event().wait(3)
        yield DONE
    finally:
        client.close(timeout=0.1)


def message_size(size: int, serve: Serve) -> Steps:
    """Receive 50 messages of a size."""
    with subscribed(serve) as (broker, client):
        for _ in range(50):
            fill(broker, 1, no_key, b"x" * size)
        count = Count(50)

        def callback(message: Message) -> None:
            message.ack()
            count.add(len(message.data) // size)

        yield None
        client.subscribe(SUBSCRIPTION, callback)
        count.wait()
        yield DONE


def messages_a_response(size: int, serve: Serve) -> Steps:
    """Receive 40 responses by fetch, of a number of messages each."""
    with subscribed(serve) as (broker, client):
        fill(broker, 40 * size, no_key)
        yield None
        for _ in range(40):
            client.fetch(SUBSCRIPTION, max_messages=size).ack()
        yield DONE


def followers(size: int, serve: Serve) -> Steps:
    """Follow one topic many times."""
    with serve() as endpoint, SubscriberClient(endpoint=endpoint) as client:
        client.feeds.put(TOPIC)
        client.feeds.append(TOPIC, [b"x"] * 20)
        count = Count(20 * size)
        yield None
        for _ in range(size):
            client.follow(TOPIC, lambda record: count.add())
        count.wait()
        yield DONE


def watched_topics(size: int, serve: Serve) -> Steps:
    """Watch many topics with one call, and receive 5 records of each."""
    with serve() as endpoint, SubscriberClient(endpoint=endpoint) as client:
        topics = [f"{TOPIC}-{number}" for number in range(size)]
        for topic in topics:
            client.feeds.put(topic)
        caught_up, count = Count(size), Count(5 * size)

        def handle(frame: Frame) -> None:
            if isinstance(frame, Records):
                count.add(len(frame.messages))
            elif isinstance(frame, CaughtUp):
                caught_up.add()

        client.watch(dict.fromkeys(topics, "tail"), handle)
        caught_up.wait()
        yield None
        for topic in topics:
            for _ in range(5):
                client.feeds.append(topic, [b"x"])
        count.wait()
        yield DONE


def listen_keys(size: int, serve: Serve) -> Steps:
    """Listen to many keys, and receive a message of each."""
    with subscribed(serve) as (broker, client):
        ready, count = Count(size), Count(size)
        listener = client.listen()
        yield None
        for number in range(size):
            listener.subscribe(
                TOPIC,
                f"key-{number}",
                on_message=lambda message: count.add(),
                on_done=lambda error: ready.add(),
            )
        ready.wait()
        fill(broker, size, lambda n: f"key-{n}")
        count.wait()
        yield DONE


def of_sdk(name: str, work: Any, sizes: tuple[int, ...]) -> Dimension:
    """Return a dimension of the SDK."""
    return Dimension("SDK", name, work, sizes, FEW)


SDK = (
    of_sdk("ordering keys", ordering_keys, MESSAGES),
    of_sdk("failing keys", failing_keys, KEYS),
    of_sdk("messages in a failing key", waiting_in_a_failing_key, KEYS),
    of_sdk("outstanding messages", outstanding, MESSAGES),
    of_sdk("subscriptions", subscriptions, OPEN),
    of_sdk("publisher: keys", publisher_keys, MESSAGES),
    of_sdk("publisher: futures", publisher_futures, MESSAGES),
    of_sdk("publisher: futures without a server", without_a_server, MESSAGES),
    of_sdk("message size, bytes", message_size, (25_000, 50_000, 100_000, 200_000)),
    of_sdk("messages a response", messages_a_response, (100, 200, 400, 800)),
    of_sdk("followers", followers, OPEN),
    of_sdk("watched topics", watched_topics, OPEN),
    of_sdk("listen keys", listen_keys, KEYS),
)
