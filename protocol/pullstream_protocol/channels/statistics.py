"""Statistics of a publisher of channels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """A snapshot of a publisher of channels.

    Attributes:
        subscribers: The number of sessions.
        parked: The number of waiting long polls.
        interests: Channels and keys that have subscribers. Each is counted once.
        waiting: Items in mailboxes. An item that is in several mailboxes is counted in each.
        waiting_bytes: The size of these items, in bytes.
        published: Messages published since the start.
        dropped: Items dropped since the start.
    """

    subscribers: int
    parked: int
    interests: int
    waiting: int
    waiting_bytes: int
    published: int
    dropped: int


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """A snapshot of one subscriber's session.

    Attributes:
        id: The ID of the subscriber.
        channels: The channels to which it is subscribed, by name.
        keys: The number of its subscriptions to channels and keys.
        waiting: Items in its mailbox.
        is_polling: Whether a long poll of it waits.
    """

    id: str
    channels: tuple[str, ...]
    keys: int
    waiting: int
    is_polling: bool
