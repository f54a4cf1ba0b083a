"""Progress events of a follower, in the right order and without repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pullstream.logs.feeds.frames import Gap, GapReason

from .actions import Tell
from .events import CaughtUp, Checkpoint, FallCause, FellBehind


class ProgressEvents:
    """Makes CaughtUp and FellBehind alternate, beginning with CaughtUp.

    Args:
        tell: Called with each event to report.
    """

    def __init__(self, tell: Callable[[Tell], None]) -> None:
        self.is_caught_up: bool = False
        self._tell = tell

    def caught_up(self, position: Checkpoint | None) -> None:
        """Report CaughtUp, unless it still holds or there is no position yet."""
        if not self.is_caught_up and position is not None:
            self.is_caught_up = True
            self._tell(Tell(partial(CaughtUp, position)))

    def fell_behind(self, position: Checkpoint | None, cause: FallCause) -> None:
        """Report FellBehind, if CaughtUp was reported and still holds."""
        if self.is_caught_up and position is not None:
            self.is_caught_up = False
            self._tell(Tell(partial(FellBehind, position, cause=cause)))

    def gap(self, gap: Gap, after: int) -> None:
        """Report the part of the gap after `after`; always report that the topic was recreated."""
        if gap.to_seq > after or gap.reason is GapReason.RECREATED:
            told = replace(gap, from_seq=max(gap.from_seq, after + 1))
            self._tell(Tell(lambda _: told))
