"""Messages that failed too often, on their way to another topic."""

from __future__ import annotations

import datetime

from protocol import names
from protocol.messages import pubsub_pb2 as pubsub

from .record import Delivery

_PREFIX = "CloudPubSubDeadLetterSource"


def dead_letter(delivery: Delivery, subscription: str) -> pubsub.PubsubMessage:
    """What is published to the dead-letter topic: the message, and where it comes from."""
    message = delivery.record.message()
    message.attributes[f"{_PREFIX}DeliveryCount"] = str(delivery.attempts)
    message.attributes[f"{_PREFIX}Subscription"] = names.short_id(subscription)
    message.attributes[f"{_PREFIX}SubscriptionProject"] = names.project_of(subscription)
    published = datetime.datetime.fromtimestamp(
        delivery.record.publish_ms / 1000, tz=datetime.timezone.utc
    )
    text = published.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    message.attributes[f"{_PREFIX}TopicPublishTime"] = text
    return message
