"""Received messages by columns, without an object for each message."""

from .message_columns import MessageColumns as MessageColumns

__all__ = ["MessageColumns"]
