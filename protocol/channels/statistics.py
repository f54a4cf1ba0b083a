"""Figures of a publisher of channels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What a publisher of channels holds at a moment.

    subscribers: sessions. parked: their long polls under way. interests: channels and keys with
    subscribers, each counted once. waiting, waiting_bytes: items in mailboxes, and what they count;
    one that lies in several is counted in each. published, dropped: since the beginning.
    """

    subscribers: int
    parked: int
    interests: int
    waiting: int
    waiting_bytes: int
    published: int
    dropped: int
