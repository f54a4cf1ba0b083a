"""Methods to create, change, list and delete snapshots, and to seek to a snapshot or a time."""

from __future__ import annotations

import uuid

from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.seq_set import SeqSet
from pullstream_emulator.engine.settings import field_mask, resource_settings
from pullstream_emulator.engine.settings.durations import DAY, HOUR, is_timestamp, seconds_of
from pullstream_emulator.error_texts import exists, invalid_argument
from pullstream_protocol import errors, names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .registry import Registry, check_room, page_of_project
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
        check_room("snapshots", registry.snapshots, name)
        subscription = self._attached(request.subscription, now)
        resource_settings.check_labels(request.labels)
        config = pubsub.Snapshot(name=name, topic=subscription.config.topic, labels=request.labels)
        config.expire_time.CopyFrom(_expire_time(subscription.messages.oldest_ms, now))
        log, unfinished = subscription.log, subscription.messages.seqs.copy()
        snapshot = Snapshot(config, subscription.name, log, log.head_seq, unfinished)
        registry.add_snapshot(snapshot)
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
        listed, token = page_of_project(self._registry.snapshots, request)
        return pubsub.ListSnapshotsResponse(
            snapshots=[snapshot.config for snapshot in listed], next_page_token=token
        )

    def delete(self, name: str) -> None:
        """Delete a snapshot, and release the messages that only the snapshot keeps."""
        snapshot = self._registry.snapshot(name)
        self._registry.remove_snapshot(snapshot)
        snapshot.release_records(self._registry.now())
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
            self._seek_snapshot(subscription, request.snapshot, now)
        elif target == "time":
            self._seek_time(subscription, request.time, now)
        else:
            raise errors.InvalidArgument(
                "No target was specified in the SeekRequest. Must specify either a time or a "
                "snapshot."
            )
        self._registry.timetable.watch(subscription, now)
        return pubsub.SeekResponse()

    def _seek_snapshot(self, subscription: Subscription, name: str, now: Now) -> None:
        snapshot = self._registry.snapshot(name)
        if snapshot.log is not subscription.log:
            raise errors.FailedPrecondition(
                f"The subscription's topic {subscription.config.topic} is different from that of "
                f"the snapshot {snapshot.config.topic}; they must match in order for Seek to work."
            )
        messages, log = subscription.messages.seqs, subscription.log
        later = (messages | log.remembered).above(snapshot.since)
        subscription.restart(snapshot.unfinished | later, now)

    def _seek_time(self, subscription: Subscription, time: Timestamp, now: Now) -> None:
        if not is_timestamp(time):
            raise invalid_argument("time")
        # Publish times have whole milliseconds.
        from_ms = time.seconds * 1000 + -(-time.nanos // 1_000_000)
        kept = subscription.messages.seqs | self._within_reach(subscription, now)
        subscription.restart(kept.above(subscription.log.before(from_ms)), now)

    def _within_reach(self, subscription: Subscription, now: Now) -> SeqSet:
        """Return the messages that a subscription can still get again if they are finished."""
        now_ms, log = now.wall * 1000, subscription.log
        own = subscription.policy.retention if subscription.policy.retains_acked else 0
        topics = seconds_of(subscription.config.topic_message_retention_duration)
        # The subscription retains only messages published after its creation. The topic also
        # retains earlier messages.
        of_topic = log.remembered.above(log.up_to(now_ms - topics * 1000))
        of_both = log.remembered.above(log.up_to(now_ms - max(own, topics) * 1000))
        return of_topic | of_both.above(subscription.since)

    def _attached(self, name: str, now: Now) -> Subscription:
        subscription = self._registry.subscription(name)
        subscription.touch(now)
        if subscription.config.detached:
            raise detached(name)
        return subscription


def _expire_time(oldest_ms: int | None, now: Now) -> Timestamp:
    """Return the expiry time: seven days after the oldest unfinished message was published."""
    now_ms = int(now.wall * 1000)
    if oldest_ms is None:
        oldest_ms = now_ms
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
