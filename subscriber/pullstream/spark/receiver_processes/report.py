"""Numbers of a receiver, and its present activity. Importing them does not import pyarrow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Activity(Enum):
    """The present activity of a receiver."""

    STARTING = "opening the spool"
    RECEIVING = "receiving"
    FULL = "waiting for the query to commit"
    DRAINED = "waiting for the last commits"
    UNREACHABLE = "waiting for the server"
    STORAGE = "waiting for the storage"
    ENDING = "returning messages"


@dataclass(frozen=True)
class ReceiverReport:
    """Numbers of a receiver since its start.

    Attributes:
        name: The receiver's name in the spool; it changes after an abandoned segment.
        activity: Its present activity.
        seconds: Duration of the run.
        segments: Number of segments that were written.
        rows: Number of messages in them.
        bytes: Size of their files in bytes.
        abandoned: Number of segments that were abandoned, so that their messages were returned.
        waiting_segments: Number of its segments that are not known to be committed.
        waiting_bytes: Their size in bytes.
        leased: Number of messages that are received and not settled.
        acknowledged: Number of acknowledged messages.
        returned: Number of messages that were returned to the server.
        expired: Number of lost leases.
        redelivered: Number of received messages with a delivery attempt above 1, if the server
            counts attempts.
        repeated: Number of calls of the storage that were repeated.
        problem: Why the receiver waits for the server or the storage; empty if it does not.
    """

    name: str = ""
    activity: Activity = Activity.STARTING
    seconds: float = 0.0
    segments: int = 0
    rows: int = 0
    bytes: int = 0
    abandoned: int = 0
    waiting_segments: int = 0
    waiting_bytes: int = 0
    leased: int = 0
    acknowledged: int = 0
    returned: int = 0
    expired: int = 0
    redelivered: int = 0
    repeated: int = 0
    problem: str = ""
