"""Methods to create, change, list and delete topics, and to publish to a topic."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.record import Record, RecordRun
from pullstream_emulator.engine.settings import field_mask, resource_settings
from pullstream_emulator.engine.settings.durations import seconds_of
from pullstream_emulator.error_texts import exists
from pullstream_protocol import errors, names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import publish_columns, publish_limits
from .registry import Registry, check_room, page, page_of_project
from .topic import Topic

_log = logging.getLogger("pullstream.emulator")

# Settings that are stored and returned but have no effect. Their use is logged as a warning.
_STORED_ONLY = ("ingestion_data_source_settings", "kms_key_name", "message_transforms")

Validate = Callable[[pubsub.Topic, Sequence[pubsub.PubsubMessage]], None]
CheckSettings = Callable[[pubsub.SchemaSettings], None]

# The name under which the topic itself requests history from its log.
_OWN = ""


class Topics:
    """All topics of an engine.

    Args:
        registry: The resources of the engine.
        validate: Called with a topic that has schema settings and the messages for it, before a
            publish is applied. It raises InvalidArgument, or completes the messages' attributes.
        check_settings: Called with schema settings before they are stored.
        max_bytes: Maximum size of kept messages and of watches in the engine, in bytes; None: no
            limit.
        on_deleted: Called with the name of a deleted topic, before the deletion has other effects.

    Attributes:
        on_full: Called when there is no room for a request. It may free memory.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        validate: Validate | None,
        check_settings: CheckSettings | None,
        max_bytes: int | None,
        on_deleted: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self.validate = validate
        self.check_settings = check_settings
        self._max_bytes = max_bytes
        self._reserved_bytes = 0
        self._on_deleted = on_deleted
        self.on_full: Callable[[], None] = lambda: None

    def create(self, config: pubsub.Topic) -> pubsub.Topic:
        """Register a new topic without messages, and return its settings."""
        names.validate("topics", config.name)
        if config.name in self._registry.topics:
            raise exists(config.name)
        check_room("topics", self._registry.topics, config.name)
        self._finish(config, pubsub.Topic())
        self._registry.saved(self.enter(config, self._registry.new_log(config.name)))
        return config

    def enter(self, config: pubsub.Topic, log: Log, last_publish_ms: int = 0) -> Topic:
        """Register and return a topic.

        Args:
            config: Its settings.
            log: Its messages.
            last_publish_ms: The latest publish time in `log`, in milliseconds since the epoch.
        """
        topic = Topic(config, log, self._registry.observer, last_publish_ms)
        self._registry.topics[config.name] = topic
        self._retain(topic)
        return topic

    def get(self, name: str) -> pubsub.Topic:
        """Return the settings of a topic."""
        return self._registry.topic(name).config

    def update(self, request: pubsub.UpdateTopicRequest) -> pubsub.Topic:
        """Change the settings in the field mask, and show the retention in the subscriptions."""
        topic = self._registry.topic(request.topic.name)
        config = field_mask.TOPIC.apply(request.update_mask.paths, request.topic, topic.config)
        self._finish(config, topic.config)
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
        """Return one page of a project's topics."""
        listed, token = page_of_project(self._registry.topics, request)
        return pubsub.ListTopicsResponse(
            topics=[topic.config for topic in listed], next_page_token=token
        )

    def list_subscriptions(
        self, request: pubsub.ListTopicSubscriptionsRequest
    ) -> pubsub.ListTopicSubscriptionsResponse:
        """Return one page of the names of the subscriptions that are attached to a topic."""
        attached = self._registry.topic(request.topic).subscriptions
        listed, token = page(attached.names_after, request.page_size, request.page_token)
        return pubsub.ListTopicSubscriptionsResponse(subscriptions=listed, next_page_token=token)

    def list_snapshots(
        self, request: pubsub.ListTopicSnapshotsRequest
    ) -> pubsub.ListTopicSnapshotsResponse:
        """Return one page of the names of a topic's snapshots."""
        log = self._registry.topic(request.topic).log
        of_topic = self._registry.snapshots_of(log)
        listed, token = page(of_topic.names_after, request.page_size, request.page_token)
        return pubsub.ListTopicSnapshotsResponse(snapshots=listed, next_page_token=token)

    def delete(self, name: str) -> None:
        """Delete a topic. Its subscriptions stay, with their undelivered messages.

        Its snapshots stay too. Neither belongs to a topic that is created again with the same name.
        """
        registry = self._registry
        topic = registry.topic(name)
        del registry.topics[name]
        topic.log.is_deleted = True
        self._on_deleted(name)
        if topic.feed is not None:
            topic.feed.close()
        topic.log.keep_for(_OWN, None)
        registry.trim(topic.log)
        for subscription in topic.subscriptions.values():
            orphan = deepcopy(subscription.config)
            orphan.topic = names.DELETED_TOPIC
            orphan.ClearField("topic_message_retention_duration")
            registry.configure(subscription, orphan)
        for snapshot in registry.snapshots_of(topic.log).values():
            snapshot.config.topic = names.DELETED_TOPIC
            registry.saved(snapshot)
        registry.removed(topic)

    def forget_schema(self, name: str) -> None:
        """Mark a schema as deleted in the settings of all topics that use it."""
        for topic in self._registry.topics.values():
            if topic.config.schema_settings.schema == name:
                config = deepcopy(topic.config)
                config.schema_settings.schema = names.DELETED_SCHEMA
                topic.config = config
                self._registry.saved(topic)

    def publish(
        self, request: pubsub.PublishRequest, validate: Validate | None = None
    ) -> Sequence[str]:
        """Append all messages of a request, or none of them. Return their IDs in order.

        Args:
            request: The request.
            validate: Used instead of the engine's function.
        """
        topic = self._registry.topic(request.topic)
        size = publish_limits.check_request(request)
        if not topic.config.HasField("schema_settings"):
            columns = publish_columns.read(request)
            if columns is not None:
                if self._max_bytes is not None:
                    self.check_room(size)
                now = self._registry.now()
                ids = topic.publish_columns(columns, request.messages, now)
                self._watch_log(topic, now)
                return ids
        publish_limits.check_messages(request.messages)
        return self.append_checked(topic, request.messages, size, validate)

    def append_checked(
        self,
        topic: Topic,
        messages: Sequence[pubsub.PubsubMessage],
        size: int,
        validate: Validate | None = None,
    ) -> Sequence[str]:
        """Publish messages that are within the limits of a request, and return their IDs.

        Args:
            topic: The topic.
            messages: The messages.
            size: Size of the request, in bytes.
            validate: Used instead of the engine's function.

        Raises:
            InvalidArgument: The messages do not match the topic's schema.
            ResourceExhausted: There is no memory for the messages.
            FailedPrecondition: The topic's feed refuses the messages.
        """
        validate = validate or self.validate
        if validate is not None and topic.config.HasField("schema_settings"):
            validate(topic.config, messages)
        if self._max_bytes is not None:
            self.check_room(size)
        return self.append(topic, messages)

    def append(
        self, topic: Topic, messages: Sequence[pubsub.PubsubMessage], *, forced: bool = False
    ) -> Sequence[str]:
        """Publish messages without a check of schema and memory, and return their IDs.

        Args:
            topic: The topic.
            messages: The messages.
            forced: Whether the topic's feed is not asked either.
        """
        now = self._registry.now()
        ids = topic.publish(messages, now, forced=forced)
        self._watch_log(topic, now)
        return ids

    def append_records(
        self,
        topic: Topic,
        records: Sequence[Record],
        messages: Iterable[pubsub.PubsubMessage],
        now: Now,
    ) -> None:
        """Append complete records without checks; see Topic.append.

        Args:
            topic: The topic.
            records: The records.
            messages: The same messages, decoded.
            now: The present time.
        """
        topic.append(RecordRun.of(records), messages, now)
        self._watch_log(topic, now)

    @property
    def room(self) -> int:
        """Number of further bytes that may be kept."""
        if self._max_bytes is None:
            return sys.maxsize
        usage = self._registry.usage
        return self._max_bytes - usage.bytes - usage.watches - self._reserved_bytes

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve room for a request while it is being checked.

        Raises:
            ResourceExhausted: There is no room for the request.
        """
        self.check_room(size)
        self._reserved_bytes += size
        try:
            yield
        finally:
            self._reserved_bytes -= size

    def check_room(self, size: int) -> None:
        """Raise ResourceExhausted if there is no room for a request of `size` bytes."""
        if size > self.room:
            self._registry.work.finish()
            self.on_full()
        if size > self.room:
            usage = self._registry.usage
            raise errors.ResourceExhausted(
                f"The broker keeps {usage.bytes} bytes of messages, {usage.watches} bytes of "
                f"watches and {self._reserved_bytes} bytes of requests that are being checked. It "
                f"may keep {self._max_bytes} (--max-bytes); there is no room for this request, "
                f"which needs {size}. Acknowledge messages, reduce the limits of feeds, end "
                "watches, or start the broker with a larger --max-bytes."
            )

    def _watch_log(self, topic: Topic, now: Now) -> None:
        if topic.log.history:
            self._registry.timetable.watch(topic.log, now)

    def _finish(self, config: pubsub.Topic, before: pubsub.Topic) -> None:
        resource_settings.finish_topic(config)
        if self.check_settings is not None and config.HasField("schema_settings"):
            # A schema that was deleted meanwhile does not prevent other changes.
            had_settings = before.HasField("schema_settings")
            if not (had_settings and before.schema_settings == config.schema_settings):
                self.check_settings(config.schema_settings)
        warn_stored_only(config, _STORED_ONLY)

    def _retain(self, topic: Topic) -> None:
        """Let the log keep history as long as the topic's settings require."""
        retention = None
        if topic.config.HasField("message_retention_duration"):
            retention = seconds_of(topic.config.message_retention_duration)
        topic.log.keep_for(_OWN, retention)
        self._registry.trim(topic.log)


def show_retention(topic: pubsub.Topic, subscription: pubsub.Subscription) -> None:
    """Copy the retention of a topic into the settings of a subscription."""
    subscription.ClearField("topic_message_retention_duration")
    if topic.HasField("message_retention_duration"):
        subscription.topic_message_retention_duration.CopyFrom(topic.message_retention_duration)


def warn_stored_only(
    config: pubsub.Topic | pubsub.Subscription, stored_only: Sequence[str]
) -> None:
    """Log a warning that names the used settings that have no effect."""
    in_use = {field.name for field, _ in config.ListFields()}
    unused = [setting for setting in stored_only if setting in in_use]
    if unused:
        _log.warning(
            "%s: these settings are stored but have no effect: %s", config.name, ", ".join(unused)
        )
