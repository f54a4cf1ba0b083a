"""A subscription's settings, parsed once: filter, retry policy, retention, dead letter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pullstream_emulator.engine.settings.durations import seconds_of
from pullstream_protocol.filter import compile_filter
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# Far more than the longest backoff needs. A float that is doubled more often overflows at some
# point.
_MAX_DOUBLINGS = 60


class RetryPolicy:
    """Exponential backoff: the wait doubles after each failed attempt.

    Args:
        minimum: The wait after the first failed attempt, in seconds.
        maximum: The longest wait, in seconds.
    """

    def __init__(self, minimum: float, maximum: float) -> None:
        self._minimum = minimum
        self._maximum = maximum

    @classmethod
    def from_subscription(cls, subscription: pubsub.Subscription) -> RetryPolicy:
        """Return the policy of a subscription. A subscription without a policy has no wait."""
        if not subscription.HasField("retry_policy"):
            return cls(0, 0)
        policy = subscription.retry_policy
        return cls(seconds_of(policy.minimum_backoff), seconds_of(policy.maximum_backoff))

    def delay(self, attempts: int) -> float:
        """Return the seconds to wait after this number of failed attempts (at least 1)."""
        doublings = min(attempts - 1, _MAX_DOUBLINGS)
        return min(math.ldexp(self._minimum, doublings), self._maximum)


class SubscriptionPolicy(NamedTuple):
    """A subscription's settings, parsed.

    Attributes:
        ordered: Whether messages with an ordering key are delivered in order.
        exactly_once: Whether exactly-once delivery is enabled.
        retention: Seconds that an unfinished message is kept after publishing.
        retains_acked: Whether finished messages are kept as long, for a seek.
        ttl: Seconds without a consumer or a call after which the subscription expires; None: never.
        accepts: The filter; None lets every message pass.
        retry: The retry policy.
        dead_letter_topic: The topic for messages that failed too often, "" for none.
        max_attempts: Number of failed deliveries after which a message moves to
            `dead_letter_topic`; 0: no limit.
    """

    ordered: bool
    exactly_once: bool
    retention: float
    retains_acked: bool
    ttl: float | None
    accepts: Callable[[Mapping[str, str]], bool] | None
    retry: RetryPolicy
    dead_letter_topic: str
    max_attempts: int

    @classmethod
    def from_config(cls, config: pubsub.Subscription) -> SubscriptionPolicy:
        """Parse the settings of a subscription, and compile its filter."""
        ttl = config.expiration_policy.ttl if config.expiration_policy.HasField("ttl") else None
        dead_letter = config.dead_letter_policy
        return cls(
            ordered=config.enable_message_ordering,
            exactly_once=config.enable_exactly_once_delivery,
            # A subscription keeps messages at least as long as its topic.
            retention=max(
                seconds_of(config.message_retention_duration),
                seconds_of(config.topic_message_retention_duration),
            ),
            retains_acked=config.retain_acked_messages,
            ttl=None if ttl is None else seconds_of(ttl),
            accepts=compile_filter(config.filter) if config.filter else None,
            retry=RetryPolicy.from_subscription(config),
            dead_letter_topic=dead_letter.dead_letter_topic,
            max_attempts=dead_letter.max_delivery_attempts,
        )
