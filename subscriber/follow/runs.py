"""Stretches of a log, as reads and streams bring them, and the buffer before the handler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from subscriber.feeds.frames import Gap

from .record import Record


@dataclass(frozen=True, slots=True)
class Run:
    """What was looked at from `from_seq`, exclusive, to `to_seq`, and the records found there.

    size: bytes on the wire.
    """

    from_seq: int
    to_seq: int
    records: Sequence[Record] = ()
    size: int = 0

    @property
    def weight(self) -> int:
        """What it counts for in a buffer: an empty one takes room, too."""
        return max(len(self.records), 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one read brought: perhaps a gap, and after it a run.

    head_seq, caught_up, epoch: the log's newest number, whether the run ends there, and of which
        life of the topic all these numbers are.
    """

    run: Run
    head_seq: int
    caught_up: bool
    epoch: int
    gap: Gap | None = None


class LiveBuffer:
    """Runs in order, at most so many records and bytes. When it is full, the oldest run leaves.

    The oldest and not the newest: what is missing then lies before what is there, where it shows.
    A lost newest run would not be missed before the next one comes, which may be never.

    The newest run stays whatever its size. Not thread-safe.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._runs: deque[Run] = deque()
        self._records = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Records in it."""
        return self._records

    @property
    def first(self) -> Run | None:
        """The oldest run."""
        return self._runs[0] if self._runs else None

    def add(self, run: Run) -> None:
        """Add the newest run. Older ones may have to leave."""
        self._runs.append(run)
        self._records += run.weight
        self._bytes += run.size
        while len(self._runs) > 1 and not self._fits():
            self.take()

    def take(self) -> Run:
        """Remove the oldest run and return it."""
        run = self._runs.popleft()
        self._records -= run.weight
        self._bytes -= run.size
        return run

    def clear(self) -> None:
        self._runs.clear()
        self._records = self._bytes = 0

    def _fits(self) -> bool:
        return self._records <= self._max_records and self._bytes <= self._max_bytes
