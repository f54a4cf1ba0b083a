"""Load of the database when a broker starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pullstream_emulator.engine.observer import Resource
from pullstream_emulator.engine.persisted_state import (
    Saved,
    SavedFeed,
    SavedSnapshot,
    SavedSubscription,
    SavedTopic,
)
from pullstream_emulator.engine.settings.durability import retains
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import batch
from .ack_bitmap import BYTES, CHUNK, AckBitmap, masks_of
from .database import Database
from .key_map import RESERVE
from .sql_writer import OnDiskSubscription, OnDiskTopic
from .tables import ATTEMPTS, CHUNKS, MESSAGES, NOTES, RESOURCES, SUBSCRIPTIONS, TOPICS


class StoredTopic(NamedTuple):
    """A topic in the database.

    Attributes:
        name: Its full name.
        config: Its settings, serialized; empty if the topic was deleted.
        head: No message has a higher sequence number.
        reserved: The highest sequence number that new messages may get.
    """

    name: str
    config: bytes
    head: int
    reserved: int


class StoredSubscription(NamedTuple):
    """A row of the subscriptions table. `topic` is the number of its topic."""

    name: str
    topic: int
    config: bytes
    since: int


class StoredResource(NamedTuple):
    """A row of the resources table. `topic` is the number of its topic; 0 for none."""

    kind: Resource
    name: str
    value: bytes
    topic: int


class Contents:
    """Reads the database at the start, before other writes. Keys are the numbers of the database.

    Attributes:
        starts: Number of starts of a broker on this database.
        topics: The topics.
        subscriptions: The subscriptions.
        resources: The other resources.
        notes: The notes, by kind and name.
        kept_topics: The topics, in the form that SqlWriter needs.
        kept_subscriptions: The subscriptions, in the form that SqlWriter needs.

    Raises:
        StorageError: The database cannot be read or written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.reading(), database.transaction():
            self.starts = database.count_start()
            self.topics = self._read_topics()
            self.subscriptions = {
                key: StoredSubscription(name, topic, config, since)
                for key, name, topic, config, since, _ in database.rows(SUBSCRIPTIONS)
            }
            self.resources = [
                StoredResource(Resource(kind), name, value, topic)
                for kind, name, value, topic in database.rows(RESOURCES)
            ]
            self.notes: defaultdict[Resource, dict[str, bytes]] = defaultdict(dict)
            for kind, name, value in database.rows(NOTES):
                self.notes[Resource(kind)][name] = value
            self._existing = self._read_existing()
            self.kept_topics = self._keep_topics()
            self.kept_subscriptions = self._keep_subscriptions()

    def has_messages(self, topic: int) -> bool:
        """Return whether the topic with this number has messages in the database."""
        return topic in self._existing

    def saved(self) -> Saved:
        """Return the state for Engine.restore. Messages are read while the engine iterates."""
        topics = {
            key: SavedTopic(topic.head, self._records(key), topic.config)
            for key, topic in self.topics.items()
        }
        return Saved(
            topics=list(topics.values()),
            subscriptions=[
                SavedSubscription(
                    subscription.config,
                    topics[subscription.topic],
                    subscription.since,
                    self._unfinished(key),
                )
                for key, subscription in self.subscriptions.items()
            ],
            snapshots=[
                SavedSnapshot(resource.value, topics[resource.topic])
                for resource in self.resources
                if resource.kind is Resource.SNAPSHOT
            ],
            feeds=[
                SavedFeed(
                    resource.value,
                    self.notes[Resource.FEED].get(resource.name, b""),
                    topics[resource.topic],
                )
                for resource in self.resources
                if resource.kind is Resource.FEED
            ],
            generation=self.starts,
        )

    def _records(self, topic: int) -> Iterator[tuple[int, bytes]]:
        with self._database.reading():
            for _, first, count, encoded in self._database.rows(MESSAGES, topic):
                yield from batch.decode(first, count, encoded)

    def _unfinished(self, key: int) -> Iterator[tuple[int, int]]:
        subscription = self.kept_subscriptions[key]
        with self._database.reading():
            attempts = {seq: count for _, seq, count in self._database.rows(ATTEMPTS, key)}
        for chunk, existing in self._existing.get(subscription.topic, {}).items():
            bits = existing & ~subscription.progress.bits(chunk)
            for bit in range(bits.bit_length()):
                if bits >> bit & 1:
                    seq = chunk * CHUNK + bit
                    yield seq, attempts.get(seq, 0)

    def _read_topics(self) -> dict[int, StoredTopic]:
        """Return all topics, and reserve the next numbers of the topics that are not deleted."""
        topics = {
            key: StoredTopic(name, config, head, head + RESERVE)
            if config is not None
            else StoredTopic(name, b"", head, head)
            for key, name, config, head in self._database.rows(TOPICS)
        }
        self._database.put(
            TOPICS,
            [
                (key, topic.name, topic.config or None, topic.reserved)
                for key, topic in topics.items()
            ],
        )
        return topics

    def _read_existing(self) -> dict[int, dict[int, int]]:
        """Return the sequence numbers of the existing messages: by topic, as bits by chunk."""
        existing: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for topic, first, count in self._database.execute(
            "SELECT topic, first, count FROM messages ORDER BY topic, first"
        ):
            for chunk, mask in masks_of(range(first, first + count)).items():
                existing[topic][chunk] = existing[topic].get(chunk, 0) | mask
        return dict(existing)

    def _keep_topics(self) -> dict[int, OnDiskTopic]:
        kept = {
            key: OnDiskTopic(
                named=bool(topic.config), retains=retains(pubsub.Topic.FromString(topic.config))
            )
            for key, topic in self.topics.items()
        }
        for resource in self.resources:
            if resource.topic:
                kept[resource.topic].keepers.add(resource.name)
        return kept

    def _keep_subscriptions(self) -> dict[int, OnDiskSubscription]:
        kept = {}
        progress = self._read_progress()
        for key, subscription in self.subscriptions.items():
            config = pubsub.Subscription.FromString(subscription.config)
            kept[key] = OnDiskSubscription(
                subscription.topic,
                progress[key],
                retains(config),
                {seq for _, seq, _ in self._database.rows(ATTEMPTS, key)},
            )
            self.kept_topics[subscription.topic].subscriptions[key] = kept[key]
        return kept

    def _read_progress(self) -> dict[int, AckBitmap]:
        """Return the finished messages of each subscription. Missing messages count as finished.

        After a stop, some sequence numbers have no message and will never be finished. So no
        subscription must wait for them. The database is changed in the same way.
        """
        stored: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for key, chunk, bits in self._database.rows(CHUNKS):
            stored[key][chunk] = int.from_bytes(bits, "little")
        bases = {row[0]: row[5] for row in self._database.rows(SUBSCRIPTIONS)}
        self._database.remove(CHUNKS)
        fresh = {}
        for key, subscription in self.subscriptions.items():
            old = AckBitmap(bases[key], stored[key])
            fresh[key] = new = AckBitmap.after(self.topics[subscription.topic].head)
            for chunk, existing in self._existing.get(subscription.topic, {}).items():
                new.reopen({chunk: existing & ~old.bits(chunk)})
            self._database.put(
                CHUNKS,
                [
                    (key, chunk, bits.to_bytes(BYTES, "little"))
                    for chunk, bits in new.chunks.items()
                ],
            )
            name, topic, config, since = subscription
            self._database.put(SUBSCRIPTIONS, [(key, name, topic, config, since, new.base)])
        return fresh
