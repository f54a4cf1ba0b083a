"""The broker as one plain object: topics, subscriptions, snapshots and time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from pullstream_protocol import errors
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .delivery.acked_ids import subscription_of
from .delivery.delivery_state import Consumer, Delivery
from .delivery.subscription import MAX_PER_RESPONSE, Decide, Subscription
from .log import Log
from .now import Now
from .observer import Observer
from .persisted_state import Saved
from .resources.pull_state import PullCalls
from .resources.registry import Registry
from .resources.restore import RestoreFeed, restore
from .resources.snapshot import Snapshot
from .resources.snapshots import Snapshots
from .resources.subscriptions import Subscriptions, detached, is_pull, is_push, wrong_kind
from .resources.topics import CheckSettings, Topics, Validate
from .settings import resource_settings
from .timetable import Timed, TimedTask, Timetable


class Engine:
    """Topics, subscriptions and snapshots with their messages, and the times of due work.

    Not thread-safe: one owner makes every call. A method that takes a request checks all of it
    before it changes anything, and raises an error of pullstream_protocol.errors if a check fails.

    Args:
        wall: Returns the time in seconds since the epoch. The engine itself never waits.
        monotonic: Returns the time in seconds on a clock that never goes back.
        on_due: Called with a time on the monotonic clock when work becomes due earlier than
            announced before. The owner must call `advance` at that time.
        on_push: Called with a subscription's name after any change that affects its push delivery:
            its creation, a change of its push_config, its end, and a restore. The function must
            only record the call and must not call the engine, which is in the middle of its work.
        on_topic_deleted: Called with the name of a deleted topic, before the deletion has other
            effects.
        observer: Is informed of every change.
        validate: Checks messages against the schema of their topic (see Topics).
        check_settings: Checks the schema settings of a topic (see Topics).
        max_bytes: Maximum size of kept messages in bytes. A publish that exceeds this limit is
            refused as a whole. None: no limit.
        lenient: Whether ack deadlines from 1 s are allowed. The real service requires 10 s.
        return_leases_on_disconnect: Whether the messages of a stream that is cancelled or cut go
            to other consumers at once. In the real service, its leases continue.

    Attributes:
        registry: All resources, for code that is built on the engine and has the same owner
            (pullstream_emulator/logs).
        topics: The topics, for the same code.
        pulls: The statistics and limits of Pull calls.
        min_ack_deadline: The shortest ack deadline of a subscription, in seconds.
        return_leases_on_disconnect: The argument of this name.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        on_due: Callable[[float], None] = lambda due: None,
        on_push: Callable[[str], None] = lambda name: None,
        on_topic_deleted: Callable[[str], None] = lambda name: None,
        observer: Observer | None = None,
        validate: Validate | None = None,
        check_settings: CheckSettings | None = None,
        max_bytes: int | None = None,
        lenient: bool = False,
        return_leases_on_disconnect: bool = False,
    ) -> None:
        self.return_leases_on_disconnect = return_leases_on_disconnect
        self.min_ack_deadline = 1 if lenient else resource_settings.MIN_ACK_DEADLINE
        self._monotonic = monotonic
        self._timetable = Timetable(on_due)
        self.registry = Registry(
            lambda: Now(wall(), monotonic()), observer or Observer(), self._timetable
        )
        self.topics = Topics(
            self.registry,
            validate=validate,
            check_settings=check_settings,
            max_bytes=max_bytes,
            on_deleted=on_topic_deleted,
        )
        self._subscriptions = Subscriptions(
            self.registry, min_ack_deadline=self.min_ack_deadline, on_push=on_push
        )
        self._snapshots = Snapshots(self.registry)
        self.pulls = PullCalls(self.registry)

        self.create_topic = self.topics.create
        self.get_topic = self.topics.get
        self.update_topic = self.topics.update
        self.list_topics = self.topics.list
        self.list_topic_subscriptions = self.topics.list_subscriptions
        self.list_topic_snapshots = self.topics.list_snapshots
        self.delete_topic = self.topics.delete
        self.publish = self.topics.publish
        self.forget_schema = self.topics.forget_schema

        self.create_subscription = self._subscriptions.create
        self.get_subscription = self._subscriptions.get
        self.update_subscription = self._subscriptions.update
        self.modify_push_config = self._subscriptions.modify_push_config
        self.list_subscriptions = self._subscriptions.list
        self.delete_subscription = self._subscriptions.delete
        self.detach_subscription = self._subscriptions.detach
        self.push_subscriptions = self._subscriptions.pushed

        self.create_snapshot = self._snapshots.create
        self.get_snapshot = self._snapshots.get
        self.update_snapshot = self._snapshots.update
        self.list_snapshots = self._snapshots.list
        self.delete_snapshot = self._snapshots.delete
        self.seek = self._snapshots.seek

    # ---- delivery ------------------------------------------------------------------------------

    def join(self, name: str, consumer: Consumer) -> Subscription:
        """Add `consumer` to a subscription of its kind (pull or push), and return it."""
        subscription = self.registry.subscription(name)
        config = subscription.config
        if config.detached:
            raise detached(name)
        if not (is_push(config) if consumer.is_push else is_pull(config)):
            raise wrong_kind()
        subscription.touch(self.registry.now())
        subscription.consumers.add_consumer(consumer)
        return subscription

    def leave(
        self,
        subscription: Subscription,
        consumer: Consumer,
        *,
        give_back: Iterable[str] | None = None,
    ) -> None:
        """Remove `consumer` from a subscription.

        Args:
            subscription: The subscription that it has joined.
            consumer: The consumer.
            give_back: See `Subscription.leave`.
        """
        subscription.leave(consumer, self.registry.now(), give_back=give_back)

    def take(
        self, subscription: Subscription, consumer: Consumer, limit: int = MAX_PER_RESPONSE
    ) -> list[tuple[str, Delivery]]:
        """Do the work of `lease`, and return pairs of ack ID and delivery."""
        return subscription.take(consumer, self._monotonic(), limit)

    def lease(
        self, subscription: Subscription, consumer: Consumer, limit: int = MAX_PER_RESPONSE
    ) -> Sequence[Delivery]:
        """Lease the next messages to `consumer`, and return them; see `Subscription.lease`.

        Args:
            subscription: The subscription that the consumer has joined.
            consumer: The consumer.
            limit: Maximum number of messages.
        """
        return subscription.lease(consumer, self._monotonic(), limit)

    def acknowledge(
        self, name: str, ack_ids: Sequence[str], decide: Decide | None = None
    ) -> dict[str, str]:
        """Acknowledge messages. Return the refused ack IDs with failure codes (see ack_ids).

        Args:
            name: The subscription.
            ack_ids: The ack IDs of the leases.
            decide: See `Subscription.acknowledge`.
        """
        subscription = self.registry.subscription(name)
        now = self.registry.now()
        subscription.touch(now)
        return subscription.acknowledge(_some(ack_ids), now, decide)

    def modify_ack_deadline(
        self,
        name: str,
        ack_ids: Sequence[str],
        seconds: int,
        decide: Decide | None = None,
        *,
        unseen: bool = False,
    ) -> dict[str, str]:
        """Extend leases or end them. Return the refused ack IDs with failure codes (see ack_ids).

        Args:
            name: The subscription.
            ack_ids: The ack IDs of the leases.
            seconds: The new ack deadline, from now; 0 ends the leases.
            decide: See `Subscription.acknowledge`.
            unseen: See `Subscription.modify_ack_deadline`.
        """
        subscription = self.registry.subscription(name)
        resource_settings.check_ack_deadline(seconds, minimum=0)
        now = self.registry.now()
        subscription.touch(now)
        refused = subscription.modify_ack_deadline(
            _some(ack_ids), seconds, now, decide, unseen=unseen
        )
        subscription.forward_dead_letters(self._publish_dead_letters)
        return refused

    def _publish_dead_letters(self, topic: str, letters: Sequence[pubsub.PubsubMessage]) -> None:
        self.topics.append(self.registry.topics[topic], letters, forced=True)

    # ---- for servers and tests -----------------------------------------------------------------

    def expire(self, name: str, ack_ids: Iterable[str] | None = None) -> int:
        """End leases as if their ack deadline had passed. Return the number of ended leases.

        Args:
            name: The subscription.
            ack_ids: The ack IDs of the leases; IDs without a lease are ignored. None: all leases.
        """
        subscription = self.registry.subscription(name)
        ended = subscription.expire(ack_ids, self.registry.now())
        subscription.forward_dead_letters(self._publish_dead_letters)
        return ended

    def backlog(self, name: str) -> int:
        """Return the number of messages of a subscription that are not finally acknowledged."""
        return len(self.registry.subscription(name).messages)

    def waiting_pulls(self, name: str) -> int:
        """Return the number of Pull calls that wait for messages of a subscription now."""
        return self.registry.subscription(name).consumers.waiting_pulls

    @property
    def kept_bytes(self) -> int:
        """Bytes of all kept messages, each counted once."""
        return self.registry.usage.bytes

    def disconnect(self, reason: errors.RpcError) -> None:
        """End every open stream and waiting Pull call with the error `reason`."""
        for subscription in self.registry.subscriptions.values():
            subscription.consumers.close_all(reason)

    def reset(self) -> None:
        """Delete everything. Open streams and waiting Pull calls end as after a deletion."""
        for name in list(self.registry.snapshots):
            self.delete_snapshot(name)
        for name in list(self.registry.subscriptions):
            self.delete_subscription(name)
        for name in list(self.registry.topics):
            self.delete_topic(name)
        self._timetable.clear()
        self._timetable.watch(self.registry.work, self.registry.now())

    def restore(self, saved: Saved, feeds: RestoreFeed | None = None) -> None:
        """Restore the state that an Observer recorded. The engine must be empty.

        Every topic, subscription and snapshot is as before. The unfinished messages of a
        subscription are ready for delivery and keep their attempts. There are no leases, old ack
        IDs are stale, and sequence numbers continue. The observer is informed only of messages that
        the restore discards.

        Args:
            saved: The recorded state.
            feeds: Called with each saved feed, after its topic is restored. None: no feeds.
        """
        restore(saved, self.registry, self.topics, self._subscriptions, feeds)

    def restore_acked(self, notes: Mapping[str, bytes]) -> None:
        """Restore acknowledged IDs from the last notes of Resource.ACKED, by name.

        Call it after `restore`.
        """
        now = self.registry.now()
        by_subscription: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
        for name, value in list(notes.items()):
            by_subscription[subscription_of(name)].append((name, value))
        for name, own in by_subscription.items():
            subscription = self.registry.subscriptions.get(name)
            if subscription is not None:
                subscription.acked_ids.restore(own, now)
                self._timetable.watch(subscription, now)

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return the earliest monotonic time at which `advance` may have work."""
        return self._timetable.next_due()

    def advance(self) -> None:
        """Do the due work: end leases and waits, drop old messages and expired resources.

        If a backlog has more due work than fits in a slice, `next_due` is the present time
        afterwards. Call `advance` again, after other calls.
        """
        now = self.registry.now()
        unfinished: list[Timed] = []
        for item in self._timetable.pop_due(now.monotonic):
            if isinstance(item, Subscription):
                if item.is_expired(now):
                    self.delete_subscription(item.name)
                    continue
                item.advance(now)
                item.forward_dead_letters(self._publish_dead_letters)
            elif isinstance(item, Snapshot):
                if item.is_expired(now):
                    self.delete_snapshot(item.config.name)
                    continue
            elif isinstance(item, Log):
                item.trim(now)
            elif isinstance(item, TimedTask):
                item.advance(now)
            unfinished.append(item)
        for item in unfinished:
            self._timetable.watch(item, now)


def _some(ack_ids: Sequence[str]) -> Sequence[str]:
    if not ack_ids:
        raise errors.InvalidArgument("You have not specified an ack ID in the request.")
    return ack_ids
