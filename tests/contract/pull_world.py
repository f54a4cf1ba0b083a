"""A broker on real time and a client that fetches from it, with a view of their activity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

import grpc
import pytest

from pullstream import Message, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.messages import pubsub_pb2 as pubsub

T = TypeVar("T")

TOPIC = "projects/test-project/topics/orders"
SUBSCRIPTION = "projects/test-project/subscriptions/billing"

# Seconds. No step takes longer on any machine; the limit turns a hang into a failure.
TIMEOUT = 20.0


class Recorder(grpc.UnaryUnaryClientInterceptor):
    """Records each unary call of a client: its request and its time limit (0: none)."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, float]] = []

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self.sent.append((request, details.timeout or 0.0))
        return continuation(details, request)


class PullWorld:
    """One topic and one subscription."""

    def __init__(self, emulator: Emulator, client: SubscriberClient) -> None:
        self.emulator = emulator
        self.client = client
        self._stack = ExitStack()
        self._threads = self._stack.enter_context(ThreadPoolExecutor(120))
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        self.create(SUBSCRIPTION)

    def close(self) -> None:
        # Closing the client ends the fetches that still wait.
        self.client.close()
        self._stack.close()

    def create(self, name: str, **settings: Any) -> str:
        config = pubsub.Subscription(name=name, topic=TOPIC, **settings)
        self.emulator.inspect(lambda engine: engine.create_subscription(config))
        return name

    def publish(self, *data: str, key: str = "", **attributes: str) -> None:
        messages = [
            pubsub.PubsubMessage(data=each.encode(), ordering_key=key, attributes=attributes)
            for each in data
        ]
        request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
        self.emulator.inspect(lambda engine: engine.publish(request))

    def another_client(self, *interceptors: Any) -> SubscriberClient:
        """Return a client with its own connection. It is closed together with this world."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = self._stack.enter_context(
            grpc.insecure_channel(self.emulator.endpoint, options=options)
        )
        recorded = grpc.intercept_channel(channel, *interceptors) if interceptors else channel
        return self._stack.enter_context(SubscriberClient(channel=recorded))

    def start(self, function: Callable[..., T], *args: Any, **options: Any) -> Future[T]:
        """Call `function` in a new thread."""
        return self._threads.submit(function, *args, **options)

    def start_fetch(self, timeout: float | None = TIMEOUT, **options: Any) -> Future[Any]:
        """Start a fetch, and return when it waits."""
        waiting = self.waiting
        future = self.start(self.client.fetch, SUBSCRIPTION, timeout=timeout, **options)
        self.wait_until_waiting(waiting + 1)
        return future

    @property
    def waiting(self) -> int:
        return self.emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION))

    def wait_until_waiting(self, count: int) -> None:
        until = SYSTEM_CLOCK.monotonic() + TIMEOUT
        # Each check of `waiting` is a turn of the broker's event loop, so the calls make progress.
        while (waiting := self.waiting) != count:
            assert SYSTEM_CLOCK.monotonic() < until, f"{waiting} calls wait, not {count}"


def texts(messages: list[Message]) -> list[str]:
    return [message.data.decode() for message in messages]


def seconds_of(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = SYSTEM_CLOCK.monotonic()
    function()
    return SYSTEM_CLOCK.monotonic() - began


@pytest.fixture
def world() -> Iterator[PullWorld]:
    with Emulator() as emulator, SubscriberClient(endpoint=emulator.endpoint) as client:
        world = PullWorld(emulator, client)
        yield world
        world.close()
