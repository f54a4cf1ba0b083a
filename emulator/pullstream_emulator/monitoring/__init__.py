"""The state of a running broker in numbers: counters, status, metrics, health."""

from .counters import Counters
from .status import SubscriptionStatus, TopicStatus, subscription_status, topic_status

__all__ = [
    "Counters",
    "SubscriptionStatus",
    "TopicStatus",
    "subscription_status",
    "topic_status",
]
