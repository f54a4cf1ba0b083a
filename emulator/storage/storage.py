"""The engine's state in a data directory: written as it changes, and brought back at the start."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from emulator.engine.observer import Observer, Resource, Return
from protocol.errors import InvalidArgument, Unavailable
from protocol.messages import pubsub_pb2 as pubsub

from .catalogue import Keepers, SubscriptionEntry, TopicEntry
from .database import Database
from .durability import Durability, durability_of, retains
from .ledger import Change, Ledger
from .loading import Contents
from .writer import MAX_UNWRITTEN, Group, Writer

if TYPE_CHECKING:
    from emulator.engine import Delivery, Engine, Record
    from emulator.engine.saved import RestoreFeed

_log = logging.getLogger("pullstream.emulator")

# Requests that need nothing of the disk, by the beginnings of their names.
_READING = (
    "Commands", "Get", "List", "ModifyAckDeadline", "Poll", "Pull", "Read", "Test", "Unregister",
    "Validate", "Watch",
)  # fmt: skip

# What a record costs in memory beside its bytes.
_RECORD_BYTES = 200


class Storage(Observer):
    """Keeps what an engine tells of in `directory`; `default` is the class of unlabelled topics.

    Every change is noted in the order of the engine's and written by a thread. So what is on disk
    is always a state that the engine was in, and `barrier` says when it is the present one.

    Raises:
        StorageError: the directory cannot be used: in use, damaged, another version's.
    """

    def __init__(self, directory: str | Path, default: Durability = Durability.DISK) -> None:
        self.default = default
        self._database = Database(Path(directory))
        try:
            self._contents: Contents | None = Contents(self._database)
            self._topics: dict[str, TopicEntry] = {}
            self._subscriptions: dict[str, SubscriptionEntry] = {}
            self._keepers = Keepers(self._topics, self._subscriptions)
            self._take_up(self._contents)
        except BaseException:
            self._database.close()
            raise
        ledger = Ledger(
            self._database, self._contents.kept_topics, self._contents.kept_subscriptions
        )
        self._writer = Writer(ledger.write, str(self._database.path))
        # Written before the present call is answered.
        self._owed: Group | None = None
        # What the newest change that had to be waited for is written with.
        self._newest: Group | None = None

    def _take_up(self, contents: Contents) -> None:
        entries = {}
        for key, stored in contents.topics.items():
            entries[key] = entry = TopicEntry(
                key,
                self._durability(pubsub.Topic.FromString(stored.config)),
                head=stored.head,
                kept=contents.has_messages(key),
                reserved=stored.reserved,
            )
            if stored.config:
                self._topics[stored.name] = entry
        for key, subscription in contents.subscriptions.items():
            self._subscriptions[subscription.name] = SubscriptionEntry(
                key, entries[subscription.topic]
            )
        for resource in contents.resources:
            if resource.topic:
                self._keepers.enter(resource.kind, resource.name, entries[resource.topic])
        self._topic_keys = itertools.count(max(contents.topics, default=0) + 1)
        self._subscription_keys = itertools.count(max(contents.subscriptions, default=0) + 1)

    def restore(self, engine: Engine, feeds: RestoreFeed | None = None) -> None:
        """Give an empty engine what was kept; once, before anything else happens to it.

        feeds: takes each of them, see Engine.restore.

        Raises:
            StorageError: something of it is damaged.
        """
        if self._contents is None:
            return
        try:
            engine.restore(self._contents.saved(), feeds)
        except BaseException:
            self.close()
            raise
        self._contents = None

    def resources(self, kind: Resource) -> dict[str, bytes]:
        """What was kept of a kind that the engine knows nothing of, by name; before `restore`."""
        contents = self._contents
        found = contents.resources if contents is not None else []
        return {resource.name: resource.value for resource in found if resource.kind is kind}

    def notes(self, kind: Resource) -> dict[str, bytes]:
        """The last notes of a kind's resources, by name; before `restore`."""
        contents = self._contents
        return {} if contents is None else contents.notes[kind]

    def close(self) -> None:
        """Write what is left and let the directory go."""
        for entry in self._topics.values():
            if entry.reserved != entry.head:
                self._writer.add(_reservation(entry.key, entry.head))
        self._writer.close()
        self._database.close()

    # ---- calls ---------------------------------------------------------------------------------

    def check(self, request: Message) -> None:
        """A call is about to be carried out: refuse it if storage could not keep what it changes.

        Raises:
            Unavailable: the disk cannot be written at present.
            InvalidArgument: a topic is given a class that there is not.
        """
        # What streams, timers and pushes have brought since the last call is not for this one.
        self._owed = None
        if self._writer.failure and not request.DESCRIPTOR.name.startswith(_READING):
            raise Unavailable(self._writer.failure)
        if isinstance(request, pubsub.Topic):
            durability_of(request, self.default)
        elif isinstance(request, pubsub.UpdateTopicRequest):
            durability_of(request.topic, self.default)

    def barrier(self, request: Message) -> Awaitable[None] | None:
        """What to await before `request` is answered, which was just carried out; often nothing.

        Raises (when awaited):
            Unavailable: the disk cannot be written. The change is not kept yet.
        """
        owed, self._owed = self._owed, None
        if owed is not None:
            return asyncio.wrap_future(owed.written)
        if isinstance(request, pubsub.AcknowledgeRequest):
            entry = self._subscriptions.get(request.subscription)
            if entry is not None and entry.topic.durability is Durability.FSYNC:
                # A second try changes nothing, but what the first did may not be on disk yet.
                return self.newest_barrier()
        return None

    def newest_barrier(self) -> Awaitable[None] | None:
        """As `barrier`, for what any call before has brought."""
        newest = self._newest
        if newest is None or (newest.written.done() and not self._writer.failure):
            return None
        return asyncio.wrap_future(newest.written)

    def flush(self) -> None:
        """Wait until every change so far is on disk; raises as a barrier."""
        self._writer.flush()

    # ---- resources -----------------------------------------------------------------------------

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        if kind is Resource.TOPIC:
            change = self._saved_topic(name, value)
        elif kind is Resource.SUBSCRIPTION:
            change = self._saved_subscription(name, value)
        else:
            topic = self._keepers.topic_of(kind, name, value)

            def change(ledger: Ledger) -> None:
                ledger.save_resource(kind, name, value, topic)

        group = self._add(change, urgent=True)
        if kind is Resource.TOPIC:
            self._topics[name].reserve(group)

    def _saved_topic(self, name: str, value: bytes) -> Change:
        config = pubsub.Topic.FromString(value)
        entry = self._topics.get(name)
        if entry is None:
            entry = self._topics[name] = TopicEntry(next(self._topic_keys), Durability.MEMORY)
        entry.durability = self._durability(config)
        key, reserved, keeps = entry.key, entry.next_reserved, retains(config)
        return lambda ledger: ledger.save_topic(key, name, value, keeps, reserved)

    def _saved_subscription(self, name: str, value: bytes) -> Change:
        config = pubsub.Subscription.FromString(value)
        entry = self._subscriptions.get(name)
        if entry is None:
            entry = SubscriptionEntry(next(self._subscription_keys), self._topics[config.topic])
            self._subscriptions[name] = entry
        key, topic, since = entry.key, entry.topic.key, entry.topic.head
        keeps = retains(config)
        return lambda ledger: ledger.save_subscription(key, name, topic, value, keeps, since)

    def noted(self, kind: Resource, name: str, value: bytes) -> None:
        self._add(lambda ledger: ledger.note(kind, name, value))

    def removed(self, kind: Resource, name: str) -> None:
        if kind is Resource.TOPIC:
            key = self._topics.pop(name).key
            self._add(lambda ledger: ledger.remove_topic(key), urgent=True)
        elif kind is Resource.SUBSCRIPTION:
            key = self._subscriptions.pop(name).key
            self._add(lambda ledger: ledger.remove_subscription(key), urgent=True)
        else:
            topic = self._keepers.remove(kind, name)
            self._add(lambda ledger: ledger.remove_resource(kind, name, topic), urgent=True)

    def _durability(self, config: pubsub.Topic) -> Durability:
        try:
            return durability_of(config, self.default)
        except InvalidArgument as error:
            # It came past `check`. Better too careful than not enough.
            _log.warning("%s: %s", config.name, error.message)
            return Durability.FSYNC

    # ---- messages ------------------------------------------------------------------------------

    def published(self, topic: str, records: Sequence[Record]) -> None:
        entry = self._topics[topic]
        self._move_head(entry, records[-1].seq)
        if entry.durability is not Durability.MEMORY:
            entry.kept = True
            key = entry.key
            size = sum([record.size for record in records]) + _RECORD_BYTES * len(records)
            self._add(
                lambda ledger: ledger.publish(key, records),
                size=size,
                urgent=entry.durability is Durability.FSYNC,
            )

    def skipped(self, topic: str, first: int, last: int) -> None:
        self._move_head(self._topics[topic], last)

    def _move_head(self, entry: TopicEntry, head: int) -> None:
        entry.head = head
        if entry.needs_more:
            reservation = _reservation(entry.key, entry.next_reserved)
            entry.reserve(self._writer.add(reservation, urgent=True))
        if not entry.is_safe:
            # What the publish itself owes, if anything, is written after that.
            self._owed = entry.reserving

    def finished(self, subscription: str, seqs: Sequence[int]) -> None:
        entry = self._subscriptions.get(subscription)
        if entry is not None and entry.topic.kept:
            key, urgent = entry.key, entry.topic.durability is Durability.FSYNC
            self._add(lambda ledger: ledger.finish(key, seqs), urgent=urgent)

    def unfinished(self, subscription: str, seqs: Sequence[int]) -> None:
        entry = self._subscriptions[subscription]
        if entry.topic.kept:
            key, urgent = entry.key, entry.topic.durability is Durability.FSYNC
            self._add(lambda ledger: ledger.reopen(key, seqs), urgent=urgent)

    def returned(self, subscription: str, deliveries: Sequence[Delivery], why: Return) -> None:
        entry = self._subscriptions[subscription]
        if entry.topic.kept and why is not Return.GIVEN_BACK:
            key = entry.key
            attempts = {delivery.record.seq: delivery.attempts for delivery in deliveries}
            self._add(lambda ledger: ledger.fail(key, attempts))

    def discarded(self, topic: str, up_to: int) -> None:
        entry = self._topics.get(topic)
        if entry is not None and entry.kept:
            key = entry.key
            self._add(lambda ledger: ledger.discard(key, up_to))

    # ---- notes ---------------------------------------------------------------------------------

    def _add(self, change: Change, *, size: int = 0, urgent: bool = False) -> Group:
        """Note a change. Who brought an urgent one, or one too many, must wait for it."""
        group = self._writer.add(change, size=size, urgent=urgent)
        if urgent or group.size > MAX_UNWRITTEN:
            self._owed = self._newest = group
        return group


def _reservation(key: int, reserved: int) -> Change:
    return lambda ledger: ledger.reserve(key, reserved)
