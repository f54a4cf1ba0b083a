"""What a database holds when a broker starts on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from emulator.engine.observer import Resource
from emulator.engine.saved import (
    Saved,
    SavedFeed,
    SavedSnapshot,
    SavedSubscription,
    SavedTopic,
)
from protocol.messages import pubsub_pb2 as pubsub

from . import batch
from .catalogue import RESERVE
from .database import Database, sealed, unsealed
from .durability import retains
from .kept import KeptSubscription, KeptTopic
from .progress import BYTES, CHUNK, Progress, masks_of


class StoredTopic(NamedTuple):
    """head: no message has a higher number. `config` is empty if the topic was deleted.

    reserved: highest number that may be given to a message from now on.
    """

    name: str
    config: bytes
    head: int
    reserved: int


class StoredSubscription(NamedTuple):
    name: str
    topic: int
    config: bytes
    since: int


class StoredResource(NamedTuple):
    kind: Resource
    name: str
    value: bytes
    topic: int


class Contents:
    """Reads a database that nobody writes to yet; topics and subscriptions by their numbers.

    `kept_topics` and `kept_subscriptions` are the same as the ledger wants them.

    Raises:
        StorageError: something in it is damaged. Nothing is left out silently.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.reading(), database.transaction():
            database.execute("UPDATE broker SET starts = starts + 1")
            ((self.starts,),) = database.execute("SELECT starts FROM broker")
            self.topics = self._read_topics()
            self.subscriptions = {
                key: StoredSubscription(name, topic, unsealed(config), since)
                for key, name, topic, config, since, _ in database.execute(
                    "SELECT * FROM subscriptions"
                )
            }
            self.resources = [
                StoredResource(Resource(kind), name, unsealed(value), topic)
                for kind, name, value, topic in database.execute("SELECT * FROM resources")
            ]
            self.notes: defaultdict[Resource, dict[str, bytes]] = defaultdict(dict)
            for kind, name, value in database.execute("SELECT * FROM notes"):
                self.notes[Resource(kind)][name] = unsealed(value)
            self._existing = self._read_existing()
            self.kept_topics = self._keep_topics()
            self.kept_subscriptions = self._keep_subscriptions()

    def has_messages(self, topic: int) -> bool:
        return topic in self._existing

    def saved(self) -> Saved:
        """What an engine is rebuilt from. Messages are read while the engine asks for them."""
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
            for first, count, encoded in self._database.execute(
                "SELECT first, count, encoded FROM messages WHERE topic = ? ORDER BY first",
                (topic,),
            ):
                yield from batch.decode(topic, first, count, encoded)

    def _unfinished(self, key: int) -> Iterator[tuple[int, int]]:
        subscription = self.kept_subscriptions[key]
        with self._database.reading():
            attempts = dict(
                self._database.execute(
                    "SELECT seq, attempts FROM attempts WHERE subscription = ?", (key,)
                )
            )
        for chunk, existing in self._existing.get(subscription.topic, {}).items():
            bits = existing & ~subscription.progress.bits(chunk)
            for bit in range(bits.bit_length()):
                if bits >> bit & 1:
                    seq = chunk * CHUNK + bit
                    yield seq, attempts.get(seq, 0)

    def _read_topics(self) -> dict[int, StoredTopic]:
        """Every topic; of those that can be published to, the next numbers are reserved."""
        topics = {
            key: StoredTopic(name, unsealed(config), head, head + RESERVE)
            if config is not None
            else StoredTopic(name, b"", head, head)
            for key, name, config, head in self._database.execute("SELECT * FROM topics")
        }
        self._database.executemany(
            "UPDATE topics SET reserved = ? WHERE id = ?",
            [(topic.reserved, key) for key, topic in topics.items()],
        )
        return topics

    def _read_existing(self) -> dict[int, dict[int, int]]:
        """The numbers of the messages that are there: by topic, as bits by chunk."""
        existing: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for topic, first, count in self._database.execute(
            "SELECT topic, first, count FROM messages ORDER BY topic, first"
        ):
            for chunk, mask in masks_of(range(first, first + count)).items():
                existing[topic][chunk] = existing[topic].get(chunk, 0) | mask
        return dict(existing)

    def _keep_topics(self) -> dict[int, KeptTopic]:
        kept = {
            key: KeptTopic(
                named=bool(topic.config), retains=retains(pubsub.Topic.FromString(topic.config))
            )
            for key, topic in self.topics.items()
        }
        for resource in self.resources:
            if resource.topic:
                kept[resource.topic].keepers.add(resource.name)
        return kept

    def _keep_subscriptions(self) -> dict[int, KeptSubscription]:
        kept = {}
        progress = self._read_progress()
        for key, subscription in self.subscriptions.items():
            config = pubsub.Subscription.FromString(subscription.config)
            kept[key] = KeptSubscription(
                subscription.topic,
                progress[key],
                retains(config),
                {
                    seq
                    for (seq,) in self._database.execute(
                        "SELECT seq FROM attempts WHERE subscription = ?", (key,)
                    )
                },
            )
            self.kept_topics[subscription.topic].subscriptions[key] = kept[key]
        return kept

    def _read_progress(self) -> dict[int, Progress]:
        """How far each subscription is, as if it had finished every number that is not there.

        Numbers were left out by the broker that stopped: what is not there will never be finished,
        and nobody should wait for it. The database is changed accordingly.
        """
        stored: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for key, chunk, bits in self._database.execute("SELECT * FROM chunks"):
            stored[key][chunk] = int.from_bytes(unsealed(bits, key, chunk), "little")
        bases = dict(self._database.execute("SELECT id, base FROM subscriptions"))
        self._database.execute("DELETE FROM chunks")
        fresh = {}
        for key, subscription in self.subscriptions.items():
            old = Progress(bases[key], stored[key])
            fresh[key] = new = Progress.after(self.topics[subscription.topic].head)
            for chunk, existing in self._existing.get(subscription.topic, {}).items():
                new.reopen({chunk: existing & ~old.bits(chunk)})
            self._database.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?)",
                [
                    (key, chunk, sealed(bits.to_bytes(BYTES, "little"), key, chunk))
                    for chunk, bits in new.chunks.items()
                ],
            )
            self._database.execute(
                "UPDATE subscriptions SET base = ? WHERE id = ?", (new.base, key)
            )
        return fresh
