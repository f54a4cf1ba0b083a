"""Worker pools in the states in which tests begin."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from pullstream.scheduling.worker_pool import WorkerPool
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

# The seconds for which threads race with each other.
STRESS = 1.0


@contextmanager
def pool_of(workers: int) -> Iterator[WorkerPool]:
    pool = WorkerPool(workers)
    try:
        yield pool
    finally:
        pool.close()
        pool.join(TIMEOUT)


class Slow:
    """A callback that blocks until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.release = threading.Event()

    def __call__(self, _: object) -> None:
        self.begun.release()
        assert self.release.wait(TIMEOUT)


def send_to_sleep(pool: WorkerPool, workers: int) -> None:
    """Return when this many workers have been started and have nothing to do."""
    together = threading.Barrier(workers)
    pool.add(lambda _: together.wait(TIMEOUT), [None] * workers)
    eventually(lambda: pool.running == 0 and len(pool._sleepers) == workers)


class Watched:
    """Replaces the stall monitor, so that the test checks pools itself."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_running = False

    def add(self, pool: object) -> None:
        self.asked += 1


def prove_brisk(pool: WorkerPool) -> None:
    """Return when the pool considers its callbacks fast and has nothing to do."""

    def is_brisk() -> bool:
        done = threading.Semaphore(0)
        pool.add(lambda _: done.release(), range(100))
        for _ in range(100):
            assert done.acquire(timeout=TIMEOUT)
        return pool._pace.is_fast

    eventually(is_brisk)
    eventually(lambda: pool.running == 0)


@contextmanager
def brisk_pool(workers: int) -> Iterator[WorkerPool]:
    """Yield a watched pool with fast callbacks whose workers all sleep."""
    with pool_of(workers) as pool:
        send_to_sleep(pool, workers)
        prove_brisk(pool)
        pool._stall.is_watched = True
        yield pool


class Load:
    """Little work at a time, so that the workers of a pool go to sleep and wake all the time.

    With `inline`, an inline caller may do it, and some pieces take so long that it is relieved.
    """

    def __init__(self, pool: WorkerPool, *, inline: bool = False) -> None:
        self._pool = pool
        self._inline = inline
        self._end = SYSTEM_CLOCK.monotonic() + STRESS
        self._numbers = count()
        self._done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def is_over(self) -> bool:
        return SYSTEM_CLOCK.monotonic() >= self._end

    def add(self) -> None:
        """Add work until the time is over, on any number of threads."""
        chance, own = random.Random(1), threading.Semaphore(0)

        def finish(number: int) -> None:
            if self._inline and number % 100 == 0:
                threading.Event().wait(0.002)
            self._done.put(number)
            own.release()

        while not self.is_over():
            pieces = chance.randint(1, 3)
            for _ in range(pieces):
                if self._inline:
                    self._pool._stall.is_watched = True
                self._pool.add(finish, [next(self._numbers)], may_wait=self._inline)
            for _ in range(pieces):
                # A lost wake-up leaves the piece unprocessed, and this assertion fails.
                assert own.acquire(timeout=TIMEOUT)

    def assert_all_done(self) -> None:
        total = next(self._numbers)
        assert sorted(self._done.get_nowait() for _ in range(total)) == list(range(total))
