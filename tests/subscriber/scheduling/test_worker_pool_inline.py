"""Inline callers of a worker pool: work that they add and run, and relief after a slow callback."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from pullstream.scheduling.inline_run import InlineRun
from pullstream.scheduling.pace import FAST_CALLBACK
from pullstream.scheduling.stall_monitor import QUIET_CHECKS
from pullstream.scheduling.worker_pool import WorkerPool
from tests.subscriber.pools import Load, Slow, Watched, brisk_pool, pool_of
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

WORKERS = 3


class Visitor:
    """An inline caller: a thread that runs the given tasks. `relieved` counts its reliefs."""

    def __init__(self) -> None:
        self.relieved = 0
        self.inline_runs: list[InlineRun] = []
        self.cannot_be_relieved = False
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def inline_run(self) -> InlineRun | None:
        if threading.current_thread() is not self.thread:
            return None
        self.inline_runs.append(InlineRun(self._relieve))
        return self.inline_runs[-1]

    def tell(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)

    def do(self, task: Callable[[], None]) -> None:
        """Run a task as `tell` does, and wait for its end."""
        done = threading.Event()
        self.tell(task)
        self.tell(done.set)
        assert done.wait(TIMEOUT)

    def leave(self) -> None:
        self._tasks.put(None)
        self.thread.join(TIMEOUT)

    def _relieve(self) -> None:
        if self.cannot_be_relieved:
            raise RuntimeError("can't start new thread")
        self.relieved += 1

    def _run(self) -> None:
        for task in iter(self._tasks.get, None):
            task()


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    visitor = Visitor()
    yield visitor
    visitor.leave()


@pytest.fixture
def pool(watch: Watched, visitor: Visitor) -> Iterator[WorkerPool]:
    """Yield a watched pool with fast callbacks whose workers all sleep."""
    with brisk_pool(WORKERS) as pool:
        assert pool.admit(visitor)
        yield pool


class Noted:
    """A callback that records the threads that ran it."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def __call__(self, _: object) -> None:
        self.threads.append(threading.current_thread())


def sleeping(pool: WorkerPool) -> bool:
    return pool.running == 0 and pool.waiting == 0


def occupy(pool: WorkerPool, visitor: Visitor, pieces: Iterable[object] = (None,)) -> Slow:
    """Return a slow callback in which the inline caller has begun the first of these pieces."""
    slow = Slow()
    visitor.tell(lambda: pool.add(slow, pieces, may_wait=True))
    assert slow.begun.acquire(timeout=TIMEOUT)
    return slow


