"""The dimensions of the broker. Most call the engine, which has no network."""

from __future__ import annotations

import math
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from pullstream_emulator.engine import Consumer, Engine
from pullstream_emulator.engine.delivery.delivery_state import Delivery
from pullstream_emulator.engine.record import Record
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.bench.growth_broker import (
    DAY,
    OPERATIONS,
    OTHER,
    SUBSCRIPTION,
    TOPIC,
    fill,
    subscribe,
)

from .dimension import DONE, Dimension, End, Probe, Serve, Work

MESSAGES = (40_000, 80_000, 160_000, 320_000)
# Work that reads and writes few bytes of each of many objects is measured from a size at which the
# caches of the processor (here 32 MiB) have only a small part of them. With fewer objects, a bare
# program that puts them into a dict has an exponent of 1.2 to 1.35: each object takes longer as
# fewer of them are in the caches. From here on it has 1.03.
BEYOND_CACHES = (160_000, 320_000, 640_000, 1_280_000)
KEYED = (1_000, 2_000, 4_000, 8_000)
RESOURCES = (2_500, 5_000, 10_000, 20_000)
STREAMS = (500, 1_000, 2_000, 4_000)
CONNECTIONS = (25, 50, 100, 200)
QUICK = (200, 400)
FEW = (3, 6)

PER_PROJECT = 1_000
BATCH = 1_000
Steps = Iterator[Probe | End | None]


def engine_at(clock: ManualClock, **options: Any) -> Engine:
    """Return an engine with a clock."""
    return Engine(wall=clock.now, monotonic=clock.monotonic, **options)


def slices(engine: Engine, clock: ManualClock) -> Steps:
    """Do the due work, in slices, as the server does between other calls."""
    while (due := engine.next_due()) is not None and due <= clock.monotonic():
        engine.advance()
        yield None


def engine_work(work: Callable[[Engine, int], Steps]) -> Work:
    """Return the work of an engine; slices of due work follow it."""

    def steps(size: int, serve: Serve) -> Steps:
        clock = ManualClock()
        engine = engine_at(clock)
        yield from work(engine, size)
        yield from slices(engine, clock)

    return steps


def operation(name: str) -> Work:
    """Return the work of an operation of tests/bench/growth_broker.py."""
    prepare, act = OPERATIONS[name]

    def steps(size: int, serve: Serve) -> Steps:
        clock = ManualClock()
        engine = engine_at(clock)
        prepare(engine, size)
        yield None
        act(engine, clock)
        yield None
        yield from slices(engine, clock)

    return steps


def consumer(**limits: Any) -> Consumer:
    """Return a consumer with long leases."""
    return Consumer(ack_deadline=600, wake=lambda: None, **limits)


def taken(engine: Engine, limit: int = BATCH) -> Iterator[list[str]]:
    """Lease the backlog to one consumer, and yield the ack IDs of each take."""
    one = consumer()
    subscription = engine.join(SUBSCRIPTION, one)
    while messages := engine.take(subscription, one, limit):
        yield [ack_id for ack_id, _ in messages]


def leased_ids(engine: Engine) -> list[str]:
    """Lease the backlog to one consumer, and return the ack IDs."""
    return [ack_id for ack_ids in taken(engine) for ack_id in ack_ids]


def filling(engine: Engine, size: int, key: str = "") -> Steps:
    """Publish messages, 1,000 a request. With a prefix, each has another ordering key."""
    for first in range(0, size, BATCH):
        messages = [
            pubsub.PubsubMessage(data=b"x", ordering_key=key and f"{key}-{n}")
            for n in range(first, min(first + BATCH, size))
        ]
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages))
        yield None


def publish(engine: Engine, size: int) -> Steps:
    """Publish messages."""
    subscribe(engine)
    yield None
    yield from filling(engine, size)


def deliver(engine: Engine, size: int) -> Steps:
    """Deliver a backlog."""
    subscribe(engine)
    fill(engine, size)
    yield None
    for _ in taken(engine):
        yield None


def acknowledge(engine: Engine, size: int) -> Steps:
    """Acknowledge leased messages."""
    subscribe(engine)
    fill(engine, size)
    leased = list(taken(engine))
    yield None
    for ack_ids in leased:
        engine.acknowledge(SUBSCRIPTION, ack_ids)
        yield None


