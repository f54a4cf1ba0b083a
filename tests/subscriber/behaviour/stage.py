"""A broker that misbehaves on request, clients of it, and subscriptions whose time a test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from emulator import Emulator
from emulator.engine import Engine
from protocol.clock import SYSTEM_CLOCK, Clock, ManualClock
from protocol.errors import RpcError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber import (
    AcknowledgeError,
    FlowControl,
    Hooks,
    Message,
    StateChange,
    SubscriberClient,
    ThreadScheduler,
    TopicAdminClient,
)
from subscriber.client import _SubscriptionCalls
from subscriber.hooks import LeaseLoss, RequestKind
from subscriber.streaming.liveness import PING_EVERY
from subscriber.streaming.manager import StreamingPullManager
from subscriber.streaming.settings import ReleaseAfter, Settings
from tests.subscriber.streaming.fakes import PATIENCE, eventually

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"

# Messages that a publish request may hold.
MAX_PUBLISHED = 1_000

# Seconds in which time goes by. It divides those after which leases are extended (48, then 8).
STEP = 2


class Stage:
    """All of one test.

    Args:
        clock: the broker's. `manage` may share it, or use another.
        relay: let a black hole swallow bytes.
        settings: the subscription's.
    """

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, relay: bool = False, **settings: Any
    ) -> None:
        self.clock = clock
        self._managers: list[StreamingPullManager] = []
        self.emulator = Emulator(clock=clock, relay=relay).start()
        self.faults = self.emulator.faults
        self.client = SubscriberClient(endpoint=self.emulator.endpoint)
        # Somebody else, who stays when the client is closed.
        self.other = SubscriberClient(endpoint=self.emulator.endpoint)
        self.publisher = TopicAdminClient(endpoint=self.emulator.endpoint)
        self.publisher.create_topic(name=TOPIC)
        self.other.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC, **settings})

    def publish(self, *data: bytes, key: str = "") -> None:
        """Put messages into the broker, all at once; no fault is in the way of that."""
        messages = [pubsub.PubsubMessage(data=one, ordering_key=key) for one in data]
        for start in range(0, len(messages), MAX_PUBLISHED):
            some = messages[start : start + MAX_PUBLISHED]
            self.emulator.inspect(partial(_publish, some))

    @property
    def backlog(self) -> int:
        """Messages that are not acknowledged for good."""
        return self.emulator.backlog(SUBSCRIPTION)

    def free(self) -> list[bytes]:
        """What somebody else would get at this moment; it is given back."""
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
        clock: Clock | None = None,
        workers: int = 10,
        release_after: ReleaseAfter = "callback",
        give_up_after: float | None = None,
        hooks: Sequence[Hooks] = (),
        **limits: Any,
    ) -> StreamingPullManager:
        """As `client.subscribe`, on a clock of the test's: unless given, the broker's own."""
        manager = StreamingPullManager(
            _SubscriptionCalls(self.client._rpcs, self.client._connections, SUBSCRIPTION),
            SUBSCRIPTION,
            callback,
            Settings(
                FlowControl(**limits),
                release_after=release_after,
                give_up_after=give_up_after,
                hooks=hooks,
            ),
            scheduler=ThreadScheduler(max_workers=workers),
            clock=clock or self.clock,
        )
        manager.start()
        self._managers.append(manager)
        return manager

    def advance(self, seconds: int, *, extending: bool = True) -> None:
        """Let time go by on the one clock of the broker and of managed subscriptions, in steps.

        After each, what is due then is waited for: answers to heartbeats, or the server would seem
        dead, and (if `extending`) extensions of leases, or they would come too late.
        """
        assert isinstance(self.clock, ManualClock)
        for _ in range(0, seconds, STEP):
            self.clock.advance(STEP)
            eventually(self._no_pong_is_missing)
            if extending:
                eventually(self._nothing_is_due)
                eventually(self._no_lease_is_about_to_end)

    def beat(self, manager: StreamingPullManager, clock: ManualClock, times: int) -> None:
        """Let as many heartbeats of one subscription come, on its own clock."""
        for _ in range(times):
            clock.advance(PING_EVERY / 2)
            clock.advance(PING_EVERY / 2)
            eventually(lambda: _next_ping(manager) > clock.monotonic())

    def _nothing_is_due(self) -> bool:
        now, leasers = self.clock.monotonic(), [manager._leaser for manager in self._managers]
        return all(not len(one) or (one._next_wake or 0.0) > now for one in leasers)

    def _no_pong_is_missing(self) -> bool:
        watched = [manager._heartbeater._liveness for manager in self._managers]
        return all(liveness._silent_since is None for liveness in watched)

    def _no_lease_is_about_to_end(self) -> bool:
        # Extensions are due when a lease has two seconds left, so it has four a step before.
        ends = self.emulator.inspect(_first_end_of_a_lease)
        return ends is None or ends > self.clock.monotonic() + 3.5

    def close(self) -> None:
        self.faults.clear()
        for manager in self._managers:
            manager.stop()
        for manager in self._managers:
            manager.future.exception(PATIENCE)
        self.client.close()
        self.other.close()
        self.publisher.close()
        self.emulator.stop()


def _next_ping(manager: StreamingPullManager) -> float:
    return manager._heartbeater._liveness._next_ping or 0.0


def _publish(messages: list[pubsub.PubsubMessage], engine: Engine) -> None:
    engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages))


def _first_end_of_a_lease(engine: Engine) -> float | None:
    # To the second: the table's own next_due may be too early.
    leases = engine.registry.subscription(SUBSCRIPTION).messages.leases
    queues = leases._queues.values()
    return min((due for queue in queues for due, _ in queue.items.values()), default=None)


@contextmanager
def stage(clock: Clock = SYSTEM_CLOCK, *, relay: bool = False, **settings: Any) -> Iterator[Stage]:
    """For as long as the `with` block lasts; `settings` are the subscription's."""
    one = Stage(clock, relay=relay, **settings)
    try:
        yield one
    finally:
        one.close()


