"""The watch: looks after pools whose workers do not call each other."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from .stint import Stint

# Seconds between two looks: what Python, by default, lets a thread compute before it has to let
# others run.
LOOK_EVERY = 0.005


# What was added together stays together: a callback, and the arguments not taken yet.
Piece = tuple[Callable[[Any], Any], deque[Any]]


class Sight(NamedTuple):
    """What the watch sees: a guest at work and what it has done, what is first in the queue, and
    how much of that is left."""

    stint: Stint | None
    pieces: int
    first: deque[Any] | None
    left: int

    @classmethod
    def of(cls, stint: Stint | None, first: Piece | None) -> Sight:
        arguments = None if first is None else first[1]
        return cls(stint, 0 if stint is None else stint.pieces, arguments, len(arguments or ()))

    def shows_the_same_as(self, other: Sight) -> bool:
        # By identity, as deques are compared by all that is in them.
        same = self.stint is other.stint and self.first is other.first
        return same and (self.pieces, self.left) == (other.pieces, other.left)


class Watched(Protocol):
    """What the watch looks at."""

    def look(self, *, is_alone: bool) -> bool:
        """Do what is needed; whether it is worth another look. Must not wait.

        Args:
            is_alone: no other pool is looked at.
        """


class Watch:
    """One thread for all pools of a process, there only while one of them asks for it.

    Owns the list of pools. Workers add their pool, the thread looks at each from time to time.
    Guarantees: a pool that was added is looked at until `look` says that it need not be.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: list[Watched] = []
        self._thread: threading.Thread | None = None
        # Nobody sets it: a sleep that wakes early when the interpreter exits.
        self._never = threading.Event()

    def add(self, pool: Watched) -> None:
        """Look at `pool` from now on."""
        with self._lock:
            if pool not in self._pools:
                self._pools.append(pool)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="pullstream-watch", daemon=True)
                # It may be refused: then the next who asks tries again.
                thread.start()
                self._thread = thread

    @property
    def is_there(self) -> bool:
        """Whether the thread runs: to look at one more pool costs little."""
        return self._thread is not None

    def look(self) -> bool:
        """Look at each pool; whether there is any left to look at."""
        # Under the lock: a pool that asks again while it is being let go is not forgotten.
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


WATCH: Final = Watch()

# A forked child has neither the thread nor anybody who would release the lock. Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.__init__)  # type: ignore[misc]
