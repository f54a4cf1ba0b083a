"""An engine's state, rebuilt from what storage kept of it."""

from __future__ import annotations

import itertools

from protocol.messages import pubsub_pb2 as pubsub

from .log import Log
from .ordering import KeyLane
from .record import Delivery, Record
from .registry import Registry
from .saved import RestoreFeed, Saved, SavedSubscription, SavedTopic, SnapshotValue
from .snapshot import Snapshot
from .subscriptions import Subscriptions, is_push
from .timetable import Timed
from .topics import Topics

# Leases that one life of a broker may grant before it comes into the numbers of the next.
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
    """Fill empty collections. See Engine.restore."""
    if registry.topics or registry.subscriptions or registry.snapshots:
        raise ValueError("an engine that is to be restored must be empty")
    subscriptions.numbers = itertools.count(saved.generation * _NUMBERS_PER_GENERATION + 1)
    logs: dict[int, _Restored] = {}
    for topic in saved.topics:
        logs[id(topic)] = _restore_topic(topic, registry, topics)
    for each in saved.subscriptions:
        _restore_subscription(each, logs[id(each.topic)], registry, subscriptions)
    for snapshot in saved.snapshots:
        value, of = SnapshotValue.decode(snapshot.value), logs[id(snapshot.topic)]
        unacked = [of.records[seq] for seq in value.unacked if seq in of.records]
        registry.snapshots[value.config.name] = Snapshot(
            value.config, value.subscription, of.log, value.since, unacked
        )
    if restore_feed is not None:
        for feed in saved.feeds:
            live = registry.topics[pubsub.Topic.FromString(feed.topic.value).name]
            restore_feed(feed.value, feed.note, live, logs[id(feed.topic)].records)
    now = registry.now()
    for restored in logs.values():
        # Whatever history still wants; the rest is let go at once.
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
    accepts, ordered = subscription.terms.accepts, subscription.terms.ordered
    lanes: dict[str, KeyLane] = {}
    waiting: list[Delivery] = []
    for seq, attempts in saved.unfinished:
        record = of.records.get(seq)
        if record is None or (accepts and not accepts(record.message().attributes)):
            continue
        key = record.ordering_key if ordered else ""
        delivery = Delivery(record, lanes.setdefault(key, KeyLane(key)) if key else None)
        delivery.attempts = attempts
        waiting.append(delivery)
    subscription.restore(waiting)
    if is_push(config):
        subscriptions.on_push(config.name)
