"""Connections that a port forwarding has forgotten: every client finds out, and uses another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest

from pullstream import (
    AsyncPublisherClient,
    AsyncSubscriberClient,
    ChannelMessage,
    Message,
    PublisherClient,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream.feeds import Frame, Records
from pullstream.fetch import protocol
from pullstream.follow import Record
from pullstream.logs.follow import settings
from pullstream.rpc import connection
from pullstream.streaming import heartbeater
from pullstream.streaming.manager import StreamingPullManager
from pullstream_emulator import Emulator, server
from pullstream_protocol.errors import DeadlineExceeded, RpcError, Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC
from tests.subscriber.forwarder import Forwarder
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

# The times after which silence counts, in seconds.
SHORT_TIMES = [
    (connection, "SILENT_CALL", 0.1),
    (connection, "SILENT_WAIT", 0.2),
    (connection, "ANSWER_WITHIN", 0.3),
    (protocol, "LONGEST_LINGER", 0.3),
    (protocol, "ANSWER_TIME", 0.3),
    (heartbeater, "PONG_WITHIN", 0.2),
]


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times that are read only at the start of a broker, a stream or a follower."""
    monkeypatch.setattr(server, "PING_AFTER", 0.2)
    monkeypatch.setattr(server, "PONG_WITHIN", 1.0)
    monkeypatch.setattr(settings, "STREAM_SILENCE_LIMIT", 1.0)
    monkeypatch.setattr(heartbeater, "PING_EVERY", 0.2)


@dataclass
class World:
    """A broker, a forwarding to it, and a client that needs none."""

    broker: Emulator
    forwarder: Forwarder
    direct: TopicAdminClient
    monkeypatch: pytest.MonkeyPatch

    def publish(self, data: bytes) -> None:
        self.direct.publish(TOPIC, [{"data": data}])

    def forget(self, connections: int | None = None) -> None:
        """Forget the present connections. `connections`: how many there are.

        Only from now on are the times short, because a busy machine may be silent for as long.
        """
        if connections is not None:
            eventually(lambda: self.forwarder.connections == connections)
        assert self.forwarder.connections
        for module, name, seconds in SHORT_TIMES:
            self.monkeypatch.setattr(module, name, seconds)
        self.forwarder.forget()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with (
        # So that a message that was sent on a dead stream comes again when the broker ends it.
        Emulator(return_leases_on_disconnect=True) as broker,
        Forwarder(int(broker.endpoint.rpartition(":")[2])) as forwarder,
        TopicAdminClient(endpoint=broker.endpoint) as direct,
        SubscriberClient(endpoint=broker.endpoint) as admin,
    ):
        direct.create_topic(name=TOPIC)
        admin.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        admin.feeds.put(TOPIC)
        yield World(broker, forwarder, direct, monkeypatch)


@pytest.fixture
def client(world: World) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=world.forwarder.endpoint) as client:
        yield client


def test_a_publisher_retries_on_a_new_connection_when_its_connection_is_half_open(
    world: World,
) -> None:
    """Long before the time limit of the attempt."""
    with PublisherClient(endpoint=world.forwarder.endpoint) as publisher:
        publisher.publish(TOPIC, b"before").result(TIMEOUT)
        world.forget(1)
        assert publisher.publish(TOPIC, b"after").result(TIMEOUT)


async def test_an_async_publisher_retries_on_a_new_connection_when_its_connection_is_half_open(
    world: World,
) -> None:
    async with AsyncPublisherClient(endpoint=world.forwarder.endpoint) as publisher:
        await publisher.publish(TOPIC, b"before")
        world.forget(1)
        assert await asyncio.wait_for(publisher.publish(TOPIC, b"after"), TIMEOUT)


def test_a_subscription_replaces_half_open_connections_and_continues(
    world: World, client: SubscriberClient
) -> None:
    """The stream has one connection, acknowledgements have another.

    The broker sends the message on the dead stream first, and then ends it.
    """
    received: list[bytes] = []

    def callback(message: Message) -> None:
        received.append(message.data)
        message.ack()

    future = client.subscribe(SUBSCRIPTION, callback)
    world.publish(b"before")
    eventually(lambda: world.broker.backlog(SUBSCRIPTION) == 0)
    # Before the first answer to a ping, silence does not count.
    manager = future._subscription
    assert isinstance(manager, StreamingPullManager)
    eventually(lambda: manager._streams[0]._heartbeater._liveness._answers_pings)
    world.forget(2)
    world.publish(b"after")
    eventually(lambda: b"after" in received)
    eventually(lambda: world.broker.backlog(SUBSCRIPTION) == 0)


