"""Topics as capped logs: read them, write to them, watch many at once."""

from .client import FeedsClient, Reading
from .frame_stream import FrameStream
from .frames import CaughtUp, Frame, Gap, GapReason, Opened, Records, TopicDeleted
from .watch import WatchFuture

__all__ = [
    "CaughtUp",
    "FeedsClient",
    "Frame",
    "FrameStream",
    "Gap",
    "GapReason",
    "Opened",
    "Reading",
    "Records",
    "TopicDeleted",
    "WatchFuture",
]
