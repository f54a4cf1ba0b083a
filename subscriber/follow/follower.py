"""What a user holds of a follower that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from subscriber.feeds.reader_future import Reader, ReaderFuture

from .events import Checkpoint
from .states import FollowState


@dataclass(frozen=True, slots=True)
class FollowStatistics:
    """A snapshot, taken by `Follower.statistics()`. It never changes.

    state: see FollowState.
    is_caught_up: CaughtUp was told last, not FellBehind.
    position: after the last record that was handled.
    kept: what the checkpoint store has; None: nothing yet.
    head_seq: the newest number of the topic that was heard of. lag: how many are left up to there.
    handled: records that the handler has returned from. gaps: how often records were lost.
    falls: how often a stream had to be left for pulling.
    buffered: records that the stream has brought and that wait.
    """

    state: FollowState
    is_caught_up: bool
    position: Checkpoint
    kept: Checkpoint | None
    head_seq: int
    lag: int
    handled: int
    gaps: int
    falls: int
    buffered: int


class Running(Reader, Protocol):
    """What a Follower asks of what it stands for."""

    def statistics(self) -> FollowStatistics: ...


class Follower(ReaderFuture):
    """A running follower.

    `result()` blocks until it ends: it returns True when the user asked for it, and raises the
    error that was the end otherwise: the handler's, the server's, or CheckpointError. When it is
    over, the position after the last record that was handled is kept.
    """

    def __init__(self, running: Running) -> None:
        super().__init__(running)
        self._running = running

    @property
    def state(self) -> FollowState:
        """Whether it pulls, lives on a stream, or is between the two."""
        return self.statistics().state

    @property
    def position(self) -> Checkpoint:
        """After the last record that was handled."""
        return self.statistics().position

    @property
    def lag(self) -> int:
        """How many numbers there are from its position to the newest that was heard of."""
        return self.statistics().lag

    def statistics(self) -> FollowStatistics:
        """What it has done, and how it stands. May be asked at any time."""
        self._check_process()
        return self._running.statistics()
