"""Synchronous pulls that say why they ended: `client.fetch`."""

from .messages import AsyncFetchedMessages, FetchedMessages
from .rules import Reason

__all__ = ["AsyncFetchedMessages", "FetchedMessages", "Reason"]