def test_a_fetch_continues_on_a_new_connection_when_its_connection_is_half_open(
    world: World, client: SubscriberClient
) -> None:
    """The messages of an answer that was lost are redelivered; this one had not been sent."""
    assert client.fetch(SUBSCRIPTION, no_wait=True) == []
    world.forget(1)
    timer = threading.Timer(0.5, lambda: world.publish(b"after"))
    timer.start()
    with client.fetch(SUBSCRIPTION, timeout=TIMEOUT) as messages:
        assert [message.data for message in messages] == [b"after"]
    timer.join()


def test_several_short_fetches_in_a_row_detect_a_half_open_connection(
    world: World, client: SubscriberClient
) -> None:
    """Each fetch waits for less time than silence must last."""
    assert client.fetch(SUBSCRIPTION, no_wait=True) == []
    world.forget(1)

    def is_answered() -> bool:
        return client.fetch(SUBSCRIPTION, timeout=0.05, missing_ok=True) == []

    with pytest.raises(TimeoutError):
        is_answered()

    def answers() -> bool:
        try:
            return is_answered()
        except (TimeoutError, Unavailable):
            return False

    eventually(answers)


async def test_an_async_fetch_continues_on_a_new_connection_when_its_connection_is_half_open(
    world: World,
) -> None:
    async with AsyncSubscriberClient(endpoint=world.forwarder.endpoint) as client:
        assert await client.fetch(SUBSCRIPTION, no_wait=True) == []
        world.forget(1)
        asyncio.get_running_loop().call_later(0.5, world.publish, b"after")
        (message,) = await client.fetch(SUBSCRIPTION, timeout=TIMEOUT)
        assert message.data == b"after"


def test_a_feed_follower_continues_on_a_new_connection_when_its_connection_is_half_open(
    world: World, client: SubscriberClient
) -> None:
    received: list[bytes] = []

    def handle(record: Record) -> None:
        received.append(record.data)

    client.follow(TOPIC, handle)
    world.publish(b"before")
    eventually(lambda: received == [b"before"])
    world.forget()
    world.publish(b"after")
    eventually(lambda: received == [b"before", b"after"])


def test_a_watch_of_a_feed_continues_on_a_new_connection_when_its_connection_is_half_open(
    world: World, client: SubscriberClient
) -> None:
    received: list[bytes] = []

    def handle(frame: Frame) -> None:
        if isinstance(frame, Records):
            received.extend(message.data for message in frame.messages)

    client.watch({TOPIC: 0}, handle, heartbeat=1.0)
    world.publish(b"before")
    eventually(lambda: received == [b"before"])
    world.forget()
    world.publish(b"after")
    eventually(lambda: received == [b"before", b"after"])


def test_a_channel_listener_continues_on_a_new_connection_when_its_connection_is_half_open(
    world: World, client: SubscriberClient
) -> None:
    heard: list[ChannelMessage] = []
    client.listen().subscribe(TOPIC, None, on_message=heard.append)

    def hears_more_than(count: int) -> bool:
        world.publish(b"x")
        return len(heard) > count

    eventually(lambda: hears_more_than(0))
    world.forget()
    count = len(heard)
    eventually(lambda: hears_more_than(count))


def test_all_calls_of_a_client_succeed_after_one_call_has_detected_a_half_open_connection(
    world: World, client: SubscriberClient
) -> None:
    client.get_subscription(subscription=SUBSCRIPTION)
    world.forget(1)
    with pytest.raises(DeadlineExceeded):
        client.get_subscription(subscription=SUBSCRIPTION, timeout=0.2)

    def succeeds() -> bool:
        try:
            return bool(client.get_subscription(subscription=SUBSCRIPTION, timeout=0.2))
        except RpcError:
            return False

    eventually(succeeds)


def test_a_connection_to_a_slow_server_is_kept_if_the_server_answers_the_connection_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers the check, although it is slow to answer the call."""
    monkeypatch.setattr(connection, "SILENT_WAIT", 0.2)
    with PublisherClient(endpoint=world.forwarder.endpoint) as publisher:
        publisher.publish(TOPIC, b"before").result(TIMEOUT)
        channel, connected = publisher._rpcs.channel, publisher._rpcs._connection
        heard_at = connected._heard_at
        with world.broker.faults.drop("Publish"):
            slow = publisher.publish(TOPIC, b"slow")
            # Nothing else is answered.
            eventually(lambda: connected._heard_at > heard_at)
            assert not slow.done()
        slow.result(TIMEOUT)
        assert publisher._rpcs.channel is channel


def test_a_half_open_channel_passed_to_the_client_by_the_user_is_never_replaced(
    world: World,
) -> None:
    """Only the user can close it."""
    with (
        grpc.insecure_channel(world.forwarder.endpoint) as channel,
        SubscriberClient(channel=channel) as client,
    ):
        client.get_subscription(subscription=SUBSCRIPTION)
        world.forget(1)
        for _ in range(3):
            with pytest.raises(DeadlineExceeded):
                client.get_subscription(subscription=SUBSCRIPTION, timeout=0.2)
        assert client._rpcs.channel is channel
