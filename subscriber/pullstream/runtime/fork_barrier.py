"""Barrier that keeps readers out of gRPC while the process forks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from .process import around_fork, in_forked_child

# How long a fork waits for readers to leave gRPC, in seconds. A reader whose call accepts no more
# requests cannot be woken.
FORK_WAIT = 0.2


class Reader(Protocol):
    """A thread's wait inside gRPC."""

    def wake(self) -> None:
        """Make the wait end soon, although nothing has arrived. Must not block."""


class Future(Protocol):
    """gRPC's future of a call."""

    def add_done_callback(self, callback: Callable[[Any], None], /) -> object:
        """Call `callback` with the future when the call is over."""


F = TypeVar("F", bound=Future)


class _Waiting:
    """A wait for the answer of one call, which ends with that answer."""

    def wake(self) -> None:
        """Do nothing: most answers come soon, and a fork waits only for a limited time."""


class ForkBarrier:
    """Lets readers into gRPC, except while the process forks.

    gRPC keeps records of a waiting thread on the stack of that thread. In a forked child the thread
    does not exist, and its stack memory is reused by another thread. gRPC restarts its internal
    threads in the child. They follow the old records when data arrives from the network, and the
    child crashes. So before a fork every reader is woken and leaves gRPC, and no reader enters
    until the fork is over. The same holds for calls: while any thread runs code of gRPC, gRPC skips
    the preparation that makes a child safe.

    Readers call `enter` and `leave`, each on its own thread, for every response. Entering takes no
    lock, because a hundred readers would queue for it. A reader first records that it is inside,
    and then checks for forks. A fork first records that it has begun, and then checks which readers
    are inside. So at least one of the two sees the other. The forking thread calls `close` and
    `open`.
    """

    def __init__(self) -> None:
        self._inside: set[Reader] = set()
        # Several threads may fork at a time. Changed under the lock, read without it.
        self._forks = 0
        self._changed = threading.Condition(threading.Lock())

    def enter(self, reader: Reader) -> None:
        """Register a reader as inside, after waiting until no fork is in progress."""
        self._inside.add(reader)
        while self._forks:
            self.leave(reader)
            with self._changed:
                self._changed.wait_for(lambda: not self._forks)
            self._inside.add(reader)

    def leave(self, reader: Reader) -> None:
        """Register a reader as outside, and wake the forks that wait for it."""
        self._inside.discard(reader)
        if self._forks:
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Register this thread as inside gRPC while it waits for the answer of one call."""
        waiting = _Waiting()
        self.enter(waiting)
        try:
            yield
        finally:
            self.leave(waiting)

    def begin(self, call: Callable[[], F]) -> F:
        """Begin a call, and register it as inside gRPC until it is over.

        Args:
            call: Begins the call and returns gRPC's future of it. gRPC waits for the answer on a
                thread of the channel.
        """
        waiting = _Waiting()
        self.enter(waiting)
        try:
            future = call()
        except BaseException:
            self.leave(waiting)
            raise
        future.add_done_callback(lambda _: self.leave(waiting))
        return future

    def close(self) -> None:
        """Let no reader in, and wait until all are out, for FORK_WAIT seconds at most."""
        with self._changed:
            self._forks += 1
        for reader in self._inside.copy():
            reader.wake()
        with self._changed:
            self._changed.wait_for(lambda: not self._inside, FORK_WAIT)

    def open(self) -> None:
        """End a fork; readers enter again when no other fork is in progress."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()


BARRIER: Final = ForkBarrier()

around_fork(BARRIER.close, BARRIER.open)
# The child has none of the reader threads, and no thread that could release the lock.
in_forked_child(BARRIER, ForkBarrier.__init__)
