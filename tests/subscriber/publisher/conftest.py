"""Servers and clients for the tests of the publisher."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pullstream import (
    AsyncPublisherClient,
    BatchSettings,
    LimitExceededBehavior,
    PublisherClient,
    PublisherOptions,
    PublishFlowControl,
)
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.scripted_server import Call, ScriptedServer

TOPIC = "projects/project-1/topics/orders"
SUBSCRIPTION = "projects/project-1/subscriptions/orders"


class Server(ScriptedServer):
    """Answers Publish calls with new message IDs, or as a test says.

    `fail` holds errors for the next calls. While `gate` is not set, calls wait. `requests` are the
    data of the messages of each call, in the order of arrival. The end of the test closes the
    clients that `connect` creates.
    """

    def __init__(self) -> None:
        super().__init__(self._publish)
        self.fail: list[Exception | None] = []
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        self.clients: list[PublisherClient] = []
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def requests(self) -> list[list[bytes]]:
        return [[message.data for message in call.request.messages] for call in self.calls]

    def connect(self, *arguments: Any, **options: Any) -> PublisherClient:
        client = PublisherClient(*arguments, endpoint=self.endpoint, **options)
        self.clients.append(client)
        return client

    def wait_for_calls(self, number: int) -> None:
        """Wait until as many more calls have arrived."""
        for _ in range(number):
            assert self.arrived.acquire(timeout=10), "a call has not arrived"

    def _publish(self, call: Call) -> pubsub.PublishResponse:
        with self._lock:
            error = self.fail.pop(0) if self.fail else None
        self.arrived.release()
        assert self.gate.wait(10)
        if error is not None:
            raise error
        with self._lock:
            ids = [str(next(self._ids)) for _ in call.request.messages]
        return pubsub.PublishResponse(message_ids=ids)


def limited_client(
    server: ScriptedServer, messages: int = 1, batches: BatchSettings | tuple[()] = ()
) -> AsyncPublisherClient:
    """Return a client whose flow control has room for this number of messages."""
    limits = PublishFlowControl(messages, 1_000_000, LimitExceededBehavior.BLOCK)
    options = PublisherOptions(flow_control=limits)
    return AsyncPublisherClient(batches, options, endpoint=server.endpoint)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running
        running.gate.set()
        for client in running.clients:
            client.close(10)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """Yield a broker with a topic and an ordered subscription."""
    with Emulator() as running:
        running.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        subscription = pubsub.Subscription(
            name=SUBSCRIPTION, topic=TOPIC, enable_message_ordering=True
        )
        running.inspect(lambda engine: engine.create_subscription(subscription))
        yield running
