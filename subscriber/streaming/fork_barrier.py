"""The barrier: no reader waits inside gRPC while the process forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

# How long a fork waits for readers to come out, in seconds. One whose call takes no more requests
# cannot be told to.
PATIENCE = 0.2


class Reader(Protocol):
    """Whoever waits inside gRPC."""

    def rouse(self) -> None:
        """Make the wait end soon, though nothing came. Must not wait."""


class _Waiting:
    """Waits for the answer of one call, and comes out with that."""

    def rouse(self) -> None:
        """Most answers come soon, and a fork waits no longer than it likes."""


class ForkBarrier:
    """Lets readers into gRPC, but not while the process forks.

    A thread that waits inside gRPC leaves notes of that on its stack. In a forked child that thread
    is gone and its stack in use for another; gRPC's own threads, which it starts anew there, follow
    the notes when something comes from the network, and the child crashes. So before a fork every
    reader is roused and comes out, and none goes in until it is over.

    Readers call `enter` and `leave`, each on its own thread, for every response; so the way in
    takes no lock that a hundred of them would queue for. A reader first says that it is inside,
    then looks for forks; a fork first says that it has begun, then looks who is inside. So one of
    the two sees the other. The thread that forks calls `close` and `open`.
    """

    def __init__(self) -> None:
        self._inside: set[Reader] = set()
        # Several threads may fork at a time. Changed under the lock, looked at without.
        self._forks = 0
        self._changed = threading.Condition(threading.Lock())

    def enter(self, reader: Reader) -> None:
        """Wait for a fork to be over, if there is one."""
        self._inside.add(reader)
        while self._forks:
            self.leave(reader)
            with self._changed:
                self._changed.wait_for(lambda: not self._forks)
            self._inside.add(reader)

    def leave(self, reader: Reader) -> None:
        self._inside.discard(reader)
        if self._forks:
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a call for whose answer this thread waits inside gRPC."""
        waiting = _Waiting()
        self.enter(waiting)
        try:
            yield
        finally:
            self.leave(waiting)

    def close(self) -> None:
        """Let nobody in, and wait until everybody is out, or for PATIENCE."""
        with self._changed:
            self._forks += 1
        for reader in self._inside.copy():
            reader.rouse()
        with self._changed:
            self._changed.wait_for(lambda: not self._inside, PATIENCE)

    def open(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()


BARRIER: Final = ForkBarrier()

# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=BARRIER.close,
        after_in_parent=BARRIER.open,
        # The child has none of the readers, nor whoever would release the lock.
        after_in_child=BARRIER.__init__,  # type: ignore[misc]
    )
