"""A multithreaded streaming-pull subscriber for anything that speaks google.pubsub.v1."""

from .client import SubscriberClient
from .exceptions import AcknowledgeError, AcknowledgeStatus
from .flow_control import FlowControl
from .futures import AckFuture, StreamingPullFuture
from .message import Message
from .scheduler import Scheduler, ThreadScheduler
from .topics import TopicAdminClient

__all__ = [
    "AckFuture",
    "AcknowledgeError",
    "AcknowledgeStatus",
    "FlowControl",
    "Message",
    "Scheduler",
    "StreamingPullFuture",
    "SubscriberClient",
    "ThreadScheduler",
    "TopicAdminClient",
]
