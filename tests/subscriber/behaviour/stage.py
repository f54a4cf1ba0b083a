"""A broker with faults, clients of it, and subscriptions on a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pullstream import (
    AcknowledgeError,
    FlowControl,
    Hooks,
    Message,
    StateChange,
    SubscriberClient,
    SubscriptionState,
    ThreadScheduler,
    TopicAdminClient,
)
from pullstream.client import _SubscriptionCalls
from pullstream.hooks import LeaseLoss, RequestKind
from pullstream.streaming.heartbeater import PING_EVERY
from pullstream.streaming.manager import StreamingPullManager
from pullstream.streaming.settings import Batching, ReleaseAfter, StreamingSettings
from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock, ManualClock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"

# The number of messages that a publish request may hold.
MAX_PUBLISHED = 1_000

# The seconds of each clock step. Lease extensions are due after multiples of it (48, then 8).
STEP = 2


class Stage:
    """The broker, clients and clock of one test.

    Args:
        clock: The clock of the broker. `manage` may share it or use another.
        relay: Whether clients connect through a relay that can become a black hole.
        return_leases_on_disconnect: The argument of `Emulator`.
        topics: Names of more topics to create.
        settings: Settings of the subscription.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        relay: bool = False,
        return_leases_on_disconnect: bool = False,
        topics: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.clock = clock
        self._managers: list[StreamingPullManager] = []
        self.emulator = Emulator(
            clock=clock, relay=relay, return_leases_on_disconnect=return_leases_on_disconnect
        ).start()
        self.faults = self.emulator.faults
        self.client = SubscriberClient(endpoint=self.emulator.endpoint)
        # Another client, which stays open when the first one is closed.
        self.other = SubscriberClient(endpoint=self.emulator.endpoint)
        self.publisher = TopicAdminClient(endpoint=self.emulator.endpoint)
        for topic in (TOPIC, *topics):
            self.publisher.create_topic(name=topic)
        self.other.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC, **settings})

    def publish(self, *data: bytes, key: str = "") -> list[str]:
        """Put messages into the broker at once, past all faults, and return their ids."""
        messages = [pubsub.PubsubMessage(data=one, ordering_key=key) for one in data]
        ids: list[str] = []
        for start in range(0, len(messages), MAX_PUBLISHED):
            some = messages[start : start + MAX_PUBLISHED]
            ids += self.emulator.inspect(partial(_publish, some))
        return ids

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
        callback: Callable[[Any], Any],
        *,
        clock: Clock | None = None,
        workers: int = 10,
        release_after: ReleaseAfter = "callback",
        give_up_after: float | None = None,
        hooks: Sequence[Hooks] = (),
        batching: Batching | None = None,
        **limits: Any,
    ) -> StreamingPullManager:
        """Subscribe as `client.subscribe` does, on the given clock or else the broker's."""
        manager = StreamingPullManager(
            _SubscriptionCalls(self.client._rpcs, self.client._connections, SUBSCRIPTION),
            SUBSCRIPTION,
            callback,
            StreamingSettings(
                FlowControl(**limits),
                release_after=release_after,
                give_up_after=give_up_after,
                hooks=hooks,
                batching=batching,
            ),
            scheduler=ThreadScheduler(max_workers=workers),
            clock=clock or self.clock,
        )
        manager.start()
        self._managers.append(manager)
        return manager

    def advance(self, seconds: int, *, extending: bool = True) -> None:
        """Advance the shared clock of the broker and of managed subscriptions in steps.

        After each step, wait for the work that is due: answers to heartbeats, or the server would
        seem dead, and lease extensions, or they would be late. With `extending`, no lease may end
        meanwhile. Otherwise leases end, but none whose extension has been sent.
        """
        assert isinstance(self.clock, PacedClock)
        for _ in range(0, seconds, STEP):
            if not extending:
                eventually(lambda: all(map(is_idle, self._managers)))
            self.clock.advance(STEP)
            eventually(partial(self._nothing_is_due, self.clock))
            eventually(self._no_pong_is_missing)
            if extending:
                eventually(self._no_lease_is_about_to_end)

    def pass_time(
        self, clock: PacedClock, until: Callable[[], bool], *, longest_step: float = 10.0
    ) -> None:
        """Advance the clock of managed subscriptions, from deadline to deadline, until `until`.

        The clock moves only while the subscriptions wait for nothing else. So a slow answer takes
        no time on it.
        """

        def passes() -> bool:
            if until():
                return True
            waiting = [waiting_threads(manager) for manager in self._managers]
            threads = {thread for one in waiting for thread in one or ()}
            if None not in waiting and clock.is_awaited_by(threads):
                clock.advance_towards(threads, longest_step)
            return False

        eventually(passes)

    def beat(self, manager: StreamingPullManager, clock: ManualClock, times: int) -> None:
        """Wait for this many heartbeats of one subscription, on its own clock."""
        for _ in range(times):
            clock.advance(PING_EVERY / 2)
            clock.advance(PING_EVERY / 2)
            eventually(lambda: _next_ping(manager) > clock.monotonic())

    def _nothing_is_due(self, clock: PacedClock) -> bool:
        """Return whether leasers and heartbeaters have done their work, and wait."""
        threads = [manager._in_flight.leaser._thread._thread for manager in self._managers]
        for manager in self._managers:
            threads += [stream._heartbeater._thread._thread for stream in manager._streams]
        return clock.is_awaited_by([one.ident or 0 for one in threads if one.is_alive()])

    def _no_pong_is_missing(self) -> bool:
        """Return whether each ping was answered. A response with messages answers it, too.

        Such a response does not wake the heartbeater, which then still counts the silence.
        """
        heartbeaters = [
            stream._heartbeater for manager in self._managers for stream in manager._streams
        ]
        return all(one._heard or one._liveness._silent_since is None for one in heartbeaters)

    def _no_lease_is_about_to_end(self) -> bool:
        # An extension is due when a lease has two seconds left, so one step earlier it has four.
        ends = self.emulator.inspect(_first_end_of_a_lease)
        return ends is None or ends > self.clock.monotonic() + 3.5

    def close(self) -> None:
        self.faults.clear()
        for manager in self._managers:
            manager.stop()
        for manager in self._managers:
            manager.future.exception(TIMEOUT)
        self.client.close()
        self.other.close()
        self.publisher.close()
        self.emulator.stop()