def acknowledge_one_by_one(engine: Engine, size: int) -> Steps:
    """Acknowledge the messages of one ordering key one by one, exactly once."""
    subscribe(engine, enable_message_ordering=True, enable_exactly_once_delivery=True)
    fill(engine, size, keys=1)
    leased = leased_ids(engine)
    yield None
    for ack_id in leased:
        engine.acknowledge(SUBSCRIPTION, [ack_id])
        yield None


def nack_from_the_last(engine: Engine, size: int) -> Steps:
    """Nack the messages of one ordering key one by one, the last one first."""
    subscribe(engine, enable_message_ordering=True)
    fill(engine, size, keys=1)
    leased = leased_ids(engine)
    yield None
    for ack_id in reversed(leased):
        engine.modify_ack_deadline(SUBSCRIPTION, [ack_id], 0)
        yield None


def nack_each(engine: Engine, size: int) -> Steps:
    """Nack messages one by one, and deliver them again."""
    subscribe(engine)
    fill(engine, size)
    leased = leased_ids(engine)
    yield None
    for ack_id in leased:
        engine.modify_ack_deadline(SUBSCRIPTION, [ack_id], 0)
        yield None
    for _ in taken(engine):
        yield None


def extend(engine: Engine, size: int) -> Steps:
    """Extend leases."""
    subscribe(engine)
    fill(engine, size)
    leased = list(taken(engine))
    yield None
    for ack_ids in leased:
        engine.modify_ack_deadline(SUBSCRIPTION, ack_ids, 300)
        yield None


def keys(engine: Engine, size: int) -> Steps:
    """Publish, deliver and acknowledge messages with an ordering key each."""
    subscribe(engine, enable_message_ordering=True)
    yield None
    yield from filling(engine, size, "key")
    for ack_ids in taken(engine):
        engine.acknowledge(SUBSCRIPTION, ack_ids)
        yield None


def waiting_keys(engine: Engine, size: int) -> Steps:
    """Publish messages with an ordering key each."""
    subscribe(engine, enable_message_ordering=True)
    yield None
    yield from filling(engine, size, "key")


def dead_letters(engine: Engine, size: int) -> Steps:
    """Nack messages until they go to the dead-letter topic."""
    subscribe(engine, dead_letter_policy={"dead_letter_topic": OTHER, "max_delivery_attempts": 5})
    fill(engine, size)
    yield None
    for _ in range(5):
        leased = []
        for ack_ids in taken(engine):
            leased.append(ack_ids)
            yield None
        for ack_ids in leased:
            engine.modify_ack_deadline(SUBSCRIPTION, ack_ids, 0)
            yield None


def expiring_keys(size: int, serve: Serve) -> Steps:
    """Let 1,000 messages expire in a backlog of younger ones, all with ordering keys."""
    clock = ManualClock()
    engine = engine_at(clock)
    subscribe(engine, enable_message_ordering=True)
    fill(engine, 1_000, keys=1_000)
    clock.advance(10)
    fill(engine, size, keys=size)
    clock.advance(7 * DAY - 11)
    engine.advance()
    yield None
    for _ in range(20):
        clock.advance(0.1)
        engine.advance()
        yield None


def topics_of(size: int) -> list[str]:
    """Return names of topics in projects of 1,000 topics each."""
    return [f"projects/p{n // PER_PROJECT}/topics/topic-{n}" for n in range(size)]


def create_topics(engine: Engine, size: int) -> Steps:
    """Create topics."""
    yield None
    for name in topics_of(size):
        engine.create_topic(pubsub.Topic(name=name))
        yield None


def list_topics(engine: Engine, size: int) -> Steps:
    """List topics in pages of 10."""
    for name in topics_of(size):
        engine.create_topic(pubsub.Topic(name=name))
    yield None
    for project in range(0, size, PER_PROJECT):
        request = pubsub.ListTopicsRequest(
            project=f"projects/p{project // PER_PROJECT}", page_size=10
        )
        yield from pages(engine.list_topics, request)


def pages(call: Callable[[Any], Any], request: Any) -> Steps:
    """Read all pages of a list."""
    while True:
        request.page_token = call(request).next_page_token
        yield None
        if not request.page_token:
            return


def delete_topics(engine: Engine, size: int) -> Steps:
    """Delete topics while there are as many snapshots."""
    subscribe(engine)
    for number, name in enumerate(topics_of(size)):
        engine.create_topic(pubsub.Topic(name=name))
        project = f"projects/p{number // PER_PROJECT}"
        request = pubsub.CreateSnapshotRequest(
            name=f"{project}/snapshots/snapshot-{number}", subscription=SUBSCRIPTION
        )
        engine.create_snapshot(request)
    yield None
    for name in topics_of(size):
        engine.delete_topic(name)
        yield None


