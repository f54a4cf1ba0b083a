"""A multithreaded streaming-pull subscriber for anything that speaks google.pubsub.v1."""

from typing import TYPE_CHECKING

from protocol.channels import ChannelLimits, ChannelPublisher

# For `pubsub_v1.types.FlowControl` and its like, as the official client has them. Not in __all__:
# `from subscriber import *` would hide the standard library's `types`.
from . import exceptions as exceptions
from . import feeds as feeds
from . import futures as futures
from . import message as message
from . import scheduler as scheduler
from . import subscriber as subscriber
from . import types as types
from .async_client import AsyncSubscriberClient
from .client import SubscriberClient
from .coroutines import CoroutineScheduler
from .dedupe import Dedupe
from .exceptions import (
    AcknowledgeError,
    AcknowledgeStatus,
    ForkedProcess,
    PullTimeout,
    SubscriberClosed,
)
from .feeds import FeedsClient, FrameStream, Reading, WatchFuture
from .fetch import AsyncFetchedMessages, FetchedMessages
from .flow_control import FlowControl
from .follow import CheckpointFile, Follower, ServerCursor
from .futures import AckFuture, StreamingPullFuture
from .hooks import Hooks, StateChange
from .listen import ChannelFailure, ChannelMessage, ChannelSubscriber, Dropped, Reset
from .message import Message, MessageBatch
from .message_stream import MessageStream
from .scheduler import Scheduler, ThreadScheduler
from .statistics import Latency, Statistics
from .streaming.state import SubscriptionState
from .topics import TopicAdminClient

__all__ = [
    "AckFuture",
    "AcknowledgeError",
    "AcknowledgeStatus",
    "AsyncFetchedMessages",
    "AsyncSubscriberClient",
    "ChannelFailure",
    "ChannelLimits",
    "ChannelMessage",
    "ChannelPublisher",
    "ChannelSubscriber",
    "CheckpointFile",
    "CoroutineScheduler",
    "Dedupe",
    "Dropped",
    "FeedsClient",
    "FetchedMessages",
    "FlowControl",
    "Follower",
    "ForkedProcess",
    "FrameStream",
    "Hooks",
    "Latency",
    "Message",
    "MessageBatch",
    "MessageStream",
    "PullTimeout",
    "Reading",
    "Reset",
    "Scheduler",
    "ServerCursor",
    "StateChange",
    "Statistics",
    "StreamingPullFuture",
    "SubscriberClient",
    "SubscriberClosed",
    "SubscriptionState",
    "ThreadScheduler",
    "TopicAdminClient",
    "WatchFuture",
]

# Of the official package, whose import may have been exchanged for this one.
_GOOGLES = ("PublisherClient", "PublisherAsyncClient", "SchemaServiceClient")

# Not for type checkers, which would take it that there is every name.
if not TYPE_CHECKING:

    def __getattr__(name):
        hint = ""
        if name in _GOOGLES:
            hint = f": this package receives; take {name} from google.cloud.pubsub_v1, beside it"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
