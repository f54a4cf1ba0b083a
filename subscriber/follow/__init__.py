"""Following a topic: its past by pulling, its present by a stream, and nothing lost in between."""

from .events import CaughtUp, Checkpoint, Closed, CloseReason, Event, FellBehind, Gap
from .follower import Follower, FollowStatistics
from .record import Record
from .states import FollowState
from .stores import CheckpointError, CheckpointFile, CheckpointStore, ServerCursor

__all__ = [
    "CaughtUp",
    "Checkpoint",
    "CheckpointError",
    "CheckpointFile",
    "CheckpointStore",
    "CloseReason",
    "Closed",
    "Event",
    "FellBehind",
    "FollowState",
    "FollowStatistics",
    "Follower",
    "Gap",
    "Record",
    "ServerCursor",
]