def test_a_reader_thread_runs_the_fast_callbacks_that_it_adds_to_the_pool_itself(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The work is done before `add` returns, and no worker wakes."""
    note = Noted()
    visitor.do(lambda: pool.add(note, range(100), may_wait=True))
    assert note.threads == [visitor.thread] * 100
    assert len(pool._sleepers) == WORKERS
    assert sleeping(pool)


def test_a_reader_thread_also_runs_callbacks_added_by_the_callbacks_that_it_runs(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The end of a callback may add the next message of its key."""
    note = Noted()
    visitor.do(lambda: pool.add(lambda _: pool.add(note, [None]), [None], may_wait=True))
    assert note.threads == [visitor.thread]


def test_work_added_by_a_reader_thread_that_must_not_block_runs_on_workers(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The caller may add more, which other workers could do meanwhile, or may hold a lock."""
    slow, note = Slow(), Noted()

    def add() -> None:
        pool.add(slow, [None])
        pool.add(note, [None])

    visitor.do(add)
    assert slow.begun.acquire(timeout=TIMEOUT)
    eventually(lambda: bool(note.threads) or bool(pool.check() and False))
    slow.release.set()
    assert visitor.thread not in note.threads


def test_work_added_by_a_thread_other_than_the_reader_thread_runs_on_workers(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The workers run work that another thread adds."""
    note = Noted()
    pool.add(note, [None])
    eventually(lambda: bool(note.threads))
    assert note.threads[0] not in (visitor.thread, threading.current_thread())


def test_a_reader_thread_runs_single_callbacks_itself_if_it_adds_them_in_quick_succession(
    pool: WorkerPool, visitor: Visitor, watch: Watched
) -> None:
    """The first single piece wakes a worker.

    The next one, soon after, does not, and has the pool watched.
    """
    pool._stall.is_watched = False
    pool._added = float("-inf")
    note, asked = Noted(), watch.asked
    visitor.do(lambda: pool.add(note, [None], may_wait=True))
    eventually(lambda: bool(note.threads) and sleeping(pool))
    assert note.threads[0] is not visitor.thread
    assert watch.asked == asked
    # As if this moment: the test may take longer than the pool calls "soon" on a busy machine.
    pool._added = float("inf")
    visitor.do(lambda: pool.add(note, [None], may_wait=True))
    assert note.threads[1] is visitor.thread
    assert watch.asked == asked + 1


def test_a_reader_thread_runs_a_rare_single_callback_itself_if_the_stall_monitor_already_runs(
    pool: WorkerPool, visitor: Visitor, watch: Watched
) -> None:
    """A monitor that already runs for another pool watches this one at little cost.

    Then it does not matter how rarely work comes.
    """
    pool._stall.is_watched = False
    pool._added = float("-inf")
    watch.is_running = True
    note, asked = Noted(), watch.asked
    visitor.do(lambda: pool.add(note, [None], may_wait=True))
    assert note.threads == [visitor.thread]
    assert watch.asked == asked + 1


def test_work_added_by_a_reader_thread_while_a_worker_is_slow_wakes_another_worker(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """Fast callbacks wait for no slow worker, either.

    The pool is not watched, so nothing else would wake a worker.
    """
    pool._stall.is_watched = False
    slow, note = Slow(), Noted()
    pool.add(slow, [None])
    assert slow.begun.acquire(timeout=TIMEOUT)
    visitor.do(lambda: pool.add(note, [None], may_wait=True))
    eventually(lambda: bool(note.threads))
    assert note.threads[0] is not visitor.thread
    slow.release.set()


def test_slow_callbacks_run_on_worker_threads_and_not_on_the_reader_thread(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """An unwatched pool does not assume that its callbacks are fast."""
    pool._stall.is_watched = False
    pool._pace.average = FAST_CALLBACK
    note = Noted()
    visitor.do(lambda: pool.add(note, [None], may_wait=True))
    eventually(lambda: bool(note.threads))
    assert note.threads[0] is not visitor.thread


def test_work_added_by_a_reader_thread_is_left_to_a_worker_that_is_awake(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The awake worker takes the work later."""
    slow, note = Slow(), Noted()
    pool.add(slow, [None])
    assert slow.begun.acquire(timeout=TIMEOUT)
    visitor.do(lambda: pool.add(note, [None], may_wait=True))
    assert note.threads == []
    slow.release.set()
    eventually(lambda: bool(note.threads))
    assert note.threads[0] is not visitor.thread


def test_with_several_busy_pools_a_blocked_reader_thread_is_replaced_after_three_checks(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The inline caller may have been waiting for the interpreter lock."""
    slow = occupy(pool, visitor)
    assert pool.check(is_alone=False)
    assert pool.check(is_alone=False)
    assert visitor.relieved == 0
    assert not pool.check(is_alone=False)
    assert visitor.relieved == 1
    slow.release.set()


def test_a_worker_pool_with_one_worker_runs_no_callback_on_the_reader_thread(
    visitor: Visitor,
) -> None:
    """With one worker, callbacks may rely on running in a single thread."""
    with pool_of(1) as pool:
        assert not pool.admit(visitor)


def test_a_reader_thread_blocked_in_a_callback_is_replaced_and_workers_run_its_waiting_work(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """An inline caller is relieved after two checks without progress.

    It runs nothing more after its callback ends, and from then on workers wake each other.
    """
    slow, note = occupy(pool, visitor), Noted()
    pool.add(note, range(10))
    assert pool.check()
    assert (visitor.relieved, note.threads) == (0, [])
    assert not pool.check()
    assert visitor.relieved == 1
    eventually(lambda: len(note.threads) == 10)
    assert visitor.thread not in note.threads
    slow.release.set()
    eventually(lambda: sleeping(pool))
    assert not pool.runs_here()


@pytest.mark.parametrize("closed", [False, True])
def test_a_reader_thread_blocked_in_its_last_callback_is_replaced(
    pool: WorkerPool, visitor: Visitor, closed: bool
) -> None:
    """No work waits, but the other duties of the inline caller do.

    If the pool is closed, the shutdown waits for the caller, which must read the stream to its end.
    """
    slow = occupy(pool, visitor)
    if closed:
        pool.close()
    assert [pool.check(), pool.check()] == [True, False]
    assert visitor.relieved == 1
    assert closed or len(pool._sleepers) == WORKERS
    slow.release.set()


def test_a_reader_thread_that_makes_progress_with_its_callbacks_is_not_replaced(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The inline caller runs one piece after the other, and each adds the next."""
    steps, begun = threading.Semaphore(0), threading.Semaphore(0)

    def step(left: int) -> None:
        begun.release()
        assert steps.acquire(timeout=TIMEOUT)
        if left:
            pool.add(step, [left - 1])

    visitor.tell(lambda: pool.add(step, [3], may_wait=True))
    for _ in range(4):
        assert begun.acquire(timeout=TIMEOUT)
        assert pool.check()
        steps.release()
    visitor.do(lambda: None)
    assert visitor.relieved == 0


def test_a_worker_pool_stays_monitored_while_its_reader_thread_runs_short_callbacks(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """A pool stays watched while its inline caller comes and goes.

    The monitor waits for the interpreter lock, so it checks mostly when the inline caller has
    released it, and sees no work. Two checks without work do not count as a blocked inline caller.
    """
    note = Noted()
    for _ in range(2 * QUIET_CHECKS):
        visitor.do(lambda: pool.add(note, [None], may_wait=True))
        assert pool.check()
    assert (visitor.relieved, set(note.threads)) == (0, {visitor.thread})
    checks = [pool.check() for _ in range(QUIET_CHECKS)]
    assert checks == [True] * (QUIET_CHECKS - 1) + [False]


def test_a_worker_pool_that_asks_for_monitoring_again_is_monitored_for_the_full_idle_time(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """Earlier quiet checks no longer count."""
    while pool.check():
        pass
    pool._request_checks()
    assert pool.check()


def test_a_callback_on_the_reader_thread_counts_towards_the_limit_of_concurrent_callbacks(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The limit of concurrent callbacks holds before and after the relief."""
    slow = occupy(pool, visitor, range(10))
    assert (pool.running, pool.waiting) == (1, 9)
    pool.check()
    pool.check()
    for _ in range(WORKERS - 1):
        assert slow.begun.acquire(timeout=TIMEOUT)
    assert (pool.running, pool.waiting) == (WORKERS, 10 - WORKERS)
    assert not slow.begun.acquire(timeout=0.05)
    slow.release.set()
    eventually(lambda: sleeping(pool))


def test_waiting_work_begins_when_a_replaced_reader_thread_ends_its_callback(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """Work that waited because of the relieved caller begins when it leaves."""
    first, others = occupy(pool, visitor), Slow()
    pool.check()
    pool.check()
    pool.add(others, range(WORKERS))
    for _ in range(WORKERS - 1):
        assert others.begun.acquire(timeout=TIMEOUT)
    assert not others.begun.acquire(timeout=0.05)
    first.release.set()
    assert others.begun.acquire(timeout=TIMEOUT)
    others.release.set()


def test_the_replacement_of_a_blocked_reader_thread_is_retried_until_a_thread_can_start(
    pool: WorkerPool, visitor: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    """The pool stays watched until the relief succeeds."""
    visitor.cannot_be_relieved = True
    slow = occupy(pool, visitor)
    assert [pool.check(), pool.check()] == [True, True]
    assert "can't start new thread" in caplog.text
    visitor.cannot_be_relieved = False
    pool.check()
    pool.check()
    assert visitor.relieved == 1
    slow.release.set()


def test_work_added_to_a_pool_just_as_a_reader_thread_ends_its_callbacks_is_done(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """Another thread adds work just after the inline caller has found no more, and relies on it."""
    note = Noted()

    class LateWork(InlineRun):
        def end(self) -> bool:
            other = threading.Thread(target=pool.add, args=(note, [None]))
            other.start()
            other.join(TIMEOUT)
            return super().end()

    visitor.inline_run = lambda: LateWork(lambda: None)  # type: ignore[method-assign]
    visitor.do(lambda: pool.add(lambda _: None, [None], may_wait=True))
    eventually(lambda: len(note.threads) == 1)
    assert note.threads[0] is not visitor.thread


def test_a_reader_thread_that_begins_a_callback_as_monitoring_ends_is_still_replaced(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The monitor has seen no work for long.

    At this moment an inline caller arrives that saw the pool as watched.
    """
    slow = Slow()
    pool._stall._quiet_checks = QUIET_CHECKS - 1
    first = pool._first

    def too_early() -> None:
        # Only once.
        del pool._first
        found = first()
        visitor.tell(lambda: pool.add(slow, [None], may_wait=True))
        assert slow.begun.acquire(timeout=TIMEOUT)
        return found  # type: ignore[return-value]

    pool._first = too_early  # type: ignore[method-assign]
    assert pool.check()
    pool.check()
    pool.check()
    assert visitor.relieved == 1
    slow.release.set()


def test_joining_a_closed_worker_pool_waits_for_a_callback_on_the_reader_thread(
    pool: WorkerPool, visitor: Visitor
) -> None:
    """The pool returns the work that it has not begun."""
    slow, here = Slow(), queue.SimpleQueue[bool]()

    def callback(piece: object) -> None:
        here.put(pool.runs_here())
        slow(piece)

    visitor.tell(lambda: pool.add(callback, range(3), may_wait=True))
    assert slow.begun.acquire(timeout=TIMEOUT)
    assert here.get(timeout=TIMEOUT)
    assert pool.close() == [1, 2]
    pool.join(0.05)
    assert pool.running == 1
    slow.release.set()
    pool.join(TIMEOUT)
    assert pool.running == 0


def test_no_work_is_lost_when_reader_threads_add_work_and_are_replaced(
    watch: Watched,
) -> None:
    """No work is lost while inline callers and other threads add it.

    Each thread adds little, so that the inline caller comes and goes while workers fall asleep.
    Some callbacks take so long that the inline caller is relieved.
    """
    visitor = Visitor()
    with pool_of(WORKERS) as pool:
        pool.admit(visitor)
        load = Load(pool, inline=True)

        def check() -> None:
            while not load.is_over():
                pool.check()
                threading.Event().wait(0.0005)

        others = [threading.Thread(target=target) for target in (load.add, load.add, check)]
        visitor.tell(load.add)
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        visitor.leave()
        load.assert_all_done()
        eventually(lambda: sleeping(pool))
        assert visitor.inline_runs
