"""The state of a running broker in numbers: counters, status, metrics, health."""

from .counters import Counters
from .status import (
    SubscriptionStatus,
    TopicStatus,
    cursor_status,
    feed_status,
    router_status,
    schema_status,
    subscription_status,
    topic_status,
)

__all__ = [
    "Counters",
    "SubscriptionStatus",
    "TopicStatus",
    "cursor_status",
    "feed_status",
    "router_status",
    "schema_status",
    "subscription_status",
    "topic_status",
]