def create_subscriptions(engine: Engine, size: int) -> Steps:
    """Create subscriptions, each of another topic."""
    for name in topics_of(size):
        engine.create_topic(pubsub.Topic(name=name))
    yield None
    for name in topics_of(size):
        own = name.replace("topics", "subscriptions")
        engine.create_subscription(pubsub.Subscription(name=own, topic=name))
        yield None


def list_subscriptions(engine: Engine, size: int) -> Steps:
    """List the subscriptions of one topic in pages of 10."""
    engine.create_topic(pubsub.Topic(name=TOPIC))
    for name in topics_of(size):
        own = name.replace("topics", "subscriptions")
        engine.create_subscription(pubsub.Subscription(name=own, topic=TOPIC))
    yield None
    request = pubsub.ListTopicSubscriptionsRequest(topic=TOPIC, page_size=10)
    yield from pages(engine.list_topic_subscriptions, request)


def subscriptions_of_a_topic(engine: Engine, size: int) -> Steps:
    """Publish a message to many subscriptions."""
    engine.create_topic(pubsub.Topic(name=TOPIC))
    for number in range(size):
        name = f"{SUBSCRIPTION}-{number}"
        engine.create_subscription(pubsub.Subscription(name=name, topic=TOPIC))
    yield None
    for _ in range(20):
        fill(engine, 1)
        yield None


def filters(engine: Engine, size: int) -> Steps:
    """Publish messages to subscriptions with a filter each."""
    engine.create_topic(pubsub.Topic(name=TOPIC))
    for number in range(size):
        name, only = f"{SUBSCRIPTION}-{number}", f'attributes.kind = "{number}"'
        engine.create_subscription(pubsub.Subscription(name=name, topic=TOPIC, filter=only))
    yield None
    for number in range(20):
        message = pubsub.PubsubMessage(data=b"x", attributes={"kind": f"{number}"})
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[message]))
        yield None


def snapshots(engine: Engine, size: int) -> Steps:
    """Create and delete snapshots of one subscription."""
    subscribe(engine)
    fill(engine, 1_000)
    yield None
    created = [f"projects/p{n // PER_PROJECT}/snapshots/snapshot-{n}" for n in range(size)]
    for name in created:
        engine.create_snapshot(pubsub.CreateSnapshotRequest(name=name, subscription=SUBSCRIPTION))
        yield None
    for name in created:
        engine.delete_snapshot(name)
        yield None


def streams(engine: Engine, size: int) -> Steps:
    """Deliver a message to each of many streams that wait, and acknowledge it."""
    subscribe(engine)
    woken: list[Consumer] = []
    for _ in range(size):
        one = consumer(max_messages=2)
        one.wake = partial(woken.append, one)
        engine.take(engine.join(SUBSCRIPTION, one), one)
    subscription = engine.registry.subscription(SUBSCRIPTION)
    yield None
    yield from filling(engine, size)
    while woken:
        one = woken.pop()
        ack_ids = [ack_id for ack_id, _ in engine.take(subscription, one)]
        yield None
        if ack_ids:
            engine.acknowledge(SUBSCRIPTION, ack_ids)
            engine.take(subscription, one)
            yield None


def streams_of_keys(engine: Engine, size: int) -> Steps:
    """Acknowledge ordered messages while many streams wait."""
    subscribe(engine, enable_message_ordering=True)
    fill(engine, size, keys=1)
    leased = leased_ids(engine)
    for _ in range(size):
        one = consumer()
        engine.take(engine.join(SUBSCRIPTION, one), one)
    yield None
    for ack_id in leased:
        engine.acknowledge(SUBSCRIPTION, [ack_id])
        yield None


def streams_that_leave(engine: Engine, size: int) -> Steps:
    """Let streams with ten leases each leave."""
    subscribe(engine)
    fill(engine, 10 * size)
    subscription = engine.registry.subscription(SUBSCRIPTION)
    consumers = [consumer(max_messages=10) for _ in range(size)]
    for one in consumers:
        engine.join(SUBSCRIPTION, one)
        engine.take(subscription, one)
    yield None
    for one in consumers:
        engine.leave(subscription, one)
        yield None


