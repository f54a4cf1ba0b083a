"""What a subscription's settings mean, in the form in which its every step needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from protocol.messages import pubsub_pb2 as pubsub

from .backoff import RetryPolicy
from .durations import seconds_of
from .filter import compile_filter


class Terms(NamedTuple):
    """
    retention: seconds that an unfinished message is kept after its publishing.
    retains_acked: finished ones are kept so long too, for a seek.
    ttl: seconds without a consumer or a call after which the subscription expires; None: never.
    accepts: the filter; None lets every message pass.
    max_attempts: deliveries after which a message goes to `dead_letter_topic`; 0 for no limit.
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
    def of(cls, config: pubsub.Subscription) -> Terms:
        ttl = config.expiration_policy.ttl if config.expiration_policy.HasField("ttl") else None
        dead_letter = config.dead_letter_policy
        return cls(
            ordered=config.enable_message_ordering,
            exactly_once=config.enable_exactly_once_delivery,
            # What the topic retains is always within a subscription's reach.
            retention=max(
                seconds_of(config.message_retention_duration),
                seconds_of(config.topic_message_retention_duration),
            ),
            retains_acked=config.retain_acked_messages,
            ttl=None if ttl is None else seconds_of(ttl),
            accepts=compile_filter(config.filter) if config.filter else None,
            retry=RetryPolicy.of(config),
            dead_letter_topic=dead_letter.dead_letter_topic,
            max_attempts=dead_letter.max_delivery_attempts,
        )
