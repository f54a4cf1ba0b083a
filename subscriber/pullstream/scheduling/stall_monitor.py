"""Stall monitor: wakes another worker in pools where a slow callback blocks the queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from pullstream.runtime.process import in_forked_child
from pullstream_protocol.call_lock import CallLock

from .inline_run import InlineRun

# Seconds between two checks: Python's default switch interval, for which a computing thread may
# keep the interpreter lock from others.
LOOK_EVERY = 0.005


# A callback and its arguments that no thread has taken yet. Work that is added by one call stays
# together.
Piece = tuple[Callable[[Any], Any], deque[Any]]


class PoolSnapshot(NamedTuple):
    """State of a pool at a check. Two equal states in a row mean that the pool is stalled.

    Attributes:
        inline_run: The inline run in progress, if there is one.
        pieces: Number of work items that this run has done.
        first: The arguments of the first work item in the queue.
        left: Number of these arguments that no thread has taken.
    """

    inline_run: InlineRun | None
    pieces: int
    first: deque[Any] | None
    left: int

    @classmethod
    def take(cls, inline_run: InlineRun | None, first: Piece | None) -> PoolSnapshot:
        """Return the state of a pool with this inline run and this first work item."""
        arguments = None if first is None else first[1]
        return cls(
            inline_run,
            0 if inline_run is None else inline_run.pieces,
            arguments,
            len(arguments or ()),
        )

    def shows_the_same_as(self, other: PoolSnapshot) -> bool:
        """Return whether no work item was begun or finished between the two checks."""
        # By identity, because `==` on deques compares their contents.
        same = self.inline_run is other.inline_run and self.first is other.first
        return same and (self.pieces, self.left) == (other.pieces, other.left)


class Monitored(Protocol):
    """A pool that the stall monitor checks."""

    def look(self, *, is_alone: bool) -> bool:
        """Wake a worker if the pool is stalled. Must not wait.

        Args:
            is_alone: Whether no other pool is checked.

        Returns:
            Whether to check the pool again.
        """


class StallMonitor:
    """One thread for all pools of a process, which runs only while a pool needs it.

    Owns the list of pools. Workers add their pool; the thread checks each pool every `LOOK_EVERY`
    seconds. Guarantees: a pool that was added is checked until its `look` returns False.
    """

    def __init__(self) -> None:
        self._lock = CallLock()
        self._pools: list[Monitored] = []
        self._thread: threading.Thread | None = None
        # Never set. Waiting for it is a sleep that ends early when the interpreter exits.
        self._never = threading.Event()

    def add(self, pool: Monitored) -> None:
        """Check `pool` from now on."""
        with self._lock.once:
            if pool not in self._pools:
                self._pools.append(pool)
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name="pullstream-stall-monitor", daemon=True
                )
                # If this raises, the next call tries again.
                thread.start()
                self._thread = thread

    @property
    def is_there(self) -> bool:
        """Whether the thread runs. Then one more pool costs little."""
        return self._thread is not None

    def look(self) -> bool:
        """Check each pool; return whether any pool is left."""
        # Under the lock: a pool that is added again while it is being removed is not lost.
        with self._lock:
            is_alone = len(self._pools) == 1
            self._pools = [pool for pool in self._pools if pool.look(is_alone=is_alone)]
            if not self._pools:
                self._thread = None
            return bool(self._pools)

    def _run(self) -> None:
        while True:
            self._never.wait(LOOK_EVERY)
            if not self.look():
                return


STALL_MONITOR: Final = StallMonitor()

# A forked child has no such thread, and no thread that would release the lock.
in_forked_child(STALL_MONITOR, StallMonitor.__init__)
