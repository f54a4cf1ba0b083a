"""The engine's state in a data directory: written after each change, restored at the start."""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections.abc import Awaitable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, Message

from pullstream_emulator.engine.delivery.acked_ids import subscription_of
from pullstream_emulator.engine.observer import LeaseEnd, ObservedDelivery, Observer, Resource
from pullstream_emulator.engine.record import last_seq_of, size_of
from pullstream_emulator.engine.settings.durability import (
    MAX_LOSS,
    Durability,
    durability_of,
    retains,
)
from pullstream_protocol.errors import InvalidArgument, RpcError, Unavailable
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .database import Database
from .errors import StorageError
from .key_map import Retainers, SubscriptionEntry, TopicEntry
from .loading import Contents
from .sql_writer import Change, SqlWriter
from .writer import WriteBatch, WriteError, Writer

if TYPE_CHECKING:
    from pullstream_emulator.engine import Engine, Record
    from pullstream_emulator.engine.resources.restore import RestoreFeed

_log = logging.getLogger("pullstream.emulator")

# Memory of a record in addition to its encoded bytes.
_RECORD_BYTES = 200


class Storage(Observer):
    """Writes every change of an engine to a directory.

    Changes are queued in the engine's order and written by a thread. So the disk always has a state
    that the engine has had, and `barrier` tells when the disk has the present state.

    Args:
        directory: The directory of the files. It is created if it does not exist.
        default: The class of topics without the label.
        recover: Whether to continue with the remaining data if the directory is damaged.
        max_loss: At class disk, a crash loses at most the changes of this many seconds. Publishers
            wait for the disk if this limit cannot be met otherwise.

    Attributes:
        default: The argument of this name.
        directory: The directory of the files.

    Raises:
        StorageError: The directory is in use, damaged, or from another version.
    """

    def __init__(
        self,
        directory: str | Path,
        default: Durability = Durability.DISK,
        *,
        recover: bool = False,
        max_loss: float = MAX_LOSS,
    ) -> None:
        self.default = default
        self.directory = Path(directory)
        self._database = Database(self.directory, recover=recover)
        try:
            self._contents: Contents | None = Contents(self._database)
            self._topics: dict[str, TopicEntry] = {}
            self._subscriptions: dict[str, SubscriptionEntry] = {}
            self._keepers = Retainers(self._topics, self._subscriptions)
            self._take_up(self._contents)
        except BaseException:
            self._database.close()
            raise
        ledger = SqlWriter(
            self._database, self._contents.kept_topics, self._contents.kept_subscriptions
        )
        self._writer = Writer(
            ledger.write,
            self._database.confirm,
            self._database.sync,
            str(self._database.path),
            max_loss,
        )
        # Must be written before the reply to the present call.
        self._owed: WriteBatch | None = None
        # The batch of the newest change whose call must wait for the disk.
        self._newest: WriteBatch | None = None
        # The batch of the newest finished messages with exactly-once delivery.
        self._newest_finish: WriteBatch | None = None

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
            config = pubsub.Subscription.FromString(subscription.config)
            self._subscriptions[subscription.name] = SubscriptionEntry(
                key, entries[subscription.topic], config.enable_exactly_once_delivery
            )
        for resource in contents.resources:
            if resource.topic:
                self._keepers.enter(resource.kind, resource.name, entries[resource.topic])
        self._topic_keys = itertools.count(max(contents.topics, default=0) + 1)
        self._subscription_keys = itertools.count(max(contents.subscriptions, default=0) + 1)

    def restore(self, engine: Engine, feeds: RestoreFeed | None = None) -> None:
        """Restore the stored state into an empty engine. Call it once, before all other calls.

        Args:
            engine: The engine.
            feeds: Called with each feed, see Engine.restore.

        Raises:
            StorageError: Some of the stored state is damaged.
        """
        if self._contents is not None:
            engine.restore(self._contents.saved(), feeds)
            self._contents = None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Run a block that restores the stored state. If it raises, the storage is closed.

        Raises:
            StorageError: Some of the stored state is damaged.
        """
        try:
            with self._database.reading():
                yield
        except (ArithmeticError, DecodeError, RpcError, struct.error) as error:
            self._abandon()
            raise StorageError(f"{self._database.directory} is damaged: {error}") from error
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        with suppress(StorageError):
            self.close()

    def resources(self, kind: Resource) -> dict[str, bytes]:
        """Return the stored resources of a kind, by name. Only before `restore`.

        For kinds that the engine does not restore itself.
        """
        contents = self._contents
        found = contents.resources if contents is not None else []
        return {resource.name: resource.value for resource in found if resource.kind is kind}

    def notes(self, kind: Resource) -> dict[str, bytes]:
        """Return the last notes of a kind, by name. Only before `restore`."""
        contents = self._contents
        return {} if contents is None else contents.notes[kind]

    def close(self) -> None:
        """Write the remaining changes and release the directory.

        Raises:
            StorageError: The remaining changes could not be written and are lost.
        """
        for entry in self._topics.values():
            if entry.reserved != entry.head:
                self._writer.add(_reservation(entry.key, entry.head))
        try:
            self._writer.close()
        except WriteError as error:
            raise StorageError(str(error)) from error
        finally:
            self._database.close()

    # ---- calls ---------------------------------------------------------------------------------

    def check(self, request: Message, *, needs_disk: bool = True) -> None:
        """Begin a call, and refuse it if its changes could not be stored.

        Args:
            request: The request.
            needs_disk: Whether the call is refused while the disk cannot be written.

        Raises:
            Unavailable: The disk cannot be written at present.
            InvalidArgument: A topic names an unknown durability class.
        """
        self.begin()
        if needs_disk:
            self.check_disk()
        if isinstance(request, pubsub.Topic):
            durability_of(request, self.default)
        elif isinstance(request, pubsub.UpdateTopicRequest):
            durability_of(request.topic, self.default)

    def begin(self) -> None:
        """Begin a call: it need not wait for earlier changes by streams, timers and pushes."""
        self._owed = None

    def owed(self) -> Awaitable[None] | None:
        """Return an awaitable for the changes since `begin`; None: nothing to await.

        Raises:
            Unavailable: When awaited: the disk cannot be written.
        """
        owed, self._owed = self._owed, None
        return None if owed is None else asyncio.wrap_future(owed.written)

    def check_disk(self) -> None:
        """Raise Unavailable if the disk cannot be written at present."""
        if self._writer.failure:
            raise Unavailable(self._writer.failure)

    def barrier(self, request: Message) -> Awaitable[None] | None:
        """Return an awaitable that delays the reply to the executed `request`; None: no delay.

        Raises:
            Unavailable: When awaited: the disk cannot be written. The change is not stored yet.
        """
        owed = self.owed()
        if owed is not None:
            return owed
        if isinstance(request, pubsub.AcknowledgeRequest):
            # A repeated acknowledgement changes nothing, but the change by the first one may not be
            # on disk yet.
            entry = self._subscriptions.get(request.subscription)
            if entry is not None and entry.is_exactly_once:
                return self.confirmation_barrier()
            if entry is not None and entry.topic.durability is Durability.FSYNC:
                return self.newest_barrier()
        return None

    def numbers_for(self, request: Message) -> Awaitable[None] | None:
        """Return an awaitable that delays a publish until its numbers are reserved; None: no delay.

        Subscribers get a published message at once, and after a crash its number is used up.

        Raises:
            Unavailable: When awaited: the disk cannot be written.
        """
        if not isinstance(request, (pubsub.PublishRequest, feeds.AppendRequest)):
            return None
        entry = self._topics.get(request.topic)
        if entry is None or entry.has_numbers(len(request.messages)):
            return None
        entry.waited = True
        assert entry.reserving is not None
        return asyncio.wrap_future(entry.reserving.written)

    def newest_barrier(self) -> Awaitable[None] | None:
        """Return the same as `barrier`, for the changes of all earlier calls that must wait."""
        return self._written(self._newest)

    def confirmation_barrier(self) -> Awaitable[None] | None:
        """Return the same as `barrier`, for all acknowledgements with exactly-once delivery."""
        newest = self._newest_finish
        if newest is not None:
            self._writer.hasten(newest)
        return self._written(newest)

    def _written(self, group: WriteBatch | None) -> Awaitable[None] | None:
        if group is None or (group.written.done() and not self._writer.failure):
            return None
        return asyncio.wrap_future(group.written)

    async def copy_to(self, directory: Path) -> None:
        """Copy the present state to a directory that does not exist, or is empty.

        Other calls continue. Changes during the copy are written after it.

        Raises:
            StorageError: The copy cannot be written.
            Unavailable: The data directory cannot be written, so it lacks changes.
        """
        copied = self._writer.run_between(lambda: self._database.copy_to(directory))
        await asyncio.wrap_future(copied)

    def flush(self) -> None:
        """Wait until all earlier changes are on disk.

        Raises:
            Unavailable: The disk cannot be written.
        """
        self._writer.flush()

    # ---- resources -----------------------------------------------------------------------------

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        """Persist a new or changed resource before the present call is answered."""
        if kind is Resource.TOPIC:
            change = self._saved_topic(name, value)
        elif kind is Resource.SUBSCRIPTION:
            change = self._saved_subscription(name, value)
        else:
            topic = self._keepers.topic_of(kind, name, value)

            def change(ledger: SqlWriter) -> None:
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
        entry.is_exactly_once = config.enable_exactly_once_delivery
        key, topic, since = entry.key, entry.topic.key, entry.topic.head
        keeps = retains(config)
        return lambda ledger: ledger.save_subscription(key, name, topic, value, keeps, since)

    def noted(self, kind: Resource, name: str, value: bytes) -> None:
        """Persist a note, except acknowledged IDs of a topic that has no messages on disk."""
        if kind is Resource.ACKED and not self._subscriptions[subscription_of(name)].topic.kept:
            return
        self._add(lambda ledger: ledger.note(kind, name, value))

    def removed(self, kind: Resource, name: str) -> None:
        """Persist the deletion of a resource before the present call is answered."""
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
            # The label was not checked by `check`, so use the safest class.
            _log.warning("%s: %s", config.name, error.message)
            return Durability.FSYNC

    # ---- messages ------------------------------------------------------------------------------

    def published(self, topic: str, records: Sequence[Record]) -> None:
        """Persist new messages, except at durability class memory."""
        entry = self._topics[topic]
        self._move_head(entry, last_seq_of(records))
        if entry.durability is not Durability.MEMORY:
            entry.kept = True
            key = entry.key
            size = size_of(records) + _RECORD_BYTES * len(records)
            self._add(
                lambda ledger: ledger.publish(key, records),
                size=size,
                urgent=entry.durability is Durability.FSYNC,
            )

    def skipped(self, topic: str, first: int, last: int) -> None:
        """Move the head of a topic, and reserve more sequence numbers if few are left."""
        self._move_head(self._topics[topic], last)

    def _move_head(self, entry: TopicEntry, head: int) -> None:
        entry.head = head
        if entry.needs_more:
            entry.enlarge_block()
            reservation = _reservation(entry.key, entry.next_reserved)
            entry.reserve(self._writer.add(reservation, urgent=True)[0])
        if not entry.is_safe:
            # A batch that the publish itself must wait for is written after this one, and replaces
            # it.
            self._owed = entry.reserving

    def finished(self, subscription: str, seqs: Collection[int]) -> None:
        """Persist that messages are finished, if their topic may have messages on disk."""
        entry = self._subscriptions.get(subscription)
        if entry is not None and entry.topic.kept:
            key, urgent = entry.key, entry.topic.durability is Durability.FSYNC
            group = self._add(lambda ledger: ledger.finish(key, seqs), urgent=urgent)
            if entry.is_exactly_once:
                self._newest_finish = group

    def unfinished(self, subscription: str, seqs: Collection[int]) -> None:
        """Persist that messages are unfinished after a seek, if they may be on disk."""
        entry = self._subscriptions[subscription]
        if entry.topic.kept:
            key, urgent = entry.key, entry.topic.durability is Durability.FSYNC
            self._add(lambda ledger: ledger.reopen(key, seqs), urgent=urgent)

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: LeaseEnd
    ) -> None:
        """Persist the number of failed deliveries, unless the messages were given back."""
        entry = self._subscriptions[subscription]
        if entry.topic.kept and why is not LeaseEnd.GIVEN_BACK:
            key = entry.key
            attempts = {delivery.record.seq: delivery.attempts for delivery in deliveries}
            self._add(lambda ledger: ledger.fail(key, attempts))

    def discarded(self, topic: str, up_to: int) -> None:
        """Delete the messages up to `up_to` from the disk, because nothing keeps them any more."""
        entry = self._topics.get(topic)
        if entry is not None and entry.kept:
            key = entry.key
            self._add(lambda ledger: ledger.discard(key, up_to))

    # ---- notes ---------------------------------------------------------------------------------

    def _add(self, change: Change, *, size: int = 0, urgent: bool = False) -> WriteBatch:
        """Queue a change. The call waits for it if it is urgent or if the writer is behind."""
        group, must_wait = self._writer.add(change, size=size, urgent=urgent)
        if must_wait:
            self._owed = self._newest = group
        return group


def _reservation(key: int, reserved: int) -> Change:
    return lambda ledger: ledger.reserve(key, reserved)
