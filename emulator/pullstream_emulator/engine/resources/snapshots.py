"""Methods to create, change, list and delete snapshots, and to seek to a snapshot or a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_emulator.engine.delivery.delivery_state import Delivery, KeyQueue
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.due_queue import Now
from pullstream_emulator.engine.record import Record
from pullstream_emulator.engine.settings import field_mask, resource_settings
from pullstream_emulator.engine.settings.durations import DAY, HOUR, is_timestamp, seconds_of
from pullstream_emulator.error_texts import exists, invalid_argument
from pullstream_protocol import errors, names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .registry import Registry, page_of_project
from .snapshot import Snapshot
from .subscriptions import detached

MAX_LIFETIME = 7 * DAY
MIN_LIFETIME = HOUR


class Snapshots:
    """All snapshots of an engine."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def create(self, request: pubsub.CreateSnapshotRequest) -> pubsub.Snapshot:
        """Save the acknowledgement state of a subscription, and return the snapshot's settings."""
        registry, now = self._registry, self._registry.now()
        names.validate("subscriptions", request.subscription)
        name = request.name
        if not name:
            project = names.project_of(request.subscription)
            name = names.snapshot_path(project, f"snapshot-{uuid.uuid4()}")
        names.validate("snapshots", name)
        if name in registry.snapshots:
            raise exists(name)
        registry.check_room("snapshots", registry.snapshots, name)
        subscription = self._attached(request.subscription, now)
        resource_settings.check_labels(request.labels)
        config = pubsub.Snapshot(name=name, topic=subscription.config.topic, labels=request.labels)
        unfinished = [delivery.record for delivery in subscription.messages]
        config.expire_time.CopyFrom(_expire_time(unfinished, now))
        log = subscription.log
        snapshot = Snapshot(config, subscription.name, log, log.head_seq, unfinished)
        registry.snapshots[name] = snapshot
        registry.saved(snapshot)
        registry.timetable.watch(snapshot, now)
        return config

    def get(self, name: str) -> pubsub.Snapshot:
        """Return the settings of a snapshot."""
        return self._registry.snapshot(name).config

    def update(self, request: pubsub.UpdateSnapshotRequest) -> pubsub.Snapshot:
        """Change the settings in the field mask, and return all settings of the snapshot."""
        registry, now = self._registry, self._registry.now()
        snapshot = registry.snapshot(request.snapshot.name)
        config = field_mask.SNAPSHOT.apply(
            request.update_mask.paths, request.snapshot, snapshot.config
        )
        resource_settings.check_labels(config.labels)
        if config.expire_time != snapshot.config.expire_time:
            _check_expire_time(config.expire_time, now)
        snapshot.config = config
        registry.saved(snapshot)
        registry.timetable.forget(snapshot)
        registry.timetable.watch(snapshot, now)
        return config

    def list(self, request: pubsub.ListSnapshotsRequest) -> pubsub.ListSnapshotsResponse:
        """Return one page of a project's snapshots."""
        listed, token = page_of_project("snapshots", self._registry.snapshots, request)
        return pubsub.ListSnapshotsResponse(
            snapshots=[snapshot.config for snapshot in listed], next_page_token=token
        )

    def delete(self, name: str) -> None:
        """Delete a snapshot, and release the messages that only the snapshot keeps."""
        snapshot = self._registry.snapshot(name)
        del self._registry.snapshots[name]
        snapshot.release_records()
        self._registry.trim(snapshot.log)
        self._registry.timetable.forget(snapshot)
        self._registry.removed(snapshot)

    # ---- seek ----------------------------------------------------------------------------------

    def seek(self, request: pubsub.SeekRequest) -> pubsub.SeekResponse:
        """Set a subscription's backlog to its state at another time."""
        now = self._registry.now()
        subscription = self._attached(request.subscription, now)
        target = request.WhichOneof("target")
        if target == "snapshot":
            self._seek_snapshot(subscription, request.snapshot)
        elif target == "time":
            self._seek_time(subscription, request.time, now)
        else:
            raise errors.InvalidArgument(
                "No target was specified in the SeekRequest. Must specify either a time or a "
                "snapshot."
            )
        self._registry.timetable.watch(subscription, now)
        return pubsub.SeekResponse()

    def _seek_snapshot(self, subscription: Subscription, name: str) -> None:
        snapshot = self._registry.snapshot(name)
        if snapshot.log is not subscription.log:
            raise errors.FailedPrecondition(
                f"The subscription's topic {subscription.config.topic} is different from that of "
                f"the snapshot {snapshot.config.topic}; they must match in order for Seek to work."
            )
        _seek(subscription, snapshot.wants, snapshot.records())

    def _seek_time(self, subscription: Subscription, time: Timestamp, now: Now) -> None:
        if not is_timestamp(time):
            raise invalid_argument("time")
        # Publish times have whole milliseconds.
        from_ms = time.seconds * 1000 + -(-time.nanos // 1_000_000)

        def wanted(record: Record) -> bool:
            return record.publish_ms >= from_ms

        _seek(subscription, wanted, self._within_reach(subscription, now))

    def _within_reach(self, subscription: Subscription, now: Now) -> Iterable[Record]:
        """Yield the finished messages that a subscription can still get again."""
        now_ms = now.wall * 1000
        own = subscription.terms.retention if subscription.terms.retains_acked else 0
        topics = seconds_of(subscription.config.topic_message_retention_duration)
        for record in subscription.log.history:
            # The subscription retains only messages published after its creation. The topic also
            # retains earlier messages.
            reach = max(own, topics) if record.seq > subscription.since else topics
            if now_ms < record.publish_ms + reach * 1000:
                yield record

    def _attached(self, name: str, now: Now) -> Subscription:
        subscription = self._registry.subscription(name)
        subscription.touch(now)
        if subscription.config.detached:
            raise detached(name)
        return subscription


def _seek(
    subscription: Subscription, wanted: Callable[[Record], bool], history: Iterable[Record]
) -> None:
    """Make exactly the wanted messages of a subscription unfinished.

    Messages that were leased or waited for their backoff are ready immediately. Their ack IDs are
    stale, because an acknowledgement that is still in transit belongs to the time before the seek.

    Args:
        subscription: The subscription.
        wanted: Returns whether a message must be unfinished.
        history: Records that may be finished and can become unfinished again.
    """
    accepts = subscription.terms.accepts
    unfinished = {d.record.seq: d for d in subscription.messages.take_all()}
    done = [delivery for delivery in unfinished.values() if not wanted(delivery.record)]
    stays = [delivery for delivery in unfinished.values() if wanted(delivery.record)]
    back = [
        Delivery(record, None)
        for record in history
        if record.seq not in unfinished
        and wanted(record)
        and (accepts is None or accepts(record.message().attributes))
    ]
    for delivery in back:
        delivery.record.holders += 1
    lanes: dict[str, KeyQueue] = {}
    for delivery in (*stays, *back):
        delivery.acked = False
        key = delivery.record.ordering_key if subscription.terms.ordered else ""
        delivery.lane = lanes.setdefault(key, KeyQueue(key)) if key else None
    subscription.restart([*stays, *back], back=[delivery.record for delivery in back], done=done)


def _expire_time(unfinished: list[Record], now: Now) -> Timestamp:
    """Return the expiry time: seven days after the oldest unfinished message was published."""
    now_ms = int(now.wall * 1000)
    oldest_ms = min((record.publish_ms for record in unfinished), default=now_ms)
    left = MAX_LIFETIME - (now_ms - oldest_ms) / 1000
    if left < MIN_LIFETIME:
        raise errors.FailedPrecondition(
            "The snapshot would expire in less than 1h, because the subscription has an "
            "unacknowledged message that is too old."
        )
    time = Timestamp()
    time.FromMilliseconds(min(oldest_ms, now_ms) + MAX_LIFETIME * 1000)
    return time


def _check_expire_time(time: Timestamp, now: Now) -> None:
    if not is_timestamp(time) or not 0 < time.seconds - now.wall <= MAX_LIFETIME:
        raise invalid_argument("expire_time")
