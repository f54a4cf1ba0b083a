"""The connections of a client, and their end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import google.auth
import grpc
import pytest
from google.auth.credentials import AnonymousCredentials

from pullstream import SubscriberClient
from pullstream.client import _StreamCalls
from pullstream.rpc.channel_pool import ChannelPool, SharedChannel
from pullstream.rpc.endpoint import Endpoint, ServerAccess
from pullstream.streaming.stream import StreamEnded
from pullstream_protocol.errors import Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Stage, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


@pytest.fixture
def here() -> Iterator[Stage]:
    with stage() as here:
        yield here


def opened(client: SubscriberClient) -> set[grpc.Channel]:
    assert isinstance(client._connections, ChannelPool)
    return client._connections._opened


def is_closed(channel: grpc.Channel) -> bool:
    stub = channel.unary_unary("/any/Method", request_serializer=bytes, response_deserializer=bytes)
    try:
        stub.future(b"").cancel()
    except ValueError:
        return True
    return False


def test_every_running_subscription_of_a_client_has_its_own_connection(here: Stage) -> None:
    """All other calls share another connection, which exists from the beginning."""
    calls = set(opened(here.client))
    assert calls == {here.client._rpcs.channel}
    first = here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    second = here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    eventually(lambda: len(opened(here.client)) == 3)
    own = opened(here.client) - calls
    here.publish(b"x")
    eventually(lambda: here.backlog == 0)
    assert first.close(TIMEOUT)
    assert len(opened(here.client)) == 2
    assert second.running()
    assert second.close(TIMEOUT)
    assert opened(here.client) == calls
    assert all(map(is_closed, own))
    here.publish(b"y")
    assert here.backlog == 1


def test_a_subscription_reopens_a_broken_stream_on_the_same_connection(here: Stage) -> None:
    future = here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    here.publish(b"x")
    eventually(lambda: here.backlog == 0)
    before = set(opened(here.client))
    here.emulator.faults.abort_streams(Unavailable("away"))
    eventually(lambda: future.statistics().reopened > 0)
    assert opened(here.client) == before


def test_a_stream_reader_that_starts_after_the_client_was_closed_opens_no_connection(
    here: Stage,
) -> None:
    """A late reader opens no connection.

    Sequence: a reader that is about to open its stream is held up for seconds. The subscription is
    shut down and does not wait any longer. The reader opens a connection that nothing would close.
    """
    assert isinstance(here.client._connections, ChannelPool)
    calls = _StreamCalls(here.client._rpcs, here.client._connections)
    before = set(opened(here.client))
    calls.close()
    with pytest.raises(StreamEnded):
        calls.streaming_pull(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION))
    assert opened(here.client) == before


def test_closing_a_subscriber_client_closes_all_connections_of_the_client(here: Stage) -> None:
    here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    eventually(lambda: len(opened(here.client)) == 2)
    channels = set(opened(here.client))
    here.client.close()
    assert opened(here.client) == set()
    assert all(map(is_closed, channels))


def test_a_client_created_with_a_channel_uses_only_that_channel_and_does_not_close_it(
    here: Stage,
) -> None:
    with grpc.insecure_channel(here.client.target) as channel:
        with SubscriberClient(channel=channel) as client:
            assert isinstance(client._connections, SharedChannel)
            future = client.subscribe(SUBSCRIPTION, lambda message: message.ack())
            here.publish(b"x")
            eventually(lambda: here.backlog == 0)
            future.close(TIMEOUT)
        grpc.channel_ready_future(channel).result(TIMEOUT)


def test_grpc_channels_stay_open_at_program_exit_if_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the exit, closing a channel might wait for a new thread."""
    connections = ChannelPool(ServerAccess(Endpoint("localhost:1", plaintext=True)), None)
    channel = connections.open()
    monkeypatch.setattr("pullstream.rpc.abandoned_channels.threads_are_refused", lambda: True)
    connections.close_all()
    assert not is_closed(channel)
    channel.close()


def test_a_client_looks_up_default_credentials_once_for_all_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of connections does not matter."""
    looked: list[Any] = []

    def default(**options: Any) -> tuple[Any, str]:
        looked.append(options)
        return AnonymousCredentials(), ""  # type: ignore[no-untyped-call]

    monkeypatch.setattr(google.auth, "default", default)
    with SubscriberClient(endpoint="https://localhost:1") as client:
        for _ in range(3):
            client._connections.open()
        assert len(opened(client)) == 4
    assert len(looked) == 1


class SlowChannel:
    """A channel whose close waits for the test."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let = threading.Event()

    def close(self) -> None:
        self.begun.set()
        assert self.let.wait(TIMEOUT)


def closing(channel: Any) -> tuple[ChannelPool, threading.Thread]:
    """Return a pool with this channel, and a thread that has begun to close it."""
    connections = ChannelPool(ServerAccess(Endpoint("localhost:1", plaintext=True)), None)
    connections._opened.add(channel)
    thread = threading.Thread(target=connections.close_all)
    thread.start()
    assert channel.begun.wait(TIMEOUT)
    return connections, thread


def test_a_second_close_of_a_channel_pool_waits_until_the_first_close_is_finished() -> None:
    """A second close waits for the first one.

    Sequence: a subscription's last thread closes the client's connections. The main thread does the
    same, finds nothing left to do, and lets the interpreter end during the first close, which
    crashes the process.
    """
    slow = SlowChannel()
    connections, first = closing(slow)
    second = threading.Thread(target=connections.close_all)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    slow.let.set()
    for thread in (first, second):
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_a_close_of_a_channel_pool_does_not_wait_forever_for_a_stuck_concurrent_close() -> None:
    """A close does not wait for another one that is stuck.

    Sequence: Ctrl-C interrupts the main thread inside gRPC, which keeps a lock of the channel. A
    thread that closes the channel waits for that lock, and the main thread, at its own end, for the
    thread.
    """
    stuck = SlowChannel()
    connections, first = closing(stuck)
    connections.close_all()
    assert first.is_alive()
    stuck.let.set()
    first.join(TIMEOUT)
