"""The whole broker as one plain object: topics, subscriptions, and time."""

from __future__ import annotations

import heapq
import itertools
import logging
import uuid
from collections.abc import Callable

from protocol import errors, names
from protocol.messages import pubsub_pb2 as pubsub

from . import field_mask, paging, publishing, settings
from .consumer import Consumer
from .record import Delivery
from .subscription import MAX_PER_RESPONSE, MAX_WAITING, Subscription
from .topic import Topic

_log = logging.getLogger("pullstream.emulator")

# Settings that are stored and returned but that nothing acts on yet; using one is worth a warning.
_STORED_ONLY = (
    "bigquery_config",
    "bigtable_config",
    "cloud_storage_config",
    "filter",
    "message_transforms",
    "retain_acked_messages",
    "retry_policy",
)


class Engine:
    """Topics and subscriptions, what is in them, and when something is due.

    Not thread-safe: one owner makes every call. `wall` and `monotonic` are read from the clock by
    the owner's callables, so the engine itself never waits. `on_due` is called with a moment on the
    monotonic clock when something becomes due earlier than all that was announced before; the owner
    calls `advance` then. Every method that takes a request checks it whole before it changes
    anything, and raises an error of protocol.errors otherwise.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        on_due: Callable[[float], None] = lambda due: None,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self.on_due = on_due
        self._topics: dict[str, Topic] = {}
        self._subscriptions: dict[str, Subscription] = {}
        # One counter for every lease of this engine: an ack id is never given twice, even to a
        # subscription that was deleted and made again under the same name.
        self._delivery_numbers = itertools.count(1)
        self._due: list[tuple[float, str]] = []

    # ---- topics --------------------------------------------------------------------------------

    def create_topic(self, config: pubsub.Topic) -> pubsub.Topic:
        names.validate("topics", config.name)
        if config.name in self._topics:
            raise _exists(config.name)
        settings.finish_topic(config)
        self._topics[config.name] = Topic(config)
        return config

    def get_topic(self, name: str) -> pubsub.Topic:
        return self._topic(name).config

    def update_topic(self, request: pubsub.UpdateTopicRequest) -> pubsub.Topic:
        topic = self._topic(request.topic.name)
        config = field_mask.TOPIC.apply(request.update_mask.paths, request.topic, topic.config)
        settings.finish_topic(config)
        topic.config = config
        for subscription in topic.subscriptions.values():
            _show_topic_retention(config, subscription.config)
        return config

    def list_topics(self, request: pubsub.ListTopicsRequest) -> pubsub.ListTopicsResponse:
        prefix = names.validate_project(request.project) + "/topics/"
        mine = (name for name in self._topics if name.startswith(prefix))
        listed, token = paging.page(mine, request.page_size, request.page_token)
        return pubsub.ListTopicsResponse(
            topics=[self._topics[name].config for name in listed], next_page_token=token
        )

    def list_topic_subscriptions(
        self, request: pubsub.ListTopicSubscriptionsRequest
    ) -> pubsub.ListTopicSubscriptionsResponse:
        attached = self._topic(request.topic).subscriptions
        listed, token = paging.page(attached, request.page_size, request.page_token)
        return pubsub.ListTopicSubscriptionsResponse(subscriptions=listed, next_page_token=token)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Its subscriptions stay, with what they have not delivered yet."""
        topic = self._topic(name)
        del self._topics[name]
        for subscription in topic.subscriptions.values():
            subscription.config.topic = names.DELETED_TOPIC

    def publish(self, request: pubsub.PublishRequest) -> list[str]:
        """Append the messages of a request, whole or not at all; returns their ids in order."""
        topic = self._topic(request.topic)
        publishing.check_publish(request)
        return topic.publish(request.messages, self._wall())

    # ---- subscriptions -------------------------------------------------------------------------

    def create_subscription(self, config: pubsub.Subscription) -> pubsub.Subscription:
        names.validate("topics", config.topic)
        if not config.name:
            project = names.project_of(config.topic)
            config.name = names.subscription_path(project, f"subscription-{uuid.uuid4()}")
        names.validate("subscriptions", config.name)
        if config.name in self._subscriptions:
            raise _exists(config.name)
        topic = self._topic(config.topic)
        if config.HasField("dead_letter_policy"):
            self._topic(config.dead_letter_policy.dead_letter_topic)
        self._finish_subscription(config)
        _show_topic_retention(topic.config, config)
        subscription = Subscription(config, self._delivery_numbers)
        self._subscriptions[config.name] = subscription
        topic.subscriptions[config.name] = subscription
        return config

    def get_subscription(self, name: str) -> pubsub.Subscription:
        return self._subscription(name).config

    def update_subscription(self, request: pubsub.UpdateSubscriptionRequest) -> pubsub.Subscription:
        subscription = self._subscription(request.subscription.name)
        config = field_mask.SUBSCRIPTION.apply(
            request.update_mask.paths, request.subscription, subscription.config
        )
        if config.HasField("dead_letter_policy"):
            dead_letter_topic = config.dead_letter_policy.dead_letter_topic
            # One that was deleted since it was named is no obstacle to other changes.
            if dead_letter_topic != subscription.config.dead_letter_policy.dead_letter_topic:
                self._topic(dead_letter_topic)
        self._finish_subscription(config)
        subscription.config = config
        return config

    def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> None:
        subscription = self._subscription(request.subscription)
        subscription.config.push_config.CopyFrom(request.push_config)

    def list_subscriptions(
        self, request: pubsub.ListSubscriptionsRequest
    ) -> pubsub.ListSubscriptionsResponse:
        prefix = names.validate_project(request.project) + "/subscriptions/"
        mine = (name for name in self._subscriptions if name.startswith(prefix))
        listed, token = paging.page(mine, request.page_size, request.page_token)
        return pubsub.ListSubscriptionsResponse(
            subscriptions=[self._subscriptions[name].config for name in listed],
            next_page_token=token,
        )

    def delete_subscription(self, name: str) -> None:
        """Delete a subscription and its backlog; its open streams and pulls end with NOT_FOUND."""
        subscription = self._subscription(name)
        del self._subscriptions[name]
        topic = self._topics.get(subscription.config.topic)
        if topic is not None:
            topic.subscriptions.pop(name, None)
        subscription.close(_missing(name))

    def backlog(self, name: str) -> int:
        """Messages of a subscription that are not acknowledged for good."""
        return self._subscription(name).backlog

    def waiting_pulls(self, name: str) -> int:
        """Pull calls that wait for messages of a subscription now."""
        return self._subscription(name).waiting_pulls

    # ---- delivery ------------------------------------------------------------------------------

    def join(self, name: str, consumer: Consumer) -> Subscription:
        """Let `consumer` take from a subscription."""
        subscription = self._subscription(name)
        config = subscription.config
        if config.push_config.push_endpoint or any(
            config.HasField(export)
            for export in ("bigquery_config", "bigtable_config", "cloud_storage_config")
        ):
            raise errors.FailedPrecondition(
                "This method is not supported for this subscription type."
            )
        if consumer.is_pull and subscription.waiting_pulls >= MAX_WAITING:
            raise errors.ResourceExhausted(
                f"Too many pull requests wait on {names.short_id(name)}; "
                f"the maximum is {MAX_WAITING}."
            )
        subscription.join(consumer)
        return subscription

    def take(
        self, subscription: Subscription, consumer: Consumer, limit: int = MAX_PER_RESPONSE
    ) -> list[tuple[str, Delivery]]:
        taken = subscription.take(consumer, self._monotonic(), limit)
        if taken:
            self._watch(subscription)
        return taken

    def stale(self, name: str, ack_ids: list[str]) -> list[str]:
        """Those of some ack ids that stand for no lease (any more)."""
        return self._subscription(name).stale(ack_ids)

    def acknowledge(self, name: str, ack_ids: list[str]) -> list[str]:
        """Acknowledge messages; returns the ids that were no longer valid."""
        return self._subscription(name).acknowledge(_some(ack_ids))

    def modify_ack_deadline(self, name: str, ack_ids: list[str], seconds: int) -> list[str]:
        """Extend leases, or end them (0 seconds); returns the ids that were no longer valid."""
        subscription = self._subscription(name)
        settings.check_ack_deadline(seconds, minimum=0)
        stale = subscription.modify_ack_deadline(_some(ack_ids), seconds, self._monotonic())
        self._watch(subscription)
        return stale

    def disconnect(self, reason: errors.RpcError) -> None:
        """Tell every open stream and waiting pull to end with `reason`."""
        for subscription in self._subscriptions.values():
            subscription.close(reason)

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """The earliest moment at which `advance` may have something to do."""
        return self._due[0][0] if self._due else None

    def advance(self) -> None:
        """Do what is due by now: end leases, and so on."""
        now = self._monotonic()
        while self._due and self._due[0][0] <= now:
            due, name = heapq.heappop(self._due)
            subscription = self._subscriptions.get(name)
            if subscription is None or subscription.announced_due != due:
                # Deleted since, or an earlier moment was announced after this one.
                continue
            subscription.announced_due = None
            subscription.advance(now)
            self._watch(subscription)

    def _watch(self, subscription: Subscription) -> None:
        """Announce the subscription's next due moment, unless an earlier one is announced."""
        due = subscription.next_due()
        announced = subscription.announced_due
        if due is None or (announced is not None and announced <= due):
            return
        subscription.announced_due = due
        heapq.heappush(self._due, (due, subscription.config.name))
        if self._due[0][0] == due:
            self.on_due(due)

    # ---- look-ups ------------------------------------------------------------------------------

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise _missing(names.validate("topics", name))
        return topic

    def _subscription(self, name: str) -> Subscription:
        subscription = self._subscriptions.get(name)
        if subscription is None:
            raise _missing(names.validate("subscriptions", name))
        return subscription

    def _finish_subscription(self, config: pubsub.Subscription) -> None:
        settings.finish_subscription(config)
        set_fields = {field.name for field, _ in config.ListFields()}
        unused = [name for name in _STORED_ONLY if name in set_fields]
        if config.push_config.push_endpoint:
            unused.append("push_config")
        if config.HasField("dead_letter_policy"):
            unused.append("dead_letter_policy (attempts are counted, nothing is forwarded)")
        if unused:
            _log.warning(
                "%s: stored but not acted on by this broker: %s", config.name, ", ".join(unused)
            )


def _show_topic_retention(topic: pubsub.Topic, subscription: pubsub.Subscription) -> None:
    subscription.ClearField("topic_message_retention_duration")
    if topic.HasField("message_retention_duration"):
        subscription.topic_message_retention_duration.CopyFrom(topic.message_retention_duration)


def _some(ack_ids: list[str]) -> list[str]:
    if not ack_ids:
        raise errors.InvalidArgument("You have not specified an ack ID in the request.")
    return ack_ids


def _missing(name: str) -> errors.NotFound:
    return errors.NotFound(f"Resource not found (resource={names.short_id(name)}).")


def _exists(name: str) -> errors.AlreadyExists:
    return errors.AlreadyExists(
        f"Resource already exists in the project (resource={names.short_id(name)})."
    )
