"""Future of a running follower, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pullstream.logs.feeds.reader_future import ReaderFuture, RunningReader

from .events import Checkpoint
from .machine import FollowState


@dataclass(frozen=True, slots=True)
class FollowStatistics:
    """An immutable snapshot of a follower, returned by `Follower.statistics()`.

    Attributes:
        state: See FollowState.
        is_caught_up: True if the last event was CaughtUp and not FellBehind.
        position: The position after the last handled record.
        kept: The position in the checkpoint store. None if nothing has been saved yet.
        head_seq: The newest known sequence number of the topic.
        lag: `head_seq` minus the sequence number of the position, at least 0.
        handled: Records that the handler has returned from.
        gaps: Number of Gap events.
        fallbacks: How often the follower had to leave a stream and return to reads.
        buffered: Records that the stream has delivered and the handler has not received yet.
    """

    state: FollowState
    is_caught_up: bool
    position: Checkpoint
    kept: Checkpoint | None
    head_seq: int
    lag: int
    handled: int
    gaps: int
    fallbacks: int
    buffered: int


class RunningFollower(RunningReader, Protocol):
    """The interface of the running follower behind a `Follower`."""

    def statistics(self) -> FollowStatistics:
        """Return a snapshot; also works after the end."""


class Follower(ReaderFuture):
    """A running follower.

    `result()` blocks until the follower ends. It returns True if the user ended it. Otherwise it
    raises the error that ended it: an error of the handler or of the server, or a CheckpointError.
    When the follower has ended, the position after the last handled record is saved.
    """

    def __init__(self, running: RunningFollower, activity: str = "") -> None:
        super().__init__(running, activity)
        self._running = running

    @property
    def state(self) -> FollowState:
        """The state: reading, on a stream, or between the two."""
        return self.statistics().state

    @property
    def position(self) -> Checkpoint:
        """The position after the last handled record."""
        return self.statistics().position

    @property
    def lag(self) -> int:
        """The distance from the position to the newest known record, in sequence numbers."""
        return self.statistics().lag

    def statistics(self) -> FollowStatistics:
        """Return a snapshot of the state and the counters. May be called at any time."""
        self._fork.refuse_child()
        return self._running.statistics()
