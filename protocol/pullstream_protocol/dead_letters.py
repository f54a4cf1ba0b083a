"""Attributes of messages in a dead-letter topic.

Google's service adds the attributes that begin with SOURCE_PREFIX. The SDK adds REASON when a
callback rejects a message.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from . import names
from .message_limits import publishable
from .messages import pubsub_pb2 as pubsub

SOURCE_PREFIX = "CloudPubSubDeadLetterSource"
SUBSCRIPTION = f"{SOURCE_PREFIX}Subscription"
SUBSCRIPTION_PROJECT = f"{SOURCE_PREFIX}SubscriptionProject"
REASON = "pullstream_reject_reason"


def source_attributes(subscription: str, attempts: int, published: datetime) -> dict[str, str]:
    """Return the attributes that name the source of a message.

    Args:
        subscription: Full name of the subscription that gave the message up.
        attempts: Number of deliveries.
        published: The publish time in the source topic, in UTC.
    """
    return {
        f"{SOURCE_PREFIX}DeliveryCount": str(attempts),
        SUBSCRIPTION: names.short_id(subscription),
        SUBSCRIPTION_PROJECT: names.project_of(subscription),
        f"{SOURCE_PREFIX}TopicPublishTime": published.isoformat(timespec="milliseconds").replace(
            "+00:00", "Z"
        ),
    }


def original_of(letter: Any) -> pubsub.PubsubMessage:
    """Return a message of any class as it was before it became a dead letter, to publish it."""
    attributes = publishable(letter.attributes)
    return pubsub.PubsubMessage(
        data=letter.data,
        attributes={name: value for name, value in attributes.items() if not _is_added(name)},
        ordering_key=letter.ordering_key,
    )


def _is_added(attribute: str) -> bool:
    """Return whether dead-lettering has added an attribute of this name."""
    return attribute.startswith(SOURCE_PREFIX) or attribute == REASON
