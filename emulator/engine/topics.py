"""Topics: making, changing, listing and deleting them, and publishing to one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

from emulator.refusals import exists
from protocol import errors, names
from protocol.messages import pubsub_pb2 as pubsub

from . import field_mask, paging, publishing, settings
from .durations import seconds_of
from .log import Log
from .moment import Moment
from .record import Record
from .registry import Registry, page_of_project
from .topic import Topic

_log = logging.getLogger("pullstream.emulator")

# Settings that are stored and returned but that nothing acts on; using one is worth a warning.
_STORED_ONLY = ("ingestion_data_source_settings", "kms_key_name", "message_transforms")

Validate = Callable[[pubsub.Topic, Sequence[pubsub.PubsubMessage]], None]
CheckSettings = Callable[[pubsub.SchemaSettings], None]

# Under this name the topic itself asks its log to keep history.
_OWN = ""


class Topics:
    """All topics of an engine.

    validate: called with a topic that has schema settings and the messages for it, before a publish
        is applied; it raises InvalidArgument, or completes their attributes.
    check_settings: called with schema settings that are about to be stored.
    max_bytes: most bytes of kept messages in the engine; None for no limit.
    on_deleted: called with the name of a topic that is gone, before anybody else learns of it.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        validate: Validate | None,
        check_settings: CheckSettings | None,
        max_bytes: int | None,
    ) -> None:
        self._registry = registry
        self.validate = validate
        self.check_settings = check_settings
        self._max_bytes = max_bytes
        self.on_deleted: Callable[[str], None] = lambda name: None

    def create(self, config: pubsub.Topic) -> pubsub.Topic:
        names.validate("topics", config.name)
        if config.name in self._registry.topics:
            raise exists(config.name)
        self._registry.check_room("topics", self._registry.topics, config.name)
        self._finish(config, pubsub.SchemaSettings())
        self._registry.saved(self.enter(config, self._registry.new_log(config.name)))
        return config

    def enter(self, config: pubsub.Topic, log: Log, last_publish_ms: int = 0) -> Topic:
        """Enter a topic whose messages are in `log`."""
        topic = Topic(config, log, self._registry.observer, last_publish_ms)
        self._registry.topics[config.name] = topic
        self._retain(topic)
        return topic

    def get(self, name: str) -> pubsub.Topic:
        return self._registry.topic(name).config

    def update(self, request: pubsub.UpdateTopicRequest) -> pubsub.Topic:
        topic = self._registry.topic(request.topic.name)
        config = field_mask.TOPIC.apply(request.update_mask.paths, request.topic, topic.config)
        self._finish(config, topic.config.schema_settings)
        topic.config = config
        self._registry.saved(topic)
        if topic.feed is not None:
            topic.feed.reconfigured()
        self._retain(topic)
        for subscription in topic.subscriptions.values():
            shown = deepcopy(subscription.config)
            show_retention(config, shown)
            if shown != subscription.config:
                self._registry.configure(subscription, shown)
        return config

    def list(self, request: pubsub.ListTopicsRequest) -> pubsub.ListTopicsResponse:
        listed, token = page_of_project("topics", self._registry.topics, request)
        return pubsub.ListTopicsResponse(
            topics=[topic.config for topic in listed], next_page_token=token
        )

    def list_subscriptions(
        self, request: pubsub.ListTopicSubscriptionsRequest
    ) -> pubsub.ListTopicSubscriptionsResponse:
        attached = self._registry.topic(request.topic).subscriptions
        listed, token = paging.page(attached, request.page_size, request.page_token)
        return pubsub.ListTopicSubscriptionsResponse(subscriptions=listed, next_page_token=token)

    def list_snapshots(
        self, request: pubsub.ListTopicSnapshotsRequest
    ) -> pubsub.ListTopicSnapshotsResponse:
        log = self._registry.topic(request.topic).log
        of_topic = (name for name, s in self._registry.snapshots.items() if s.log is log)
        listed, token = paging.page(of_topic, request.page_size, request.page_token)
        return pubsub.ListTopicSnapshotsResponse(snapshots=listed, next_page_token=token)

    def delete(self, name: str) -> None:
        """Delete a topic. Its subscriptions stay, with what they have not delivered yet.

        So do its snapshots. Neither belongs to a topic that is made again under the name.
        """
        registry = self._registry
        topic = registry.topic(name)
        del registry.topics[name]
        topic.log.is_deleted = True
        self.on_deleted(name)
        if topic.feed is not None:
            topic.feed.close()
        topic.log.keep_for(_OWN, None)
        registry.trim(topic.log)
        for subscription in topic.subscriptions.values():
            orphan = deepcopy(subscription.config)
            orphan.topic = names.DELETED_TOPIC
            orphan.ClearField("topic_message_retention_duration")
            registry.configure(subscription, orphan)
        for snapshot in registry.snapshots.values():
            if snapshot.log is topic.log:
                snapshot.config.topic = names.DELETED_TOPIC
                registry.saved(snapshot)
        registry.removed(topic)

    def forget_schema(self, name: str) -> None:
        for topic in self._registry.topics.values():
            if topic.config.schema_settings.schema == name:
                config = deepcopy(topic.config)
                config.schema_settings.schema = names.DELETED_SCHEMA
                topic.config = config
                self._registry.saved(topic)

    def publish(self, request: pubsub.PublishRequest) -> Sequence[str]:
        """Append the messages of a request, whole or not at all; returns their ids in order."""
        topic = self._registry.topic(request.topic)
        publishing.check_publish(request)
        return self.append_checked(topic, request.messages, request.ByteSize())

    def append_checked(
        self, topic: Topic, messages: Sequence[pubsub.PubsubMessage], size: int
    ) -> Sequence[str]:
        """Publish what is within the limits of a request, if topic and memory allow it.

        size: how many bytes the request has.
        """
        if self.validate is not None and topic.config.HasField("schema_settings"):
            self.validate(topic.config, messages)
        if self._max_bytes is not None:
            self.check_room(size)
        return self.append(topic, messages)

    def append(
        self, topic: Topic, messages: Sequence[pubsub.PubsubMessage], *, forced: bool = False
    ) -> Sequence[str]:
        """Publish what needs no check; `forced`: nor does it ask a feed."""
        now = self._registry.now()
        ids = topic.publish(messages, now.wall, forced=forced)
        self._watch(topic, now)
        return ids

    def append_records(
        self,
        topic: Topic,
        records: Sequence[Record],
        messages: Iterable[pubsub.PubsubMessage],
        now: Moment,
    ) -> None:
        """Append what is complete and needs no check; see Topic.append."""
        topic.append(records, messages)
        self._watch(topic, now)

    @property
    def room(self) -> int:
        """How many bytes of messages may still be kept."""
        if self._max_bytes is None:
            return sys.maxsize
        return self._max_bytes - self._registry.usage.bytes

    def check_room(self, size: int) -> None:
        """Refuse a request of so many bytes if there is no room for it."""
        if size > self.room:
            raise errors.ResourceExhausted(
                f"The broker keeps {self._registry.usage.bytes} bytes of messages and may keep "
                f"{self._max_bytes}; there is no room for this request. Acknowledge messages, or "
                "let feeds keep less."
            )

    def _watch(self, topic: Topic, now: Moment) -> None:
        """Something was appended to a topic."""
        timetable = self._registry.timetable
        if topic.log.history:
            timetable.watch(topic.log, now)
        for subscription in topic.subscriptions.values():
            if subscription.due_is_nearer:
                timetable.watch(subscription, now)

    def _finish(self, config: pubsub.Topic, checked: pubsub.SchemaSettings) -> None:
        settings.finish_topic(config)
        # A schema that was deleted since it was named is no obstacle to other changes.
        is_new = config.HasField("schema_settings") and config.schema_settings != checked
        if self.check_settings is not None and is_new:
            self.check_settings(config.schema_settings)
        warn_stored_only(config, _STORED_ONLY)

    def _retain(self, topic: Topic) -> None:
        """Let the log keep what the topic's settings ask for."""
        retention = None
        if topic.config.HasField("message_retention_duration"):
            retention = seconds_of(topic.config.message_retention_duration)
        topic.log.keep_for(_OWN, retention)
        self._registry.trim(topic.log)


def show_retention(topic: pubsub.Topic, subscription: pubsub.Subscription) -> None:
    """A subscription's settings tell its topic's retention, too."""
    subscription.ClearField("topic_message_retention_duration")
    if topic.HasField("message_retention_duration"):
        subscription.topic_message_retention_duration.CopyFrom(topic.message_retention_duration)


def warn_stored_only(
    config: pubsub.Topic | pubsub.Subscription, stored_only: Sequence[str]
) -> None:
    """Say which of the settings in use nothing acts on."""
    in_use = {field.name for field, _ in config.ListFields()}
    unused = [setting for setting in stored_only if setting in in_use]
    if unused:
        _log.warning(
            "%s: stored but not acted on by this broker: %s", config.name, ", ".join(unused)
        )
