"""Methods to create, change, list, detach and delete subscriptions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from copy import deepcopy

from pullstream_emulator.engine.delivery.ack_ids import AckNumbers
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.settings import field_mask, resource_settings
from pullstream_emulator.engine.settings.stored_settings import EXPORTS
from pullstream_emulator.error_texts import exists, invalid_argument, limit_exceeded, missing
from pullstream_protocol import errors, names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .registry import Registry, check_room, page_of_project
from .topics import show_retention, warn_stored_only

# Counted over all projects (https://cloud.google.com/pubsub/quotas#resource_limits).
MAX_PER_TOPIC = 10_000

# Settings that are stored and returned but have no effect. Their use is logged as a warning.
_STORED_ONLY = (*EXPORTS, "message_transforms")


class Subscriptions:
    """All subscriptions of an engine.

    Args:
        registry: The resources of the engine.
        min_ack_deadline: The shortest ack deadline that may be set, in seconds.

    Attributes:
        numbers: The numbers of leases, which all subscriptions share.
        on_push: Called with the name of a subscription after a change that affects its push
            delivery.
    """

    def __init__(
        self, registry: Registry, *, min_ack_deadline: int, on_push: Callable[[str], None]
    ) -> None:
        self._registry = registry
        self.numbers = AckNumbers()
        self._min_ack_deadline = min_ack_deadline
        self.on_push = on_push

    # ---- the API -------------------------------------------------------------------------------

    def create(self, config: pubsub.Subscription) -> pubsub.Subscription:
        """Attach a new subscription to its topic, and return its settings with the defaults."""
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
        check_room("subscriptions", registry.subscriptions, config.name)
        if len(topic.subscriptions) >= MAX_PER_TOPIC:
            count = len(topic.subscriptions)
            raise limit_exceeded("subscriptions-per-topic", count, MAX_PER_TOPIC)
        self._finish(config)
        # Only the broker sets this field. The caller's value is ignored.
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
        """Register and return a subscription that takes its messages from `log`."""
        subscription = Subscription(
            config,
            log,
            self.numbers,
            self._registry.now(),
            announce=self._registry.timetable.announce,
            topic_exists=self._registry.topics.__contains__,
            observer=self._registry.observer,
        )
        self._registry.subscriptions[config.name] = subscription
        return subscription

    def get(self, name: str) -> pubsub.Subscription:
        """Return the settings of a subscription. This counts as a use of it."""
        return self._used(name).config

    def update(self, request: pubsub.UpdateSubscriptionRequest) -> pubsub.Subscription:
        """Change the settings in the field mask, and return all settings of the subscription."""
        subscription = self._used(request.subscription.name)
        config = field_mask.SUBSCRIPTION.apply(
            request.update_mask.paths, request.subscription, subscription.config
        )
        if config.HasField("dead_letter_policy"):
            before, after = subscription.config, config.dead_letter_policy
            # A dead-letter topic that was deleted meanwhile does not prevent other changes.
            is_same = before.dead_letter_policy.dead_letter_topic == after.dead_letter_topic
            if not (before.HasField("dead_letter_policy") and is_same):
                self._registry.topic(after.dead_letter_topic)
        self._finish(config)
        self._configure(subscription, config)
        return config

    def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> None:
        """Replace the push settings. If an endpoint appears, pulling consumers end."""
        subscription = self._used(request.subscription)
        config = deepcopy(subscription.config)
        config.push_config.CopyFrom(request.push_config)
        self._finish(config)
        self._configure(subscription, config)

    def list(self, request: pubsub.ListSubscriptionsRequest) -> pubsub.ListSubscriptionsResponse:
        """Return one page of a project's subscriptions, including detached ones."""
        listed, token = page_of_project(self._registry.subscriptions, request)
        return pubsub.ListSubscriptionsResponse(
            subscriptions=[subscription.config for subscription in listed], next_page_token=token
        )

    def delete(self, name: str) -> None:
        """Delete a subscription. Its open streams and waiting Pull calls end with NOT_FOUND."""
        subscription = self._registry.subscription(name)
        del self._registry.subscriptions[name]
        self._cut_off(subscription, report=False)
        self._registry.timetable.forget(subscription)
        self._registry.removed(subscription)
        subscription.consumers.close_all(missing(name))
        if is_push(subscription.config):
            self.on_push(name)

    def detach(self, name: str) -> None:
        """Detach a subscription from its topic. It loses its backlog and gets no new messages."""
        subscription = self._used(name)
        if subscription.config.detached:
            return
        self._cut_off(subscription, report=True)
        config = deepcopy(subscription.config)
        config.detached = True
        self._configure(subscription, config)
        subscription.consumers.close_all(detached(name))

    def _cut_off(self, subscription: Subscription, *, report: bool) -> None:
        topic = self._registry.topics.get(subscription.config.topic)
        if topic is not None:
            topic.subscriptions.pop(subscription.name, None)
        subscription.drop_all(self._registry.now(), report=report)
        self._registry.trim(subscription.log)

    # ---- effects of new settings ---------------------------------------------------------------

    def _used(self, name: str) -> Subscription:
        """Return a subscription that a call uses, which postpones its expiry."""
        subscription = self._registry.subscription(name)
        subscription.touch(self._registry.now())
        return subscription

    def _finish(self, config: pubsub.Subscription) -> None:
        resource_settings.finish_subscription(config, self._min_ack_deadline)
        if config.enable_exactly_once_delivery and not is_pull(config):
            raise invalid_argument(
                "enable_exactly_once_delivery: a subscription that is pushed or exported cannot "
                "use exactly-once delivery"
            )
        warn_stored_only(config, _STORED_ONLY)

    def _configure(self, subscription: Subscription, config: pubsub.Subscription) -> None:
        before = subscription.config
        self._registry.configure(subscription, config)
        if is_pull(before) and not is_pull(config):
            # From now on only the push or the export may take its messages.
            subscription.consumers.close_all(wrong_kind())
        if before.push_config != config.push_config or is_push(before) != is_push(config):
            self.on_push(subscription.name)

    # ---- push ----------------------------------------------------------------------------------

    def pushed(self) -> Sequence[str]:
        """Return the names of the subscriptions that are pushed to an endpoint."""
        known = self._registry.subscriptions
        return [name for name, subscription in known.items() if is_push(subscription.config)]


def is_push(config: pubsub.Subscription) -> bool:
    """Return whether the broker sends the messages to an endpoint."""
    return bool(config.push_config.push_endpoint) and not config.detached


def is_pull(config: pubsub.Subscription) -> bool:
    """Return whether consumers pull the messages."""
    exported = any(config.HasField(export) for export in EXPORTS)
    return not exported and not config.push_config.push_endpoint


def detached(name: str) -> errors.FailedPrecondition:
    """Return the error for calls that need the topic or backlog of a detached subscription."""
    return errors.FailedPrecondition(
        f"The subscription is detached from its topic (resource={names.short_id(name)})."
    )


def wrong_kind() -> errors.FailedPrecondition:
    """Return the error for pulling from a subscription that is pushed or exported."""
    return errors.FailedPrecondition("This method is not supported for this subscription type.")
