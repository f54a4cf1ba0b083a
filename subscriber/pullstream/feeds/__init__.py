"""Clients for feeds: read, append to and watch topics that are kept as capped logs."""

from .client import AsyncFeedsClient, FeedsClient, Reading
from .frame_stream import FrameStream
from .frames import CaughtUp, Frame, Gap, GapReason, Opened, Records, TopicDeleted
from .routers import AsyncCursorsClient, AsyncRoutersClient, CursorsClient, RoutersClient
from .watch_reader import WatchFuture

__all__ = [
    "AsyncCursorsClient",
    "AsyncFeedsClient",
    "AsyncRoutersClient",
    "CaughtUp",
    "CursorsClient",
    "FeedsClient",
    "Frame",
    "FrameStream",
    "Gap",
    "GapReason",
    "Opened",
    "Reading",
    "Records",
    "RoutersClient",
    "TopicDeleted",
    "WatchFuture",
]