class Log:
    """A callback that keeps each message, then does what it was given."""

    def __init__(self, then: Callable[[Message], Any] = Message.ack) -> None:
        self._then = then
        self._changed = threading.Condition()
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()
        self._then(message)

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]

    def wait_for(self, count: int) -> list[Message]:
        """Return what came as soon as it is so many."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.messages) >= count, PATIENCE)
            assert enough, f"only {len(self.messages)} of {count} messages came"
            return list(self.messages)


def keep(message: Message) -> None:
    """What a callback does that leaves the verdict to others."""


class Gate(Log):
    """A callback that waits in the middle until it may go on, then does what it was given."""

    def __init__(self, then: Callable[[Message], Any] = Message.ack) -> None:
        super().__init__(self._wait)
        self._and_then = then
        self._leave = threading.Semaphore(0)

    def open(self, count: int = 1) -> None:
        """Let so many callbacks go on, now or when they come."""
        self._leave.release(count)

    def _wait(self, message: Message) -> None:
        assert self._leave.acquire(timeout=3 * PATIENCE)
        self._and_then(message)


class Events(Hooks):
    """Keeps what a subscription tells."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self.received_count = 0
        self.extensions: list[tuple[int, int]] = []
        self.lost: list[tuple[bytes, LeaseLoss]] = []
        self.not_taken_ids: list[str] = []
        self.request_errors: list[RpcError] = []

    @property
    def states(self) -> list[str]:
        return [change.state.value for change in self.changes]

    def state_changed(self, subscription: str, change: StateChange) -> None:
        self.changes.append(change)

    def received(self, subscription: str, messages: Sequence[Message]) -> None:
        self.received_count += len(messages)

    def extended(self, subscription: str, messages: int, seconds: int) -> None:
        self.extensions.append((messages, seconds))

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        self.lost += [(message.data, why) for message in messages]

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        if error is not None:
            self.request_errors.append(error)

    def not_taken(self, subscription: str, failures: Mapping[str, AcknowledgeError]) -> None:
        self.not_taken_ids += failures
