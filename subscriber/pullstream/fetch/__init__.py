"""Unary pulls that report why they returned: `client.fetch`."""

from .columns import AsyncFetchedColumns, FetchedColumns
from .messages import AsyncFetchedMessages, FetchedMessages
from .protocol import Reason

__all__ = [
    "AsyncFetchedColumns",
    "AsyncFetchedMessages",
    "FetchedColumns",
    "FetchedMessages",
    "Reason",
]
