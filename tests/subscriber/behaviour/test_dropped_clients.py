"""Clients that a program drops without closing them."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from pullstream import (
    AsyncPublisherClient,
    AsyncSubscriberClient,
    BatchSettings,
    ChannelPublisher,
    Message,
    PublisherClient,
    SchemaServiceClient,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream_protocol.errors import Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Stage
from tests.subscriber.publisher.conftest import Server, limited_client
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.threads import started_since

TIMES = 5


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running
        running.gate.set()


def publish(endpoint: str) -> None:
    PublisherClient(endpoint=endpoint).publish(TOPIC, b"x").result(TIMEOUT)


def publish_many(endpoint: str) -> None:
    PublisherClient(endpoint=endpoint).publish_many(TOPIC, [b"x", b"y"]).result(TIMEOUT)


def publish_with_callback(endpoint: str) -> None:
    called = threading.Event()
    future = PublisherClient(endpoint=endpoint).publish(TOPIC, b"x")
    future.add_done_callback(lambda _: called.set())
    assert called.wait(TIMEOUT)


def publish_async(endpoint: str) -> None:
    async def run() -> None:
        await AsyncPublisherClient(endpoint=endpoint).publish(TOPIC, b"x")

    asyncio.run(run())


def administer(endpoint: str) -> None:
    TopicAdminClient(endpoint=endpoint).get_topic(topic=TOPIC)
    SubscriberClient(endpoint=endpoint).get_subscription(subscription=SUBSCRIPTION)
    list(SchemaServiceClient(endpoint=endpoint).list_schemas(parent="projects/projects-1"))


def fetch(endpoint: str) -> None:
    publish(endpoint)
    (message,) = SubscriberClient(endpoint=endpoint).fetch(SUBSCRIPTION, timeout=TIMEOUT)
    message.ack_with_response().result(TIMEOUT)


def fetch_in_a_block(endpoint: str) -> None:
    publish(endpoint)
    client = SubscriberClient(endpoint=endpoint)
    with client.fetch(SUBSCRIPTION, timeout=TIMEOUT) as messages:
        messages[0].ack()


def fetch_async(endpoint: str) -> None:
    publish(endpoint)

    async def run() -> None:
        client = AsyncSubscriberClient(endpoint=endpoint)
        async with await client.fetch(SUBSCRIPTION, timeout=TIMEOUT) as messages:
            messages[0].ack()

    asyncio.run(run())


def subscribe(endpoint: str) -> None:
    SubscriberClient(endpoint=endpoint).subscribe(SUBSCRIPTION, print).close(TIMEOUT)


def listen(endpoint: str) -> None:
    SubscriberClient(endpoint=endpoint).listen().close(TIMEOUT)


def follow(endpoint: str) -> None:
    SubscriberClient(endpoint=endpoint).follow(TOPIC, print).close(TIMEOUT)


def watch(endpoint: str) -> None:
    SubscriberClient(endpoint=endpoint).watch({TOPIC: 0}, print).close(TIMEOUT)


def serve_channels(endpoint: str) -> None:
    ChannelPublisher().add_to(grpc.server(ThreadPoolExecutor(1)))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize(
    "use",
    [
        publish,
        publish_many,
        publish_with_callback,
        publish_async,
        administer,
        fetch,
        fetch_in_a_block,
        fetch_async,
        subscribe,
        listen,
        follow,
        watch,
        serve_channels,
    ],
    ids=lambda use: use.__name__,
)
def test_a_garbage_collected_client_leaves_no_threads_and_no_file_descriptors(
    here: Stage, use: Callable[[str], None]
) -> None:
    endpoint = here.emulator.endpoint
    # The first use may load modules and start threads of gRPC that remain.
    use(endpoint)

    def settled() -> bool:
        gc.collect()
        return not started_since(before, named="pullstream") and descriptors() <= open_before

    before, open_before = set(threading.enumerate()), 1_000_000
    eventually(settled)
    before, open_before = set(threading.enumerate()), descriptors()
    for _ in range(TIMES):
        use(endpoint)
    eventually(settled)


def test_a_message_is_not_lost_if_its_publisher_is_garbage_collected_before_the_answer(
    server: Server,
) -> None:
    """The message is on its way, waits in a batch, or is retried."""
    server.gate.clear()
    server.fail = [Unavailable("later")]
    before = set(threading.enumerate())
    settings = BatchSettings(max_messages=2, max_latency=60)
    publisher = PublisherClient(settings, endpoint=server.endpoint)
    futures = [publisher.publish(TOPIC, b"%d" % number) for number in range(5)]
    server.wait_for_calls(2)
    del publisher
    gc.collect()
    server.gate.set()
    assert len({future.result(TIMEOUT) for future in futures}) == 5
    eventually(lambda: not started_since(before, named="pullstream"))


def test_messages_waiting_for_flow_control_are_sent_by_a_garbage_collected_publisher(
    server: Server,
) -> None:
    publisher = limited_client(server, batches=BatchSettings(max_messages=1))
    server.gate.clear()
    futures = [publisher.publish(TOPIC, b"%d" % number) for number in range(5)]
    del publisher
    gc.collect()
    server.gate.set()
    assert len({future.result(TIMEOUT) for future in futures}) == 5


def test_publish_done_callbacks_run_to_their_end_when_the_publisher_is_garbage_collected(
    server: Server,
) -> None:
    begun, go_on, last = threading.Event(), threading.Event(), threading.Event()
    publisher = PublisherClient(endpoint=server.endpoint)
    future = publisher.publish(TOPIC, b"x")

    def wait(_: object) -> None:
        begun.set()
        assert go_on.wait(TIMEOUT)

    future.add_done_callback(wait)
    future.add_done_callback(lambda _: last.set())
    future.result(TIMEOUT)
    assert begun.wait(TIMEOUT)
    del publisher
    gc.collect()
    go_on.set()
    assert last.wait(TIMEOUT)


def test_an_ack_made_just_before_its_client_is_garbage_collected_is_sent(here: Stage) -> None:
    """The future is resolved, although nobody holds the client or the message."""
    here.publish(b"x")
    (message,) = SubscriberClient(endpoint=here.emulator.endpoint).fetch(SUBSCRIPTION)
    future = message.ack_with_response()
    del message
    gc.collect()
    assert future.result(TIMEOUT)
    assert here.backlog == 0


def test_a_subscription_continues_after_its_client_is_garbage_collected(here: Stage) -> None:
    handled = threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        handled.set()

    future = SubscriberClient(endpoint=here.emulator.endpoint).subscribe(SUBSCRIPTION, handle)
    gc.collect()
    here.publish(b"x")
    assert handled.wait(TIMEOUT)
    assert future.close(TIMEOUT)
    assert here.backlog == 0
