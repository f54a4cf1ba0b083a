"""Clients for feeds: read, append to and watch topics that are kept as capped logs."""

from .logs.feeds.client import AsyncFeedsClient, FeedsClient, Reading
from .logs.feeds.frame_stream import FrameStream
from .logs.feeds.frames import CaughtUp, Frame, Gap, GapReason, Opened, Records, TopicDeleted
from .logs.feeds.routers import AsyncCursorsClient, AsyncRoutersClient, CursorsClient, RoutersClient
from .logs.feeds.watch_reader import WatchFuture

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
