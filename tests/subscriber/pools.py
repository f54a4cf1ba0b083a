"""Worker pools in the states in which tests begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pullstream.scheduling.worker_pool import FAST_CALLBACK, WorkerPool
from tests.subscriber.streaming.fakes import PATIENCE, eventually


@contextmanager
def pool_of(workers: int) -> Iterator[WorkerPool]:
    pool = WorkerPool(workers)
    try:
        yield pool
    finally:
        pool.close()
        pool.join(PATIENCE)


class Slow:
    """A callback that blocks until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.release = threading.Event()

    def __call__(self, _: object) -> None:
        self.begun.release()
        assert self.release.wait(PATIENCE)


def send_to_sleep(pool: WorkerPool, workers: int) -> None:
    """Return when this many workers have been started and have nothing to do."""
    together = threading.Barrier(workers)
    pool.add(lambda _: together.wait(PATIENCE), [None] * workers)
    eventually(lambda: pool.running == 0 and len(pool._sleepers) == workers)


class Watched:
    """Replaces the stall monitor, so that the test looks itself."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_there = False

    def add(self, pool: object) -> None:
        self.asked += 1


def prove_brisk(pool: WorkerPool) -> None:
    """Return when the pool considers its callbacks fast and has nothing to do."""

    def is_brisk() -> bool:
        done = threading.Semaphore(0)
        pool.add(lambda _: done.release(), range(100))
        for _ in range(100):
            assert done.acquire(timeout=PATIENCE)
        return pool._pace < FAST_CALLBACK

    eventually(is_brisk)
    eventually(lambda: pool.running == 0)
