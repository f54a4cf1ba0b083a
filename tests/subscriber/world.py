"""A broker on loopback with one topic and one subscription, a client, and inspection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pullstream import FlowControl, Message, SubscriberClient, ThreadScheduler, TopicAdminClient
from pullstream.client import _SubscriptionCalls
from pullstream.streaming.manager import StreamingPullManager
from pullstream.streaming.settings import StreamingSettings
from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock, ManualClock
from tests.subscriber.streaming.fakes import PATIENCE, eventually

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"

# The seconds of each clock step. Lease extensions are due after multiples of it (48, then 8).
STEP = 2


class World:
    """The broker and clients of one test. `manage` shares the broker's clock if it is manual."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, **settings: Any) -> None:
        self.clock = clock
        self._managers: list[StreamingPullManager] = []
        self.emulator = Emulator(clock=clock).start()
        self.client = SubscriberClient(endpoint=self.emulator.endpoint)
        self.publisher = TopicAdminClient(endpoint=self.emulator.endpoint)
        # Another client, which stays open when the first one is closed.
        self.other = SubscriberClient(endpoint=self.emulator.endpoint)
        self.publisher.create_topic(name=TOPIC)
        self.other.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC, **settings})

    def publish(self, *data: bytes, key: str = "") -> list[str]:
        """Publish messages, and return their ids."""
        messages = [{"data": one, "ordering_key": key} for one in data]
        return list(self.publisher.publish(TOPIC, messages))

    @property
    def backlog(self) -> int:
        """Return the number of messages that are not acknowledged."""
        return self.emulator.backlog(SUBSCRIPTION)

    def free(self) -> list[bytes]:
        """Return the messages that another client would get now, and return them to the broker."""
        response = self.other.pull(
            subscription=SUBSCRIPTION, max_messages=1000, return_immediately=True
        )
        ack_ids = [one.ack_id for one in response.received_messages]
        if ack_ids:
            self.other.modify_ack_deadline(
                subscription=SUBSCRIPTION, ack_ids=ack_ids, ack_deadline_seconds=0
            )
        return [one.message.data for one in response.received_messages]

    def manage(
        self,
        callback: Callable[[Message], Any],
        *,
        workers: int = 10,
        await_callbacks: bool = False,
        **limits: Any,
    ) -> StreamingPullManager:
        """Subscribe as `client.subscribe` does, on the broker's clock."""
        manager = StreamingPullManager(
            _SubscriptionCalls(self.client._rpcs, self.client._connections, SUBSCRIPTION),
            SUBSCRIPTION,
            callback,
            StreamingSettings(limits=FlowControl(**limits), await_callbacks=await_callbacks),
            scheduler=ThreadScheduler(max_workers=workers),
            clock=self.clock,
        )
        manager.start()
        self._managers.append(manager)
        return manager

    def advance(self, seconds: int) -> None:
        """Advance the clock of the broker and of managed subscriptions in steps.

        After each step, wait for the answers to heartbeats, or the server would seem dead.
        """
        assert isinstance(self.clock, ManualClock)
        for _ in range(0, seconds, STEP):
            self.clock.advance(STEP)
            eventually(self._no_pong_is_missing)

    def advance_extending(self, seconds: int) -> None:
        """Advance, and wait after each step until extensions have reached the broker."""
        for _ in range(0, seconds, STEP):
            self.advance(STEP)
            eventually(self._no_lease_is_about_to_end)

    def _no_pong_is_missing(self) -> bool:
        watched = [manager._heartbeater._liveness for manager in self._managers]
        return all(liveness._silent_since is None for liveness in watched)

    def _no_lease_is_about_to_end(self) -> bool:
        # An extension is due when a lease has two seconds left, so one step earlier it has four.
        ends = self.emulator.inspect(first_end_of_a_lease)
        return ends is None or ends > self.clock.monotonic() + 3.5

    def close(self) -> None:
        self.client.close()
        self.other.close()
        self.publisher.close()
        self.emulator.stop()


def first_end_of_a_lease(engine: Engine) -> float | None:
    # Exact to the second, because the table's own next_due may be too early.
    leases = engine.registry.subscription(SUBSCRIPTION).leases
    queues = leases._queues.values()
    return min((due for queue in queues for due, _ in queue.items.values()), default=None)


@contextmanager
def world(clock: Clock = SYSTEM_CLOCK, **settings: Any) -> Iterator[World]:
    """Yield a world for the `with` block. `settings` are the subscription's."""
    one = World(clock, **settings)
    try:
        yield one
    finally:
        one.close()


class Collected:
    """A callback that keeps the data of each message, acknowledges it, and counts messages."""

    def __init__(self, then: Callable[[Message], Any] = Message.ack) -> None:
        self._then = then
        self._changed = threading.Condition()
        self.data: list[bytes] = []

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.data.append(message.data)
            self._changed.notify_all()
        self._then(message)

    def wait_for(self, count: int) -> list[bytes]:
        """Return the data as soon as there are this many messages."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.data) >= count, PATIENCE)
            assert enough, f"only {len(self.data)} of {count} messages came"
            return list(self.data)
