"""Unary pulls that report why they returned: `client.fetch`."""

from .messages import AsyncFetchedMessages, FetchedMessages
from .protocol import Reason

__all__ = ["AsyncFetchedMessages", "FetchedMessages", "Reason"]
