"""Storage compared with a plain model after orderly restarts and crashes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pullstream_emulator.engine import Delivery, Engine, Record
from pullstream_emulator.engine.observer import LeaseEnd, Resource
from pullstream_emulator.engine.persisted_state import (
    Saved,
    SavedSubscription,
    SavedTopic,
    SnapshotValue,
)
from pullstream_emulator.engine.seq_set import SeqSet
from pullstream_emulator.engine.settings.durability import LABEL, Durability
from pullstream_emulator.storage.storage import Storage
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.crash import copy_running
from tests.emulator.quick_disk import QUICK_DISK

# The numbers of a few dozen publishes reach over several chunks of the database.
PER_PUBLISH = st.sampled_from([1, 2, 3, 700, 1024])


@dataclass
class Topic:
    """The expected state of a life of a topic.

    Attributes:
        feed: Value and note of its feed, if it has one.
    """

    name: str
    value: bytes
    kept: bool
    retains: bool
    head: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    discarded: int = 0
    feed: tuple[bytes, bytes] | None = None

    @property
    def keeps_finished(self) -> bool:
        return self.retains or self.feed is not None

    @property
    def is_live(self) -> bool:
        return bool(self.value)


@dataclass
class Subscription:
    """The expected state of a subscription."""

    value: bytes
    topic: Topic
    since: int
    retains: bool
    unfinished: dict[int, int] = field(default_factory=dict)


def contents(storage: Storage) -> Saved:
    """Return everything that a storage restores."""
    read: list[Saved] = []

    class Reader:
        def restore(self, saved: Saved, feeds: object) -> None:
            for topic in saved.topics:
                topic.records = list(topic.records)
            for subscription in saved.subscriptions:
                subscription.unfinished = list(subscription.unfinished)
            read.append(saved)

    storage.restore(cast(Engine, Reader()))
    return read[0]


class StorageModel(RuleBasedStateMachine):
    """Random changes as an engine reports them, and restarts in between."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=QUICK_DISK))
        self.restarts = 0
        self.storage = Storage(self.folder / "0")
        contents(self.storage)
        self.topics: list[Topic] = []
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, tuple[bytes, Topic]] = {}

    def teardown(self) -> None:
        self.storage.close()
        shutil.rmtree(self.folder)

    def live(self) -> list[Topic]:
        return [topic for topic in self.topics if topic.is_live]

    # ---- resources -----------------------------------------------------------------------------

    @rule(number=st.integers(1, 2), durability=st.sampled_from(Durability), retains=st.booleans())
    def save_topic(self, number: int, durability: Durability, retains: bool) -> None:
        """Create a topic, or change its retention."""
        config = pubsub.Topic(name=f"projects/p/topics/{number}")
        known = next((topic for topic in self.live() if topic.name == config.name), None)
        if known is not None:
            config.labels.update(pubsub.Topic.FromString(known.value).labels)
        else:
            config.labels[LABEL] = durability.value
        if retains:
            config.message_retention_duration.seconds = 600
        value = config.SerializeToString()
        if known is None:
            kept = durability is not Durability.MEMORY
            self.topics.append(Topic(config.name, value, kept, retains))
        else:
            known.value = value
            # Messages that were released in between may be gone.
            if known.feed is None and not (retains and known.retains):
                known.discarded = known.head
            known.retains = retains
        self.storage.saved(Resource.TOPIC, config.name, value)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def remove_topic(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(self.live()))
        topic.value, topic.retains = b"", False
        if topic.feed is not None:
            topic.feed = None
            self.storage.removed(Resource.FEED, topic.name)
        self.storage.removed(Resource.TOPIC, topic.name)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), value=st.binary(max_size=3), notes=st.lists(st.binary(max_size=3)))
    def save_feed(self, data: st.DataObject, value: bytes, notes: list[bytes]) -> None:
        """Create or change a topic's feed. Its position is saved with each change."""
        topic = data.draw(st.sampled_from(self.live()))
        if topic.feed is None and not topic.retains:
            topic.discarded = topic.head
        for note in (b"begin", *notes):
            topic.feed = (value, note)
            self.storage.noted(Resource.FEED, topic.name, note)
        self.storage.saved(Resource.FEED, topic.name, value)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), count=PER_PUBLISH)
    def skip(self, data: st.DataObject, count: int) -> None:
        """Skip numbers that never have a message."""
        topic = data.draw(st.sampled_from(self.live()))
        first, topic.head = topic.head + 1, topic.head + count
        self.storage.skipped(topic.name, first, topic.head)
        for name, subscription in self.subscriptions.items():
            if subscription.topic is topic:
                self.storage.finished(name, range(first, topic.head + 1))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), number=st.integers(1, 3), retains=st.booleans())
    def make_subscription(self, data: st.DataObject, number: int, retains: bool) -> None:
        name = f"projects/p/subscriptions/{number}"
        topic = data.draw(st.sampled_from(self.live()))
        if name in self.subscriptions:
            return
        value = pubsub.Subscription(
            name=name, topic=topic.name, retain_acked_messages=retains
        ).SerializeToString()
        self.subscriptions[name] = Subscription(value, topic, topic.head, retains)
        self.storage.saved(Resource.SUBSCRIPTION, name, value)

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data())
    def remove_subscription(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.subscriptions)))
        del self.subscriptions[name]
        self.storage.removed(Resource.SUBSCRIPTION, name)

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data(), number=st.integers(1, 2))
    def make_snapshot(self, data: st.DataObject, number: int) -> None:
        """The topic may be deleted, or share its name with another one."""
        name = f"projects/p/snapshots/{number}"
        subscription = data.draw(st.sampled_from(sorted(self.subscriptions)))
        topic = self.subscriptions[subscription].topic
        if name in self.snapshots:
            return
        config = pubsub.Snapshot(name=name, topic=topic.name if topic.is_live else "")
        value = SnapshotValue(config, subscription, topic.head, SeqSet()).encode()
        self.snapshots[name] = (value, topic)
        self.storage.saved(Resource.SNAPSHOT, name, value)

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def remove_snapshot(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.snapshots)))
        del self.snapshots[name]
        self.storage.removed(Resource.SNAPSHOT, name)

    # ---- messages ------------------------------------------------------------------------------

    @precondition(lambda self: self.live())
    @rule(data=st.data(), count=PER_PUBLISH)
    def publish(self, data: st.DataObject, count: int) -> None:
        topic = data.draw(st.sampled_from(self.live()))
        records = [
            Record(topic.head + n, "", f"{topic.name} {topic.head + n}".encode(), 0)
            for n in range(1, count + 1)
        ]
        topic.head += count
        if topic.kept:
            topic.records.update((record.seq, record.encoded) for record in records)
            for subscription in self.subscriptions.values():
                if subscription.topic is topic:
                    subscription.unfinished.update((record.seq, 0) for record in records)
        self.storage.published(topic.name, records)

    @precondition(lambda self: any(s.unfinished for s in self.subscriptions.values()))
    @rule(data=st.data(), keep_every=st.sampled_from([1, 2, 1000]))
    def finish(self, data: st.DataObject, keep_every: int) -> None:
        """Finish some or all messages from one message on."""
        name, seqs = self._draw(data, lambda s: sorted(s.unfinished))
        done = seqs if keep_every == 1 else [seq for seq in seqs if seq % keep_every]
        for seq in done:
            del self.subscriptions[name].unfinished[seq]
        self.storage.finished(name, done)

    @precondition(lambda self: any(s.unfinished for s in self.subscriptions.values()))
    @rule(data=st.data(), why=st.sampled_from(LeaseEnd))
    def fail(self, data: st.DataObject, why: LeaseEnd) -> None:
        name, seqs = self._draw(data, lambda s: sorted(s.unfinished))
        deliveries = []
        for seq in seqs[:3]:
            deliveries.append(Delivery(Record(seq, "", b"", 0), None))
            deliveries[-1].attempts = self.subscriptions[name].unfinished[seq]
            if why is not LeaseEnd.GIVEN_BACK:
                deliveries[-1].attempts += 1
            self.subscriptions[name].unfinished[seq] = deliveries[-1].attempts
        self.storage.returned(name, deliveries, why)

    @precondition(lambda self: any(self._seekable(s) for s in self.subscriptions.values()))
    @rule(data=st.data())
    def seek_back(self, data: st.DataObject) -> None:
        name, seqs = self._draw(data, self._seekable)
        subscription = self.subscriptions[name]
        subscription.unfinished.update((seq, 0) for seq in seqs)
        self.storage.unfinished(name, seqs)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        """Discard all messages that no subscription needs, as an engine reports it."""
        topic = data.draw(st.sampled_from(self.live()))
        needed = [
            seq
            for subscription in self.subscriptions.values()
            if subscription.topic is topic
            for seq in subscription.unfinished
        ]
        topic.discarded = max(topic.discarded, min(needed, default=topic.head + 1) - 1)
        self.storage.discarded(topic.name, topic.discarded)

    def _seekable(self, subscription: Subscription) -> list[int]:
        """Return the messages that a seek may restore: acknowledged, and certainly retained."""
        topic = subscription.topic
        if not (subscription.retains and topic.kept):
            return []
        first = max(subscription.since, topic.discarded) + 1
        return [
            seq
            for seq in range(first, topic.head + 1)
            if seq in topic.records and seq not in subscription.unfinished
        ]

    def _draw(
        self, data: st.DataObject, seqs_of: Callable[[Subscription], list[int]]
    ) -> tuple[str, list[int]]:
        """Draw a subscription that has such messages, and some of these from one message on."""
        names = sorted(name for name, s in self.subscriptions.items() if seqs_of(s))
        name = data.draw(st.sampled_from(names))
        seqs = seqs_of(self.subscriptions[name])
        return name, seqs[data.draw(st.integers(0, len(seqs) - 1)) :]

    # ---- restarts ------------------------------------------------------------------------------

    @rule()
    def stop(self) -> None:
        """A restart after an orderly end continues the numbers without a gap."""
        self.storage.close()
        saved = self._start(self.folder / f"{self.restarts}")
        for topic, stored in self._live_pairs(saved):
            assert stored.head_seq == topic.head

    @rule()
    def crash(self) -> None:
        """Flushed data are on disk, whatever happens to the process."""
        self.storage.flush()
        old, new = self.folder / f"{self.restarts}", self.folder / f"{self.restarts + 1}"
        copy_running(old, new)
        self.storage.close()
        self.restarts += 1
        saved = self._start(new)
        for topic, stored in self._live_pairs(saved):
            assert stored.head_seq >= topic.head
            topic.head = stored.head_seq

    def _live_pairs(self, saved: Saved) -> list[tuple[Topic, SavedTopic]]:
        stored = {pubsub.Topic.FromString(t.value).name: t for t in saved.topics if t.value}
        assert stored.keys() == {topic.name for topic in self.live()}
        return [(topic, stored[topic.name]) for topic in self.live()]

    def _start(self, folder: Path) -> Saved:
        self.storage = Storage(folder)
        saved = contents(self.storage)
        lives = [(topic, stored) for topic, stored in self._live_pairs(saved)]
        for topic, stored in lives:
            assert stored.value == topic.value
        names = {pubsub.Subscription.FromString(s.value).name: s for s in saved.subscriptions}
        assert names.keys() == self.subscriptions.keys()
        for name, stored_subscription in names.items():
            self._compare(self.subscriptions[name], stored_subscription, lives)
        assert {SnapshotValue.decode(s.value).config.name: s.value for s in saved.snapshots} == {
            name: value for name, (value, _) in self.snapshots.items()
        }
        for snapshot in saved.snapshots:
            _, of = self.snapshots[SnapshotValue.decode(snapshot.value).config.name]
            # A deleted topic is identified by its numbers.
            assert (snapshot.topic.value, snapshot.topic.head_seq >= of.head) == (of.value, True)
        self._compare_messages(saved)
        assert {id(feed.topic): (feed.value, feed.note) for feed in saved.feeds} == {
            id(stored): topic.feed for topic, stored in lives if topic.feed is not None
        }
        return saved

    def _compare(
        self,
        expected: Subscription,
        stored: SavedSubscription,
        lives: list[tuple[Topic, SavedTopic]],
    ) -> None:
        assert (stored.value, stored.since) == (expected.value, expected.since)
        assert dict(stored.unfinished) == expected.unfinished
        records = dict(stored.topic.records)
        for seq in expected.unfinished:
            assert records[seq] == expected.topic.records[seq]
        if expected.topic.is_live:
            assert (expected.topic, stored.topic) in [(t, s) for t, s in lives]
        else:
            assert stored.topic.value == b""
        if self._seekable(expected):
            assert set(self._seekable(expected)) <= records.keys()

    def _compare_messages(self, saved: Saved) -> None:
        for topic, stored in self._live_pairs(saved):
            seqs = [seq for seq, _ in stored.records]
            assert seqs == sorted(set(seqs))
            assert all(topic.records[seq] == encoded for seq, encoded in stored.records)
            attached = [s for s in self.subscriptions.values() if s.topic is topic]
            retained = topic.keeps_finished or any(s.retains for s in attached)
            retained = retained or any(topic is of for _, of in self.snapshots.values())
            if not retained and not any(s.unfinished for s in attached):
                assert not seqs
            if topic.keeps_finished and topic.kept:
                assert set(
                    range(topic.discarded + 1, topic.head + 1)
                ) & topic.records.keys() <= set(seqs)

    @invariant()
    def lives_on(self) -> None:
        """Check that no change caused a disk error."""
        self.storage.check(pubsub.PublishRequest())


TestStorageModel: Any = StorageModel.TestCase
TestStorageModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