def is_idle(manager: StreamingPullManager) -> bool:
    """Return whether the dispatcher has nothing to send, no open call, and no pending message."""
    in_flight = manager._in_flight
    dispatcher = in_flight.dispatcher
    is_empty = not dispatcher._acks and dispatcher._inbox._queue.empty()
    # A success without a waiting future is not read at once.
    is_sent = dispatcher._outbox.is_empty and len(dispatcher._in_flight) == len(dispatcher._answers)
    return is_empty and is_sent and dispatcher._asleep and not len(in_flight._gate)


def waiting_threads(manager: StreamingPullManager) -> set[int] | None:
    """Return the threads that wait for the clock; None if the subscription waits for an answer.

    A stream that was answered waits for the clock: its heartbeats find its end.
    """
    in_flight = manager._in_flight
    dispatcher = in_flight.dispatcher
    threads = [dispatcher._thread.ident, in_flight.leaser._thread._thread.ident]
    for stream in manager._streams:
        threads.append(stream._heartbeater._thread._thread.ident)
        if stream._stream._call is None:
            # It is in the pause before the next attempt.
            threads.append(stream._consumer._turn.reader)
        elif stream.state is not SubscriptionState.STREAMING or stream._stream._reset_cause:
            # It waits for its first answer, or for the end of the call that it has cancelled.
            return None
    # A success without a waiting future is not read at once.
    has_calls = len(dispatcher._in_flight) != len(dispatcher._answers)
    return None if has_calls or not dispatcher._asleep else {one for one in threads if one}


def _next_ping(manager: StreamingPullManager) -> float:
    pings = (stream._heartbeater._liveness._next_ping for stream in manager._streams)
    return min(ping or 0.0 for ping in pings)


def _publish(messages: list[pubsub.PubsubMessage], engine: Engine) -> Sequence[str]:
    return engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages))


def _first_end_of_a_lease(engine: Engine) -> float | None:
    # Exact to the second, because the table's own next_due may be too early.
    leases = engine.registry.subscription(SUBSCRIPTION).leases
    queues = leases._queues.values()
    return min((due for queue in queues for due, _ in queue.items.values()), default=None)


@contextmanager
def stage(clock: Clock = SYSTEM_CLOCK, **settings: Any) -> Iterator[Stage]:
    """Yield a stage for the `with` block. See Stage for the arguments."""
    one = Stage(clock, **settings)
    try:
        yield one
    finally:
        one.close()


class Log:
    """A callback that keeps each message and then calls the given function."""

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
        """Return the messages as soon as there are this many."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.messages) >= count, TIMEOUT)
            assert enough, f"only {len(self.messages)} of {count} messages came"
            return list(self.messages)


def keep(message: Message) -> None:
    """Settle nothing, so that the test can settle the message."""


class Gate(Log):
    """A callback that waits until the test opens it and then calls the given function."""

    def __init__(self, then: Callable[[Message], Any] = Message.ack) -> None:
        super().__init__(self._wait)
        self._and_then = then
        self._leave = threading.Semaphore(0)

    def open(self, count: int = 1) -> None:
        """Let this many callbacks continue, now or when they come."""
        self._leave.release(count)

    def _wait(self, message: Message) -> None:
        assert self._leave.acquire(timeout=3 * TIMEOUT)
        self._and_then(message)


class Events(Hooks):
    """Hooks that keep their events."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self.received_count = 0
        self.extensions: list[tuple[int, int]] = []
        self.lost: list[tuple[bytes, LeaseLoss]] = []
        self.refused_ids: list[str] = []
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

    def refused(self, subscription: str, failures: Mapping[str, AcknowledgeError]) -> None:
        self.refused_ids += failures
