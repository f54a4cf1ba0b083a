"""A streaming-pull subscriber and a publisher for servers of the google.pubsub.v1 API."""

from typing import TYPE_CHECKING

from pullstream_protocol.channels import ChannelLimits, ChannelPublisher
from pullstream_protocol.version import VERSION

# For names such as `pubsub_v1.types.FlowControl` of the official client. Not in __all__: `from
# pullstream import *` would hide the standard library's `types`.
from . import exceptions as exceptions
from . import feeds as feeds
from . import futures as futures
from . import message as message
from . import subscriber as subscriber
from . import types as types
from .ack_future import AckFuture
from .async_client import AsyncSubscriberClient
from .client import SubscriberClient
from .columns import MessageColumns
from .dedupe import Dedupe
from .exceptions import (
    AcknowledgeError,
    AcknowledgeStatus,
    ForkedProcess,
    PullTimeout,
    SubscriberClosed,
)
from .feeds import FrameStream, Reading, WatchFuture
from .fetch import AsyncFetchedColumns, AsyncFetchedMessages, FetchedColumns, FetchedMessages
from .flow_control import FlowControl
from .follow import CheckpointFile, Follower, ServerCursor
from .futures import StreamingPullFuture
from .hooks import Hooks, PublisherHooks, StateChange
from .listen import ChannelFailure, ChannelMessage, ChannelSubscriber, Dropped, Reset
from .message import Message, MessageBatch
from .message_stream import MessageStream
from .publisher import (
    AsyncPublisherClient,
    BatchSettings,
    FlowControlLimitError,
    LimitExceededBehavior,
    MessageTooLargeError,
    PublisherClient,
    PublisherClosed,
    PublisherOptions,
    PublishError,
    PublishFlowControl,
    PublishFuture,
    PublishHedging,
    PublishManyFuture,
    PublishToPausedOrderingKeyException,
)
from .runtime.lifecycle import SubscriptionState
from .scheduling import scheduler as scheduler
from .scheduling.coroutines import CoroutineScheduler
from .scheduling.scheduler import Scheduler, ThreadScheduler
from .schemas import SchemaServiceClient
from .statistics import Latency, PublisherStatistics, Statistics, StreamStatistics
from .topics import TopicAdminClient

__all__ = [
    "AckFuture",
    "AcknowledgeError",
    "AcknowledgeStatus",
    "AsyncFetchedColumns",
    "AsyncFetchedMessages",
    "AsyncPublisherClient",
    "AsyncSubscriberClient",
    "BatchSettings",
    "ChannelFailure",
    "ChannelLimits",
    "ChannelMessage",
    "ChannelPublisher",
    "ChannelSubscriber",
    "CheckpointFile",
    "CoroutineScheduler",
    "Dedupe",
    "Dropped",
    "FetchedColumns",
    "FetchedMessages",
    "FlowControl",
    "FlowControlLimitError",
    "Follower",
    "ForkedProcess",
    "FrameStream",
    "Hooks",
    "Latency",
    "LimitExceededBehavior",
    "Message",
    "MessageBatch",
    "MessageColumns",
    "MessageStream",
    "MessageTooLargeError",
    "PublishError",
    "PublishFlowControl",
    "PublishFuture",
    "PublishHedging",
    "PublishManyFuture",
    "PublishToPausedOrderingKeyException",
    "PublisherClient",
    "PublisherClosed",
    "PublisherHooks",
    "PublisherOptions",
    "PublisherStatistics",
    "PullTimeout",
    "Reading",
    "Reset",
    "Scheduler",
    "SchemaServiceClient",
    "ServerCursor",
    "StateChange",
    "Statistics",
    "StreamStatistics",
    "StreamingPullFuture",
    "SubscriberClient",
    "SubscriberClosed",
    "SubscriptionState",
    "ThreadScheduler",
    "TopicAdminClient",
    "WatchFuture",
]

__version__ = VERSION

# Classes of the official package. A program that imports pullstream in its place may look for them
# here.
_GOOGLES = ("PublisherAsyncClient",)

# Hidden from type checkers, which would otherwise accept every name.
if not TYPE_CHECKING:

    def __getattr__(name):
        hint = ""
        if name in _GOOGLES:
            hint = f"; this package does not have it: import {name} from google.cloud.pubsub_v1"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
