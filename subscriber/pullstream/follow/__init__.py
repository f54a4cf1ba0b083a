"""Followers: read a topic's past records with reads, new records from a stream, without loss."""

from .events import CaughtUp, Checkpoint, Closed, CloseReason, Event, FellBehind, Gap
from .future import Follower, FollowStatistics
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
