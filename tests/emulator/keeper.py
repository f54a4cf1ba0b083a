"""A minimal reference storage: keeps everything that an engine reports, and restores it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pullstream_emulator.engine.observer import LeaseEnd, ObservedDelivery, Observer, Resource
from pullstream_emulator.engine.persisted_state import (
    Saved,
    SavedSnapshot,
    SavedSubscription,
    SavedTopic,
    SnapshotValue,
)
from pullstream_emulator.engine.record import Record
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class KeptTopic:
    """One life of a topic."""

    def __init__(self) -> None:
        self.value = b""
        self.head_seq = 0
        self.records: dict[int, bytes] = {}


class KeptSubscription:
    """The state of a subscription. `finished` and `attempts` are by sequence number."""

    def __init__(self, topic: KeptTopic) -> None:
        self.value = b""
        self.topic = topic
        self.since = topic.head_seq
        self.finished: set[int] = set()
        self.attempts: dict[int, int] = {}


class Keeper(Observer):
    """An observer that can rebuild the engine's state."""

    def __init__(self) -> None:
        self.topics: dict[str, KeptTopic] = {}
        self.subscriptions: dict[str, KeptSubscription] = {}
        self.snapshots: dict[str, tuple[bytes, KeptTopic]] = {}
        self.generation = 0
        self.acked: dict[str, bytes] = {}

    def noted(self, kind: Resource, name: str, value: bytes) -> None:
        assert kind is Resource.ACKED
        if value:
            self.acked[name] = value
        else:
            del self.acked[name]

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        if kind is Resource.TOPIC:
            self.topics.setdefault(name, KeptTopic()).value = value
        elif kind is Resource.SUBSCRIPTION:
            if name not in self.subscriptions:
                topic = pubsub.Subscription.FromString(value).topic
                self.subscriptions[name] = KeptSubscription(self.topics[topic])
            self.subscriptions[name].value = value
        elif name in self.snapshots:
            self.snapshots[name] = (value, self.snapshots[name][1])
        else:
            subscription = SnapshotValue.decode(value).subscription
            self.snapshots[name] = (value, self.subscriptions[subscription].topic)

    def removed(self, kind: Resource, name: str) -> None:
        if kind is Resource.TOPIC:
            self.topics.pop(name).value = b""
        elif kind is Resource.SUBSCRIPTION:
            del self.subscriptions[name]
        else:
            del self.snapshots[name]

    def published(self, topic: str, records: Sequence[Record]) -> None:
        kept = self.topics[topic]
        kept.records.update({record.seq: record.encoded for record in records})
        kept.head_seq = records[-1].seq

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: LeaseEnd
    ) -> None:
        attempts = self.subscriptions[subscription].attempts
        attempts.update({d.record.seq: d.attempts for d in deliveries})

    def finished(self, subscription: str, seqs: Collection[int]) -> None:
        kept = self.subscriptions[subscription]
        assert kept.finished.isdisjoint(seqs), "finished twice"
        kept.finished.update(seqs)

    def unfinished(self, subscription: str, seqs: Collection[int]) -> None:
        kept = self.subscriptions[subscription]
        for seq in seqs:
            # A message published before the subscription was created was never finished for it.
            kept.finished.discard(seq)
            kept.attempts[seq] = 0

    def discarded(self, topic: str, up_to: int) -> None:
        records = self.topics[topic].records
        for seq in [seq for seq in records if seq <= up_to]:
            del records[seq]

    def everything(self) -> Saved:
        """Return the state from which an engine is restored."""
        self.generation += 1
        lives = [
            *self.topics.values(),
            *(subscription.topic for subscription in self.subscriptions.values()),
            *(topic for _, topic in self.snapshots.values()),
        ]
        topics = {
            id(life): SavedTopic(life.head_seq, sorted(life.records.items()), life.value)
            for life in lives
        }
        return Saved(
            list(topics.values()),
            [
                SavedSubscription(
                    each.value,
                    topics[id(each.topic)],
                    each.since,
                    [
                        (seq, each.attempts.get(seq, 0))
                        for seq in sorted(each.topic.records)
                        if seq not in each.finished and (seq > each.since or seq in each.attempts)
                    ],
                )
                for each in self.subscriptions.values()
            ],
            [SavedSnapshot(value, topics[id(topic)]) for value, topic in self.snapshots.values()],
            self.generation,
        )
