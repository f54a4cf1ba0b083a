"""What a follower has to tell beside the records, in turn and once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from subscriber.feeds.frames import Gap, GapReason

from .actions import Tell
from .events import CaughtUp, Checkpoint, FallCause, FellBehind


class News:
    """Sees to it that CaughtUp and FellBehind alternate, beginning with CaughtUp.

    tell: what is to be told goes there.
    """

    def __init__(self, tell: Callable[[Tell], None]) -> None:
        self.is_caught_up: bool = False
        self._tell = tell

    def caught_up(self, position: Checkpoint | None) -> None:
        if not self.is_caught_up and position is not None:
            self.is_caught_up = True
            self._tell(Tell(partial(CaughtUp, position)))

    def fell_behind(self, position: Checkpoint | None, cause: FallCause) -> None:
        if self.is_caught_up and position is not None:
            self.is_caught_up = False
            self._tell(Tell(partial(FellBehind, position, cause=cause)))

    def gap(self, gap: Gap, after: int) -> None:
        """Only what of it lies behind `after` is news; a new life of the topic always is."""
        if gap.to_seq > after or gap.reason is GapReason.RECREATED:
            told = replace(gap, from_seq=max(gap.from_seq, after + 1))
            self._tell(Tell(lambda _: told))
