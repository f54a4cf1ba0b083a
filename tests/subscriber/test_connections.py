"""Which connections a client has, and that they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import google.auth
import grpc
import pytest
from google.auth.credentials import AnonymousCredentials

from protocol.errors import Unavailable
from protocol.messages import pubsub_pb2 as pubsub
from subscriber import SubscriberClient
from subscriber.client import _SubscriptionCalls
from subscriber.connection import Target
from subscriber.connections import Connections, GivenChannel
from subscriber.streaming.stream import StreamEnded
from tests.subscriber.streaming.fakes import PATIENCE, eventually
from tests.subscriber.world import SUBSCRIPTION, World, world


@pytest.fixture
def here() -> Iterator[World]:
    with world() as here:
        yield here


def opened(client: SubscriberClient) -> set[grpc.Channel]:
    assert isinstance(client._connections, Connections)
    return client._connections._opened


def is_closed(channel: grpc.Channel) -> bool:
    stub = channel.unary_unary("/any/Method", request_serializer=bytes, response_deserializer=bytes)
    try:
        stub.future(b"").cancel()
    except ValueError:
        return True
    return False


def test_every_subscription_has_a_connection_of_its_own_until_it_ends(here: World) -> None:
    """Beside that of all other calls, which is there from the beginning."""
    calls = set(opened(here.client))
    assert calls == {here.client._rpcs.channel}
    first = here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    second = here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    eventually(lambda: len(opened(here.client)) == 3)
    own = opened(here.client) - calls
    here.publish(b"x")
    eventually(lambda: here.backlog == 0)
    assert first.close(PATIENCE)
    assert len(opened(here.client)) == 2
    assert second.running()
    assert second.close(PATIENCE)
    assert opened(here.client) == calls
    assert all(map(is_closed, own))
    here.publish(b"y")
    assert here.backlog == 1


def test_a_stream_that_breaks_is_opened_again_on_the_same_connection(here: World) -> None:
    future = here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    here.publish(b"x")
    eventually(lambda: here.backlog == 0)
    before = set(opened(here.client))
    here.emulator.faults.abort_streams(Unavailable("away"))
    eventually(lambda: future.statistics().reopened > 0)
    assert opened(here.client) == before


def test_a_reader_that_comes_late_opens_nothing(here: World) -> None:
    """Sequence: a reader that is about to open its stream is held up for seconds; the subscription
    is shut down, and waits no longer; the reader opens a connection that nobody would close."""
    assert isinstance(here.client._connections, Connections)
    calls = _SubscriptionCalls(here.client._rpcs, here.client._connections, SUBSCRIPTION)
    before = set(opened(here.client))
    calls.close()
    with pytest.raises(StreamEnded):
        calls.streaming_pull(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION))
    assert opened(here.client) == before


def test_closing_the_client_ends_all_connections(here: World) -> None:
    here.client.subscribe(SUBSCRIPTION, lambda message: message.ack())
    eventually(lambda: len(opened(here.client)) == 2)
    channels = set(opened(here.client))
    here.client.close()
    assert opened(here.client) == set()
    assert all(map(is_closed, channels))


def test_a_channel_that_was_given_is_the_only_one_and_stays_open(here: World) -> None:
    with grpc.insecure_channel(here.client.target) as channel:
        with SubscriberClient(channel=channel) as client:
            assert isinstance(client._connections, GivenChannel)
            future = client.subscribe(SUBSCRIPTION, lambda message: message.ack())
            here.publish(b"x")
            eventually(lambda: here.backlog == 0)
            future.close(PATIENCE)
        grpc.channel_ready_future(channel).result(PATIENCE)


def test_nothing_is_closed_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the exit: closing a channel might wait for one."""
    connections = Connections(Target("localhost:1", plaintext=True), None)
    channel = connections.open()
    monkeypatch.setattr("subscriber.refused_threads.threads_are_refused", lambda: True)
    connections.close_all()
    assert not is_closed(channel)
    channel.close()


def test_credentials_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections they are for."""
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
    """A channel whose end takes until it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let = threading.Event()

    def close(self) -> None:
        self.begun.set()
        assert self.let.wait(PATIENCE)


def closing(channel: Any) -> tuple[Connections, threading.Thread]:
    """The connections of a client with this one, and a thread that has begun to close it."""
    connections = Connections(Target("localhost:1", plaintext=True), None)
    connections._opened.add(channel)
    thread = threading.Thread(target=connections.close_all)
    thread.start()
    assert channel.begun.wait(PATIENCE)
    return connections, thread


def test_who_closes_waits_for_another_who_is_at_it() -> None:
    """Sequence: a subscription's last thread closes the client's connections; the main thread
    comes to do the same, finds nothing left to do, and lets the interpreter end: under the feet
    of the first, which crashes the process."""
    slow = SlowChannel()
    connections, first = closing(slow)
    second = threading.Thread(target=connections.close_all)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    slow.let.set()
    for thread in (first, second):
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_it_does_not_wait_for_one_who_is_stuck() -> None:
    """Sequence: Ctrl-C meets the main thread inside gRPC, which keeps a lock of the channel's; a
    thread that closes the channel waits for that lock, and the main thread, at its own end, for
    the thread."""
    stuck = SlowChannel()
    connections, first = closing(stuck)
    connections.close_all()
    assert first.is_alive()
    stuck.let.set()
    first.join(PATIENCE)
