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
CHECK_INTERVAL = 0.005

# The stall monitor stops checking a pool after this many checks in a row without work.
QUIET_CHECKS = 20

# A callback and its arguments that no thread has taken yet. Work that is added by one call stays
# together.
WorkItem = tuple[Callable[[Any], Any], deque[Any]]


class PoolSnapshot(NamedTuple):
    """State of a pool at a check. Two equal states in a row mean that the pool is stalled.

    Attributes:
        inline_run: The inline run in progress, if there is one.
        items: Number of work items that this run has done.
        first: The arguments of the first work item in the queue.
        left: Number of these arguments that no thread has taken.
    """

    inline_run: InlineRun | None
    items: int
    first: deque[Any] | None
    left: int

    @classmethod
    def take(cls, inline_run: InlineRun | None, first: WorkItem | None) -> PoolSnapshot:
        """Return the state of a pool with this inline run and this first work item."""
        arguments = None if first is None else first[1]
        return cls(
            inline_run,
            0 if inline_run is None else inline_run.items,
            arguments,
            len(arguments or ()),
        )

    def shows_the_same_as(self, other: PoolSnapshot) -> bool:
        """Return whether no work item was begun or finished between the two checks."""
        # By identity, because `==` on deques compares their contents.
        same = self.inline_run is other.inline_run and self.first is other.first
        return same and (self.items, self.left) == (other.items, other.left)


class StallState:
    """The stall monitor's record of one pool.

    The threads of the pool set the attributes. The thread of the stall monitor checks.

    Attributes:
        is_watched: Whether the stall monitor checks the pool.
        inline_run: The inline run whose duties no other thread has taken over.
        inline_runs: Number of inline runs since the last check.
    """

    __slots__ = ("_last", "_quiet_checks", "_unchanged", "inline_run", "inline_runs", "is_watched")

    def __init__(self) -> None:
        self.is_watched: bool = False
        self.inline_run: InlineRun | None = None
        self.inline_runs: int = 0
        # The state of the pool at the last check, the number of checks in a row without a change,
        # and the number of checks in a row without work.
        self._last: PoolSnapshot | None = None
        self._unchanged = 0
        self._quiet_checks = 0

    @property
    def is_quiet(self) -> bool:
        """Whether the last `QUIET_CHECKS` checks saw no work."""
        return self._quiet_checks >= QUIET_CHECKS

    def watch(self) -> None:
        """Begin to count the checks without work."""
        self._quiet_checks = 0
        self.is_watched = True

    def check(
        self, inline_run: InlineRun | None, first: WorkItem | None, *, is_alone: bool
    ) -> bool:
        """Return whether the pool is stalled: it has made no progress since the last check.

        Args:
            inline_run: The inline run in progress, if there is one.
            first: The first work item in the queue.
            is_alone: Whether the stall monitor checks no other pool. Where other pools are at work,
                too, threads may only have waited for the interpreter, so the pool gets one more
                check.
        """
        recent_runs, self.inline_runs = self.inline_runs, 0
        last, self._last = self._last, None
        if inline_run is None and first is None:
            # The monitor tends to run just between two inline runs, because it and the inline
            # caller both need the interpreter lock.
            self._quiet_checks = 0 if recent_runs else self._quiet_checks + 1
            return False
        self._quiet_checks = 0
        self._last = PoolSnapshot.take(inline_run, first)
        is_the_same = last is not None and self._last.shows_the_same_as(last)
        self._unchanged = self._unchanged + 1 if is_the_same else 0
        return self._unchanged >= (1 if is_alone else 2)

    def reset(self) -> None:
        """Forget the inline run and the last check, and stop watching."""
        self.inline_run = None
        self.is_watched = False
        self._last = None


class Monitored(Protocol):
    """A pool that the stall monitor checks."""

    def check(self, *, is_alone: bool) -> bool:
        """Wake a worker if the pool is stalled. Must not wait.

        Args:
            is_alone: Whether no other pool is checked.

        Returns:
            Whether to check the pool again.
        """


class StallMonitor:
    """One thread for all pools of a process, which runs only while a pool needs it.

    Owns the list of pools. Workers add their pool; the thread checks each pool every
    `CHECK_INTERVAL` seconds. Guarantees: a pool that was added is checked until its `check` returns
    False.
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
    def is_running(self) -> bool:
        """Whether the thread runs. Then one more pool costs little."""
        return self._thread is not None

    def check_pools(self) -> bool:
        """Check each pool; return whether any pool is left."""
        # Under the lock: a pool that is added again while it is being removed is not lost.
        with self._lock:
            is_alone = len(self._pools) == 1
            self._pools = [pool for pool in self._pools if pool.check(is_alone=is_alone)]
            if not self._pools:
                self._thread = None
            return bool(self._pools)

    def _run(self) -> None:
        while True:
            self._never.wait(CHECK_INTERVAL)
            if not self.check_pools():
                return


STALL_MONITOR: Final = StallMonitor()

# A forked child has no such thread, and no thread that would release the lock.
in_forked_child(STALL_MONITOR, StallMonitor.__init__)
