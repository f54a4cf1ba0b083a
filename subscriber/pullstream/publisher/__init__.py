"""Publishing messages: batches, ordering keys, flow control and retries."""

from . import exceptions as exceptions
from . import futures as futures
from .async_client import AsyncPublisherClient
from .client import Client, PublisherClient
from .exceptions import (
    FlowControlLimitError,
    MessageTooLargeError,
    PublisherClosed,
    PublishError,
    PublishToPausedOrderingKeyException,
)
from .outcome import PublishFuture, PublishManyFuture
from .settings import (
    BatchSettings,
    LimitExceededBehavior,
    PublisherOptions,
    PublishFlowControl,
    PublishHedging,
)

__all__ = [
    "AsyncPublisherClient",
    "BatchSettings",
    "Client",
    "FlowControlLimitError",
    "LimitExceededBehavior",
    "MessageTooLargeError",
    "PublishError",
    "PublishFlowControl",
    "PublishFuture",
    "PublishHedging",
    "PublishManyFuture",
    "PublishToPausedOrderingKeyException",
    "PublisherClient",
    "PublisherClosed",
    "PublisherOptions",
]
