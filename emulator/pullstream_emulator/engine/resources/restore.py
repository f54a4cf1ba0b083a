"""Restore of an engine from its persisted state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pullstream_emulator.engine.delivery.ack_ids import AckNumbers
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.persisted_state import (
    Saved,
    SavedSubscription,
    SavedTopic,
    SnapshotValue,
)
from pullstream_emulator.engine.record import Record
from pullstream_emulator.engine.seq_set import SeqSet
from pullstream_emulator.engine.timetable import Timed
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .registry import Registry
from .snapshot import Snapshot
from .subscriptions import Subscriptions, is_push
from .topic import Topic
from .topics import Topics

# Restores a feed from its value and note, its topic, and the topic's records by number. The
# function lets the feed hold its records. The other records may be freed.
RestoreFeed = Callable[[bytes, bytes, Topic, Mapping[int, Record]], None]

# Most leases of one run of the broker. The lease numbers of the next run start after this many.
_NUMBERS_PER_GENERATION = 1 << 40


class _Restored:
    """One topic's log and records, by sequence number."""

    def __init__(self, log: Log, records: dict[int, Record]) -> None:
        self.log = log
        self.records = records


def restore(
    saved: Saved,
    registry: Registry,
    topics: Topics,
    subscriptions: Subscriptions,
    restore_feed: RestoreFeed | None = None,
) -> None:
    """Restore the state of an empty engine; see Engine.restore.

    Args:
        saved: The recorded state.
        registry: The engine's registry.
        topics: The engine's topics.
        subscriptions: The engine's subscriptions.
        restore_feed: Called with each saved feed, after its topic is restored. None: no feeds.

    Raises:
        ValueError: The engine is not empty.
    """
    if registry.topics or registry.subscriptions or registry.snapshots:
        raise ValueError("cannot restore into an engine that is not empty; use a new Engine")
    subscriptions.numbers = AckNumbers(saved.generation * _NUMBERS_PER_GENERATION + 1)
    logs: dict[int, _Restored] = {}
    for topic in saved.topics:
        logs[id(topic)] = _restore_topic(topic, registry, topics)
    for each in saved.subscriptions:
        _restore_subscription(each, logs[id(each.topic)], registry, subscriptions)
    now = registry.now()
    for snapshot in saved.snapshots:
        value, of = SnapshotValue.decode(snapshot.value), logs[id(snapshot.topic)]
        unacked = value.unacked & SeqSet(list(of.records))
        registry.add_snapshot(
            Snapshot(value.config, value.subscription, of.log, value.since, unacked)
        )
    if restore_feed is not None:
        for feed in saved.feeds:
            live = registry.topics[pubsub.Topic.FromString(feed.topic.value).name]
            restore_feed(feed.value, feed.note, live, logs[id(feed.topic)].records)
    for restored in logs.values():
        # The log keeps the records that its history needs, and releases the others immediately.
        records = [r for _, r in sorted(restored.records.items())]
        restored.log.restore(records, now)
        registry.timetable.watch(restored.log, now)
    everything: list[Timed] = [*registry.subscriptions.values(), *registry.snapshots.values()]
    for timed in everything:
        registry.timetable.watch(timed, now)


def _restore_topic(saved: SavedTopic, registry: Registry, topics: Topics) -> _Restored:
    config = pubsub.Topic.FromString(saved.value)
    log = registry.new_log(config.name)
    log.head_seq = saved.head_seq
    records = {seq: Record.decode(seq, encoded) for seq, encoded in saved.records}
    if saved.value:
        newest = max((record.publish_ms for record in records.values()), default=0)
        topics.enter(config, log, newest)
    else:
        log.is_deleted = True
    return _Restored(log, records)


def _restore_subscription(
    saved: SavedSubscription, of: _Restored, registry: Registry, subscriptions: Subscriptions
) -> None:
    config = pubsub.Subscription.FromString(saved.value)
    subscription = subscriptions.new(config, of.log)
    subscription.since = saved.since
    if not config.detached and not of.log.is_deleted:
        registry.topics[config.topic].subscriptions[config.name] = subscription
    accepts = subscription.policy.accepts
    waiting: list[Record] = []
    failed: dict[int, int] = {}
    for seq, attempts in sorted(saved.unfinished):
        record = of.records.get(seq)
        if record is None or (accepts and not accepts(record.message().attributes)):
            continue
        waiting.append(record)
        if attempts:
            failed[seq] = attempts
    subscription.restore(waiting, failed)
    if is_push(config):
        subscriptions.on_push(config.name)
