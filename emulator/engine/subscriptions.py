"""Subscriptions: making, changing, listing, detaching and deleting them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from copy import deepcopy

from emulator.refusals import exists, invalid_argument, limit_exceeded, missing
from protocol import errors, names
from protocol.messages import pubsub_pb2 as pubsub

from . import field_mask, settings
from .log import Log
from .push_config import check_push_config
from .registry import Registry, page_of_project
from .subscription import Subscription
from .topics import show_retention, warn_stored_only

# Whichever projects they are of (https://cloud.google.com/pubsub/quotas#resource_limits).
MAX_PER_TOPIC = 10_000

_EXPORTS = ("bigquery_config", "bigtable_config", "cloud_storage_config")

# Settings that are stored and returned but that nothing acts on; using one is worth a warning.
_STORED_ONLY = (*_EXPORTS, "message_transforms")


class Subscriptions:
    """All subscriptions of an engine.

    numbers: of the leases. One counter for all, so that an ack id is never given twice.
    min_ack_deadline: the shortest that may be set, in seconds.
    on_push: called with the name of a subscription when there is news of how it is pushed.
    """

    def __init__(self, registry: Registry, *, min_ack_deadline: int) -> None:
        self._registry = registry
        self.numbers = itertools.count(1)
        self._min_ack_deadline = min_ack_deadline
        self.on_push: Callable[[str], None] = lambda name: None

    # ---- the API -------------------------------------------------------------------------------

    def create(self, config: pubsub.Subscription) -> pubsub.Subscription:
        registry = self._registry
        names.validate("topics", config.topic)
        if not config.name:
            project = names.project_of(config.topic)
            config.name = names.subscription_path(project, f"subscription-{uuid.uuid4()}")
        names.validate("subscriptions", config.name)
        if config.name in registry.subscriptions:
            raise exists(config.name)
        topic = registry.topic(config.topic)
        if config.HasField("dead_letter_policy"):
            registry.topic(config.dead_letter_policy.dead_letter_topic)
        registry.check_room("subscriptions", registry.subscriptions, config.name)
        if len(topic.subscriptions) >= MAX_PER_TOPIC:
            count = len(topic.subscriptions)
            raise limit_exceeded("subscriptions-per-topic", count, MAX_PER_TOPIC)
        self._finish(config)
        # The broker's to set, whatever the caller sent.
        config.detached = False
        show_retention(topic.config, config)
        subscription = self.new(config, topic.log)
        topic.subscriptions[config.name] = subscription
        registry.saved(subscription)
        registry.timetable.watch(subscription, registry.now())
        if is_push(config):
            self.on_push(config.name)
        return config

    def new(self, config: pubsub.Subscription, log: Log) -> Subscription:
        """Enter a subscription that takes its messages from `log`."""
        subscription = Subscription(
            config,
            log,
            self.numbers,
            self._registry.now(),
            topic_exists=self._registry.topics.__contains__,
            observer=self._registry.observer,
        )
        self._registry.subscriptions[config.name] = subscription
        return subscription

    def get(self, name: str) -> pubsub.Subscription:
        return self._used(name).config

    def update(self, request: pubsub.UpdateSubscriptionRequest) -> pubsub.Subscription:
        subscription = self._used(request.subscription.name)
        config = field_mask.SUBSCRIPTION.apply(
            request.update_mask.paths, request.subscription, subscription.config
        )
        if config.HasField("dead_letter_policy"):
            dead_letter_topic = config.dead_letter_policy.dead_letter_topic
            # One that was deleted since it was named is no obstacle to other changes.
            if dead_letter_topic != subscription.config.dead_letter_policy.dead_letter_topic:
                self._registry.topic(dead_letter_topic)
        self._finish(config)
        self._configure(subscription, config)
        return config

    def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> None:
        subscription = self._used(request.subscription)
        config = deepcopy(subscription.config)
        config.push_config.CopyFrom(request.push_config)
        self._finish(config)
        self._configure(subscription, config)

    def list(self, request: pubsub.ListSubscriptionsRequest) -> pubsub.ListSubscriptionsResponse:
        listed, token = page_of_project("subscriptions", self._registry.subscriptions, request)
        return pubsub.ListSubscriptionsResponse(
            subscriptions=[subscription.config for subscription in listed], next_page_token=token
        )

    def delete(self, name: str) -> None:
        """Delete a subscription and its backlog; its open streams and pulls end with NOT_FOUND."""
        subscription = self._registry.subscription(name)
        del self._registry.subscriptions[name]
        self._cut_off(subscription, tell=False)
        self._registry.timetable.forget(subscription)
        self._registry.removed(subscription)
        subscription.consumers.close(missing(name))
        if is_push(subscription.config):
            self.on_push(name)

    def detach(self, name: str) -> None:
        """Cut a subscription off its topic: its backlog is gone, and nothing comes any more."""
        subscription = self._used(name)
        if subscription.config.detached:
            return
        self._cut_off(subscription, tell=True)
        config = deepcopy(subscription.config)
        config.detached = True
        self._configure(subscription, config)
        subscription.consumers.close(detached(name))

    def _cut_off(self, subscription: Subscription, *, tell: bool) -> None:
        topic = self._registry.topics.get(subscription.config.topic)
        if topic is not None:
            topic.subscriptions.pop(subscription.name, None)
        subscription.drop_all(tell=tell)
        self._registry.trim(subscription.log)

    # ---- what an update changes beside the settings --------------------------------------------

    def _used(self, name: str) -> Subscription:
        """A subscription that a call is about: it is in use, and does not expire."""
        subscription = self._registry.subscription(name)
        subscription.touch(self._registry.now())
        return subscription

    def _finish(self, config: pubsub.Subscription) -> None:
        settings.finish_subscription(config, self._min_ack_deadline)
        check_push_config(config.push_config)
        if config.enable_exactly_once_delivery and not is_pull(config):
            raise invalid_argument(
                "enable_exactly_once_delivery: a subscription that is pushed or exported cannot "
                "have it"
            )
        warn_stored_only(config, _STORED_ONLY)

    def _configure(self, subscription: Subscription, config: pubsub.Subscription) -> None:
        before = subscription.config
        self._registry.configure(subscription, config)
        if is_pull(before) and not is_pull(config):
            # Nobody may take its messages any more but who sends them on.
            subscription.consumers.close(wrong_kind())
        if before.push_config != config.push_config or is_push(before) != is_push(config):
            self.on_push(subscription.name)

    # ---- push ----------------------------------------------------------------------------------

    def pushed(self) -> Sequence[str]:
        """Names of the subscriptions that are pushed to an endpoint."""
        known = self._registry.subscriptions
        return [name for name, subscription in known.items() if is_push(subscription.config)]


def is_push(config: pubsub.Subscription) -> bool:
    """Whether its messages are sent to an endpoint."""
    return bool(config.push_config.push_endpoint) and not config.detached


def is_pull(config: pubsub.Subscription) -> bool:
    """Whether consumers come and take its messages."""
    exported = any(config.HasField(export) for export in _EXPORTS)
    return not exported and not config.push_config.push_endpoint


def detached(name: str) -> errors.FailedPrecondition:
    return errors.FailedPrecondition(
        f"The subscription is detached from its topic (resource={names.short_id(name)})."
    )


def wrong_kind() -> errors.FailedPrecondition:
    return errors.FailedPrecondition("This method is not supported for this subscription type.")
