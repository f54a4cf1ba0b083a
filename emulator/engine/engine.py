"""The whole broker as one plain object: topics, subscriptions, snapshots, and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from protocol import errors

from . import settings
from .consumer import Consumer
from .dead_letter import dead_letter
from .log import Log
from .moment import Moment
from .observer import Observer
from .pulls import Pulls
from .record import Delivery
from .registry import Registry
from .restoring import restore
from .saved import RestoreFeed, Saved
from .snapshot import Snapshot
from .snapshots import Snapshots
from .subscription import MAX_PER_RESPONSE, Subscription
from .subscriptions import Subscriptions, detached, is_pull, is_push, wrong_kind
from .timetable import TimedTask, Timetable
from .topics import CheckSettings, Topics, Validate


class Engine:
    """Topics, subscriptions and snapshots, what is in them, and when something is due.

    Not thread-safe: one owner makes every call. Every method that takes a request checks it whole
    before it changes anything, and raises an error of protocol.errors otherwise.

    Args:
        wall, monotonic: read the clock, so that the engine itself never waits.
        on_due: called with a moment on the monotonic clock when something becomes due earlier than
            all that was announced before; the owner calls `advance` then.
        observer: told of every change.
        validate, check_settings: what schemas ask of messages, and of topics (see Topics).
        max_bytes: most bytes of kept messages. A publish beyond it is refused as a whole.
        lenient: allow ack deadlines from 1 s, where the real service wants 10 s.

    registry, topics: for what is built on the engine and has the same owner (emulator/feeds).
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        on_due: Callable[[float], None] = lambda due: None,
        observer: Observer | None = None,
        validate: Validate | None = None,
        check_settings: CheckSettings | None = None,
        max_bytes: int | None = None,
        lenient: bool = False,
    ) -> None:
        self.min_ack_deadline = 1 if lenient else settings.MIN_ACK_DEADLINE
        self._monotonic = monotonic
        self._timetable = Timetable(on_due)
        self.registry = Registry(lambda: Moment(wall(), monotonic()), observer, self._timetable)
        self.topics = Topics(
            self.registry, validate=validate, check_settings=check_settings, max_bytes=max_bytes
        )
        self._subscriptions = Subscriptions(self.registry, min_ack_deadline=self.min_ack_deadline)
        self._snapshots = Snapshots(self.registry)
        self.pulls = Pulls(self.registry)

        self.create_topic = self.topics.create
        self.get_topic = self.topics.get
        self.update_topic = self.topics.update
        self.list_topics = self.topics.list
        self.list_topic_subscriptions = self.topics.list_subscriptions
        self.list_topic_snapshots = self.topics.list_snapshots
        self.delete_topic = self.topics.delete
        self.publish = self.topics.publish

        self.create_subscription = self._subscriptions.create
        self.get_subscription = self._subscriptions.get
        self.update_subscription = self._subscriptions.update
        self.modify_push_config = self._subscriptions.modify_push_config
        self.list_subscriptions = self._subscriptions.list
        self.delete_subscription = self._subscriptions.delete
        self.detach_subscription = self._subscriptions.detach

        self.create_snapshot = self._snapshots.create
        self.get_snapshot = self._snapshots.get
        self.update_snapshot = self._snapshots.update
        self.list_snapshots = self._snapshots.list
        self.delete_snapshot = self._snapshots.delete
        self.seek = self._snapshots.seek

    # ---- delivery ------------------------------------------------------------------------------

    def join(self, name: str, consumer: Consumer) -> Subscription:
        """Let `consumer` take from a subscription of its kind."""
        subscription = self.registry.subscription(name)
        config = subscription.config
        if config.detached:
            raise detached(name)
        if not (is_push(config) if consumer.is_push else is_pull(config)):
            raise wrong_kind()
        subscription.touch(self.registry.now())
        subscription.consumers.join(consumer)
        return subscription

    def leave(
        self, subscription: Subscription, consumer: Consumer, *, give_back: bool = True
    ) -> None:
        """Forget `consumer`; what it holds is ready for others at once, no attempt counted.

        With `give_back=False` (an answered Pull) its leases go on until their deadlines.
        """
        subscription.leave(consumer, self.registry.now(), give_back=give_back)
        if subscription.due_is_nearer:
            self._watch(subscription)

    def take(
        self, subscription: Subscription, consumer: Consumer, limit: int = MAX_PER_RESPONSE
    ) -> list[tuple[str, Delivery]]:
        """The next messages for `consumer`, leased to it: pairs of ack id and delivery."""
        taken = subscription.take(consumer, self._monotonic(), limit)
        if taken:
            self._watch(subscription)
        return taken

    def refusals(self, name: str, ack_ids: Sequence[str], *, acknowledging: bool) -> dict[str, str]:
        """Those of some ack ids that would be refused now, and why."""
        subscription = self.registry.subscription(name)
        return subscription.refusals(ack_ids, acknowledging=acknowledging)

    def acknowledge(self, name: str, ack_ids: Sequence[str]) -> dict[str, str]:
        """Acknowledge messages; returns the ids that were refused, and why (see ack_ids)."""
        subscription = self.registry.subscription(name)
        now = self.registry.now()
        subscription.touch(now)
        refused = subscription.acknowledge(_some(ack_ids), now.monotonic)
        if subscription.due_is_nearer:
            self._watch(subscription)
        return refused

    def modify_ack_deadline(
        self, name: str, ack_ids: Sequence[str], seconds: int
    ) -> dict[str, str]:
        """Extend leases, or end them (0 seconds); returns the ids that were refused, and why."""
        subscription = self.registry.subscription(name)
        settings.check_ack_deadline(seconds, minimum=0)
        now = self.registry.now()
        subscription.touch(now)
        refused = subscription.modify_ack_deadline(_some(ack_ids), seconds, now.monotonic)
        self._bury_dead(subscription)
        self._watch(subscription)
        return refused

    def _bury_dead(self, subscription: Subscription) -> None:
        """Publish what failed too often to the dead-letter topic, and be done with it."""
        dead, subscription.dead = subscription.dead, []
        if dead:
            topic = self.registry.topics[subscription.terms.dead_letter_topic]
            letters = [dead_letter(d, subscription.name) for d in dead]
            self.topics.append(topic, letters, forced=True)
            subscription.messages.finish(dead)

    # ---- for the shells around it --------------------------------------------------------------

    @property
    def on_push(self) -> Callable[[str], None]:
        """Called with a subscription's name after anything that changes how it is pushed.

        That is its creation, a change of its push_config, its end, or a restoration. It must only
        make a note of it: the engine is in the middle of its work.
        """
        return self._subscriptions.on_push

    @on_push.setter
    def on_push(self, on_push: Callable[[str], None]) -> None:
        self._subscriptions.on_push = on_push

    def push_subscriptions(self) -> Sequence[str]:
        """Names of the subscriptions that are pushed to an endpoint."""
        return self._subscriptions.pushed()

    def expire(self, name: str, ack_ids: Iterable[str] | None = None) -> int:
        """End leases as if their deadline had come, all of them or those of some ack ids.

        Returns how many; ids without a lease are passed over.
        """
        subscription = self.registry.subscription(name)
        ended = subscription.expire(ack_ids, self._monotonic())
        self._bury_dead(subscription)
        self._watch(subscription)
        return ended

    def forget_schema(self, name: str) -> None:
        """A schema was deleted: the topics that use it say so from now on."""
        self.topics.forget_schema(name)

    def backlog(self, name: str) -> int:
        """Messages of a subscription that are not acknowledged for good."""
        return len(self.registry.subscription(name).messages)

    def waiting_pulls(self, name: str) -> int:
        """Pull calls that wait for messages of a subscription now."""
        return self.registry.subscription(name).consumers.waiting_pulls

    @property
    def kept_bytes(self) -> int:
        """Bytes of all messages that are kept, each counted once."""
        return self.registry.usage.bytes

    def disconnect(self, reason: errors.RpcError) -> None:
        """Tell every open stream and waiting pull to end with `reason`."""
        for subscription in self.registry.subscriptions.values():
            subscription.consumers.close(reason)

    def reset(self) -> None:
        """Drop everything. Open streams and waiting pulls end as if it had been deleted."""
        for name in list(self.registry.snapshots):
            self.delete_snapshot(name)
        for name in list(self.registry.subscriptions):
            self.delete_subscription(name)
        for name in list(self.registry.topics):
            self.delete_topic(name)
        self._timetable.clear()

    def restore(self, saved: Saved, feeds: RestoreFeed | None = None) -> None:
        """Take up the state that an Observer was told of; the engine must be empty.

        Every topic, subscription and snapshot is as it was. What a subscription had not finished is
        ready for delivery with its attempts counted; leases are gone, old ack ids are stale, and
        numbering goes on where it was. The observer is told of nothing but what is discarded by it.

        feeds: takes the saved feeds, each after its topic; without it there are none.
        """
        restore(saved, self.registry, self.topics, self._subscriptions, feeds)

    # ---- time ----------------------------------------------------------------------------------

    @property
    def on_due(self) -> Callable[[float], None]:
        """See the class."""
        return self._timetable.on_due

    @on_due.setter
    def on_due(self, on_due: Callable[[float], None]) -> None:
        self._timetable.on_due = on_due

    def next_due(self) -> float | None:
        """The earliest moment at which `advance` may have something to do."""
        return self._timetable.next_due()

    def advance(self) -> None:
        """Do what is due by now: end leases and waits, drop what is too old or has expired."""
        now = self.registry.now()
        for item in self._timetable.due(now):
            if isinstance(item, Subscription):
                if item.is_expired(now):
                    self.delete_subscription(item.name)
                    continue
                item.advance(now)
                self._bury_dead(item)
            elif isinstance(item, Snapshot):
                if item.is_expired(now):
                    self.delete_snapshot(item.config.name)
                    continue
            elif isinstance(item, Log):
                item.trim(now)
            elif isinstance(item, TimedTask):
                item.advance(now)
            self._timetable.watch(item, now)

    def _watch(self, subscription: Subscription) -> None:
        self._timetable.watch(subscription, self.registry.now())


def _some(ack_ids: Sequence[str]) -> Sequence[str]:
    if not ack_ids:
        raise errors.InvalidArgument("You have not specified an ack ID in the request.")
    return ack_ids