def retained(engine: Engine, size: int) -> Steps:
    """Publish and acknowledge messages that stay for a seek."""
    subscribe(engine, retain_acked_messages=True)
    yield None
    yield from filling(engine, size)
    for ack_ids in taken(engine):
        engine.acknowledge(SUBSCRIPTION, ack_ids)
        yield None


# ---- with the server --------------------------------------------------------------------------


def server_probe(emulator: Emulator) -> Probe:
    """Return a probe that waits for the thread of the broker."""
    return lambda: emulator.inspect(lambda engine: None)


def history(size: int, serve: Serve) -> Steps:
    """Look for 20 messages in a long history."""
    with Emulator(history=4 * size) as emulator:
        emulator.inspect(subscribe)
        emulator.inspect(lambda engine: fill(engine, size))
        yield server_probe(emulator)
        # Each goes through the whole history.
        for number in range(1, size, size // 20):
            emulator.message(str(number), TOPIC)
        yield DONE


def idempotency_keys(size: int, serve: Serve) -> Steps:
    """Append records to a feed with an idempotency key each."""
    with Emulator() as emulator, SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.put(TOPIC)
        yield server_probe(emulator)
        for number in range(size):
            client.feeds.append(TOPIC, [b"x"], idempotency_key=f"{number}")
        yield DONE


def routers(size: int, serve: Serve) -> Steps:
    """Copy records to the topics of many routers."""
    with Emulator() as emulator, SubscriberClient(endpoint=emulator.endpoint) as client:
        client.feeds.put(TOPIC)
        copies = [f"{TOPIC}-{number}" for number in range(size)]
        for number, copy in enumerate(copies):
            client.feeds.put(copy)
            name = client.routers.path("p", f"router-{number}")
            client.routers.put({"name": name, "source": TOPIC, "dest": copy})
        yield server_probe(emulator)
        for _ in range(20):
            client.feeds.append(TOPIC, [b"x"])

        def is_copied() -> bool:
            logs = [emulator.engine.registry.topic(copy).log for copy in copies]
            return all(log.head_seq >= 20 for log in logs)

        wait_until(is_copied)
        yield DONE


def push_endpoints(size: int, serve: Serve) -> Steps:
    """Push a message to each of many endpoints."""
    # Imported here: aiohttp is optional for the other dimensions.
    from tests.emulator.push_endpoint import Endpoint

    with Endpoint() as endpoint, Emulator() as emulator:

        def create(engine: Engine) -> None:
            engine.create_topic(pubsub.Topic(name=TOPIC))
            for number in range(size):
                config = pubsub.Subscription(name=f"{SUBSCRIPTION}-{number}", topic=TOPIC)
                config.push_config.push_endpoint = endpoint.url(f"/{number}")
                engine.create_subscription(config)

        emulator.inspect(create)
        yield server_probe(emulator)
        for _ in range(4):
            emulator.inspect(lambda engine: fill(engine, 1))
            for _ in range(size):
                endpoint.next()
        yield DONE


def sse_readers(size: int, serve: Serve) -> Steps:
    """Show changes to many readers of the live status."""
    with Emulator(rest=True) as emulator, ExitStack() as readers:
        emulator.inspect(subscribe)
        yield server_probe(emulator)
        for _ in range(size):
            one = readers.enter_context(socket.create_connection((emulator.host, emulator.port)))
            one.sendall(b"GET /v0/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            one.settimeout(60)
            while b"data:" not in one.recv(1 << 16):
                pass
        yield DONE


def restart(size: int, serve: Serve) -> Steps:
    """Start a broker with a backlog on disk."""
    with tempfile.TemporaryDirectory() as folder:
        with Emulator(data_dir=folder) as emulator:
            emulator.inspect(subscribe)
            for _ in range(0, size, BATCH):
                emulator.inspect(lambda engine: fill(engine, min(BATCH, size)))
        yield None
        with Emulator(data_dir=folder):
            yield DONE


def stop(size: int, serve: Serve) -> Steps:
    """Stop a broker with a backlog on disk."""
    with tempfile.TemporaryDirectory() as folder, Emulator(data_dir=folder) as emulator:
        emulator.inspect(subscribe)
        for _ in range(0, size, BATCH):
            emulator.inspect(lambda engine: fill(engine, min(BATCH, size)))
        yield None
        emulator.stop()
        yield DONE


def wait_until(is_true: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for something that other threads do."""
    pause = threading.Event()
    for _ in range(int(timeout / 0.01)):
        if is_true():
            return
        pause.wait(0.01)
    raise TimeoutError("the work has not ended")


def bare_objects(size: int, serve: Serve) -> Steps:
    """Move objects from a queue into a dict, as the delivery of a message does, and no more."""
    waiting = deque(Delivery(Record(number, "", b"x" * 50, 0), None) for number in range(size))
    leased: dict[str, tuple[float, Delivery]] = {}
    yield None
    for number in range(size):
        delivery = waiting.popleft()
        delivery.ack_id = f"{number:x}-the-mark-of-a-subscription"
        delivery.number = number
        leased[delivery.ack_id] = (1.0, delivery)
    yield DONE


def of_engine(
    name: str, work: Callable[[Engine, int], Steps], sizes: tuple[int, ...], exponent: float = 1.1
) -> Dimension:
    """Return a dimension of the engine."""
    return Dimension("broker", name, engine_work(work), sizes, QUICK, exponent=exponent)


BROKER = (
    of_engine("messages: publish", publish, MESSAGES),
    Dimension(
        "broker",
        "few objects that a bare program puts into a dict",
        bare_objects,
        MESSAGES,
        QUICK,
        exponent=math.inf,
    ),
    Dimension(
        "broker",
        "many objects that a bare program puts into a dict",
        bare_objects,
        BEYOND_CACHES,
        QUICK,
    ),
    of_engine("messages: deliver", deliver, BEYOND_CACHES),
    of_engine("messages: acknowledge", acknowledge, MESSAGES),
    # At these sizes the caches count (see BEYOND_CACHES). Larger ones take minutes.
    of_engine("messages: nack one by one", nack_each, MESSAGES, 1.25),
    *(
        Dimension(
            "broker",
            f"messages: {name}",
            operation(name),
            BEYOND_CACHES if name == "seek, all leased" else MESSAGES,
            QUICK,
        )
        for name in OPERATIONS
    ),
    of_engine("leases: extend", extend, BEYOND_CACHES),
    of_engine(
        "leases of a key: acknowledge one by one, exactly once", acknowledge_one_by_one, KEYED
    ),
    of_engine("leases of a key: nack from the last", nack_from_the_last, KEYED),
    of_engine("ordering keys: publish", waiting_keys, MESSAGES),
    of_engine("ordering keys: publish, deliver, acknowledge", keys, MESSAGES),
    Dimension("broker", "ordering keys that expire", expiring_keys, MESSAGES, QUICK),
    of_engine("dead letters", dead_letters, (10_000, 20_000, 40_000, 80_000)),
    of_engine("retained messages", retained, MESSAGES),
    of_engine("topics: create", create_topics, RESOURCES),
    of_engine("topics: list in pages of 10", list_topics, RESOURCES),
    of_engine("topics: delete, with as many snapshots", delete_topics, RESOURCES),
    of_engine("subscriptions: create", create_subscriptions, RESOURCES),
    of_engine(
        "subscriptions of a topic: list in pages of 10",
        list_subscriptions,
        (1_000, 2_000, 4_000, 8_000),
    ),
    of_engine(
        "subscriptions of a topic: publish", subscriptions_of_a_topic, (1_000, 2_000, 4_000, 8_000)
    ),
    of_engine("filters", filters, (1_000, 2_000, 4_000, 8_000)),
    of_engine("snapshots: create and delete", snapshots, RESOURCES),
    of_engine("streams: deliver one message each", streams, STREAMS),
    of_engine("streams during acknowledgements of a key", streams_of_keys, STREAMS),
    of_engine("streams that leave with ten leases", streams_that_leave, STREAMS),
    Dimension(
        "broker", "history: find 20 messages", history, (5_000, 10_000, 20_000, 40_000), QUICK
    ),
    Dimension(
        "broker", "idempotency keys: append", idempotency_keys, (500, 1_000, 2_000, 4_000), FEW
    ),
    Dimension("broker", "routers of a topic: append", routers, CONNECTIONS, FEW),
    Dimension("broker", "push endpoints", push_endpoints, CONNECTIONS, FEW),
    Dimension("broker", "readers of the live status", sse_readers, CONNECTIONS, FEW),
    Dimension("broker", "messages on disk: start", restart, MESSAGES, QUICK, longest_wait=None),
    Dimension("broker", "messages on disk: stop", stop, MESSAGES, QUICK, longest_wait=None),
)
