"""Followers: read a topic's past records with reads, new records from a stream, without loss."""

from .logs.follow.events import CaughtUp, Checkpoint, Closed, CloseReason, Event, FellBehind, Gap
from .logs.follow.future import Follower, FollowStatistics
from .logs.follow.machine import FollowState
from .logs.follow.records import Record
from .logs.follow.stores import CheckpointError, CheckpointFile, CheckpointStore, ServerCursor

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
