"""Inline callers of a worker pool: work that they add and run, and relief after a slow callback."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from pullstream.scheduling.inline_run import InlineRun
from pullstream.scheduling.pace import FAST_CALLBACK
from pullstream.scheduling.stall_monitor import QUIET_CHECKS
from pullstream.scheduling.worker_pool import WorkerPool
from tests.subscriber.pools import Load, Slow, Watched, brisk_pool, pool_of
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

WORKERS = 3


class Caller:
    """An inline caller of a pool: a thread that runs the given tasks.

    `relieved` counts its reliefs.
    """

    pool: WorkerPool

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

    def add(self, callback: Callable[[Any], object], pieces: Iterable[object] = (None,)) -> None:
        """Add work that may wait, and wait for the end of the call."""
        self.do(lambda: self.pool.add(callback, pieces, may_wait=True))

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
def caller(watch: Watched) -> Iterator[Caller]:
    """Yield an inline caller of a watched pool with fast callbacks whose workers all sleep."""
    caller = Caller()
    with brisk_pool(WORKERS) as caller.pool:
        assert caller.pool.admit(caller)
        yield caller
    caller.leave()


class Noted:
    """A callback that records the threads that ran it."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def __call__(self, _: object) -> None:
        self.threads.append(threading.current_thread())


def sleeping(pool: WorkerPool) -> bool:
    return pool.running == 0 and pool.waiting == 0


def occupy(caller: Caller, pieces: Iterable[object] = (None,)) -> Slow:
    """Return a slow callback in which the inline caller has begun the first of these pieces."""
    slow = Slow()
    caller.tell(lambda: caller.pool.add(slow, pieces, may_wait=True))
    assert slow.begun.acquire(timeout=TIMEOUT)
    return slow


def test_fast_callbacks_that_a_reader_thread_adds_to_the_pool_run_on_the_reader_thread(
    caller: Caller,
) -> None:
    """The work is done before `add` returns, and no worker wakes."""
    note = Noted()
    caller.add(note, range(100))
    assert note.threads == [caller.thread] * 100
    assert len(caller.pool._sleepers) == WORKERS
    assert sleeping(caller.pool)


def test_a_reader_thread_also_runs_callbacks_added_by_the_callbacks_that_it_runs(
    caller: Caller,
) -> None:
    """The end of a callback may add the next message of its key."""
    note = Noted()
    caller.do(
        lambda: caller.pool.add(lambda _: caller.pool.add(note, [None]), [None], may_wait=True)
    )
    assert note.threads == [caller.thread]


def test_work_added_by_a_reader_thread_that_must_not_block_runs_on_workers(caller: Caller) -> None:
    """The caller may add more, which other workers could do meanwhile, or may hold a lock."""
    slow, note = Slow(), Noted()

    def add() -> None:
        caller.pool.add(slow, [None])
        caller.pool.add(note, [None])

    caller.do(add)
    assert slow.begun.acquire(timeout=TIMEOUT)
    eventually(lambda: bool(note.threads) or bool(caller.pool.check() and False))
    slow.release.set()
    assert caller.thread not in note.threads


def test_work_added_by_threads_other_than_the_reader_runs_on_workers(caller: Caller) -> None:
    """The workers run work that another thread adds."""
    note = Noted()
    caller.pool.add(note, [None])
    eventually(lambda: bool(note.threads))
    assert note.threads[0] not in (caller.thread, threading.current_thread())


def test_a_reader_thread_runs_callbacks_itself_if_it_adds_them_in_quick_succession(
    caller: Caller, watch: Watched
) -> None:
    """The first single piece wakes a worker.

    The next one, soon after, does not, and has the pool watched.
    """
    caller.pool._stall.is_watched = False
    caller.pool._added = float("-inf")
    note, asked = Noted(), watch.asked
    caller.add(note)
    eventually(lambda: bool(note.threads) and sleeping(caller.pool))
    assert note.threads[0] is not caller.thread
    assert watch.asked == asked
    # As if this moment: the test may take longer than the pool calls "soon" on a busy machine.
    caller.pool._added = float("inf")
    caller.add(note)
    assert note.threads[1] is caller.thread
    assert watch.asked == asked + 1


def test_a_reader_thread_runs_a_rarely_added_callback_itself_if_the_stall_monitor_runs(
    caller: Caller, watch: Watched
) -> None:
    """A monitor that already runs for another pool watches this one at little cost.

    Then it does not matter how rarely work comes.
    """
    caller.pool._stall.is_watched = False
    caller.pool._added = float("-inf")
    watch.is_running = True
    note, asked = Noted(), watch.asked
    caller.add(note)
    assert note.threads == [caller.thread]
    assert watch.asked == asked + 1


def test_work_added_by_a_reader_thread_while_a_worker_is_slow_wakes_another_worker(
    caller: Caller,
) -> None:
    """Fast callbacks wait for no slow worker, either.

    The pool is not watched, so nothing else would wake a worker.
    """
    caller.pool._stall.is_watched = False
    slow, note = Slow(), Noted()
    caller.pool.add(slow, [None])
    assert slow.begun.acquire(timeout=TIMEOUT)
    caller.add(note)
    eventually(lambda: bool(note.threads))
    assert note.threads[0] is not caller.thread
    slow.release.set()


def test_slow_callbacks_run_on_worker_threads_and_not_on_the_reader_thread(caller: Caller) -> None:
    """An unwatched pool does not assume that its callbacks are fast."""
    caller.pool._stall.is_watched = False
    caller.pool._pace.average = FAST_CALLBACK
    note = Noted()
    caller.add(note)
    eventually(lambda: bool(note.threads))
    assert note.threads[0] is not caller.thread


def test_work_added_by_a_reader_thread_is_left_to_a_worker_that_is_awake(caller: Caller) -> None:
    """The awake worker takes the work later."""
    slow, note = Slow(), Noted()
    caller.pool.add(slow, [None])
    assert slow.begun.acquire(timeout=TIMEOUT)
    caller.add(note)
    assert note.threads == []
    slow.release.set()
    eventually(lambda: bool(note.threads))
    assert note.threads[0] is not caller.thread


def test_with_several_busy_pools_a_blocked_reader_thread_is_replaced_after_three_checks(
    caller: Caller,
) -> None:
    """The inline caller may have been waiting for the interpreter lock."""
    slow = occupy(caller)
    assert caller.pool.check(is_alone=False)
    assert caller.pool.check(is_alone=False)
    assert caller.relieved == 0
    assert not caller.pool.check(is_alone=False)
    assert caller.relieved == 1
    slow.release.set()


def test_a_worker_pool_with_one_worker_runs_no_callback_on_a_reader_thread(caller: Caller) -> None:
    """With one worker, callbacks may rely on running in a single thread."""
    with pool_of(1) as pool:
        assert not pool.admit(caller)


def test_a_reader_thread_blocked_in_a_callback_is_replaced_and_workers_run_its_work(
    caller: Caller,
) -> None:
    """An inline caller is relieved after two checks without progress.

    It runs nothing more after its callback ends, and from then on workers wake each other.
    """
    slow, note = occupy(caller), Noted()
    caller.pool.add(note, range(10))
    assert caller.pool.check()
    assert (caller.relieved, note.threads) == (0, [])
    assert not caller.pool.check()
    assert caller.relieved == 1
    eventually(lambda: len(note.threads) == 10)
    assert caller.thread not in note.threads
    slow.release.set()
    eventually(lambda: sleeping(caller.pool))
    assert not caller.pool.runs_here()


@pytest.mark.parametrize("closed", [False, True])
def test_a_reader_thread_blocked_in_a_callback_is_replaced_even_if_no_other_work_waits(
    caller: Caller, closed: bool
) -> None:
    """No work waits, but the other duties of the inline caller do.

    If the pool is closed, the shutdown waits for the caller, which must read the stream to its end.
    """
    slow = occupy(caller)
    if closed:
        caller.pool.close()
    assert [caller.pool.check(), caller.pool.check()] == [True, False]
    assert caller.relieved == 1
    assert closed or len(caller.pool._sleepers) == WORKERS
    slow.release.set()


def test_a_reader_thread_that_makes_progress_with_its_callbacks_is_not_replaced(
    caller: Caller,
) -> None:
    """The inline caller runs one piece after the other, and each adds the next."""
    steps, begun = threading.Semaphore(0), threading.Semaphore(0)

    def step(left: int) -> None:
        begun.release()
        assert steps.acquire(timeout=TIMEOUT)
        if left:
            caller.pool.add(step, [left - 1])

    caller.tell(lambda: caller.pool.add(step, [3], may_wait=True))
    for _ in range(4):
        assert begun.acquire(timeout=TIMEOUT)
        assert caller.pool.check()
        steps.release()
    caller.do(lambda: None)
    assert caller.relieved == 0


def test_a_worker_pool_stays_monitored_while_its_reader_thread_runs_short_callbacks(
    caller: Caller,
) -> None:
    """A pool stays watched while its inline caller comes and goes.

    The monitor waits for the interpreter lock, so it checks mostly when the inline caller has
    released it, and sees no work. Two checks without work do not count as a blocked inline caller.
    """
    note = Noted()
    for _ in range(2 * QUIET_CHECKS):
        caller.add(note)
        assert caller.pool.check()
    assert (caller.relieved, set(note.threads)) == (0, {caller.thread})
    checks = [caller.pool.check() for _ in range(QUIET_CHECKS)]
    assert checks == [True] * (QUIET_CHECKS - 1) + [False]


def test_a_worker_pool_that_asks_for_monitoring_again_is_monitored_for_the_full_idle_time(
    caller: Caller,
) -> None:
    """Earlier quiet checks no longer count."""
    while caller.pool.check():
        pass
    caller.pool._request_checks()
    assert caller.pool.check()


def test_a_callback_on_the_reader_thread_counts_towards_the_limit_of_concurrent_callbacks(
    caller: Caller,
) -> None:
    """The limit of concurrent callbacks holds before and after the relief."""
    slow = occupy(caller, range(10))
    assert (caller.pool.running, caller.pool.waiting) == (1, 9)
    caller.pool.check()
    caller.pool.check()
    for _ in range(WORKERS - 1):
        assert slow.begun.acquire(timeout=TIMEOUT)
    assert (caller.pool.running, caller.pool.waiting) == (WORKERS, 10 - WORKERS)
    assert not slow.begun.acquire(timeout=0.05)
    slow.release.set()
    eventually(lambda: sleeping(caller.pool))


def test_a_replaced_reader_thread_frees_its_place_for_waiting_work_when_its_callback_ends(
    caller: Caller,
) -> None:
    """Work that waited because of the relieved caller begins when it leaves."""
    first, others = occupy(caller), Slow()
    caller.pool.check()
    caller.pool.check()
    caller.pool.add(others, range(WORKERS))
    for _ in range(WORKERS - 1):
        assert others.begun.acquire(timeout=TIMEOUT)
    assert not others.begun.acquire(timeout=0.05)
    first.release.set()
    assert others.begun.acquire(timeout=TIMEOUT)
    others.release.set()


def test_the_replacement_of_a_blocked_reader_thread_is_retried_until_a_thread_can_start(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """The pool stays watched until the relief succeeds."""
    caller.cannot_be_relieved = True
    slow = occupy(caller)
    assert [caller.pool.check(), caller.pool.check()] == [True, True]
    assert "can't start new thread" in caplog.text
    caller.cannot_be_relieved = False
    caller.pool.check()
    caller.pool.check()
    assert caller.relieved == 1
    slow.release.set()


def test_work_added_to_a_pool_just_as_a_reader_thread_ends_its_callbacks_is_done(
    caller: Caller,
) -> None:
    """Another thread adds work just after the inline caller has found no more, and relies on it."""
    note = Noted()

    class LateWork(InlineRun):
        def end(self) -> bool:
            other = threading.Thread(target=caller.pool.add, args=(note, [None]))
            other.start()
            other.join(TIMEOUT)
            return super().end()

    caller.inline_run = lambda: LateWork(lambda: None)  # type: ignore[method-assign]
    caller.do(lambda: caller.pool.add(lambda _: None, [None], may_wait=True))
    eventually(lambda: len(note.threads) == 1)
    assert note.threads[0] is not caller.thread


def test_a_reader_thread_that_blocks_just_as_pool_monitoring_ends_is_still_replaced(
    caller: Caller,
) -> None:
    """The monitor has seen no work for long.

    At this moment an inline caller arrives that saw the pool as watched.
    """
    slow = Slow()
    caller.pool._stall._quiet_checks = QUIET_CHECKS - 1
    first = caller.pool._first

    def too_early() -> None:
        # Only once.
        del caller.pool._first
        found = first()
        caller.tell(lambda: caller.pool.add(slow, [None], may_wait=True))
        assert slow.begun.acquire(timeout=TIMEOUT)
        return found  # type: ignore[return-value]

    caller.pool._first = too_early  # type: ignore[method-assign]
    assert caller.pool.check()
    caller.pool.check()
    caller.pool.check()
    assert caller.relieved == 1
    slow.release.set()


def test_joining_a_closed_pool_waits_for_a_callback_on_the_reader_thread(caller: Caller) -> None:
    """The pool returns the work that it has not begun."""
    slow, here = Slow(), queue.SimpleQueue[bool]()

    def callback(piece: object) -> None:
        here.put(caller.pool.runs_here())
        slow(piece)

    caller.tell(lambda: caller.pool.add(callback, range(3), may_wait=True))
    assert slow.begun.acquire(timeout=TIMEOUT)
    assert here.get(timeout=TIMEOUT)
    assert caller.pool.close() == [1, 2]
    caller.pool.join(0.05)
    assert caller.pool.running == 1
    slow.release.set()
    caller.pool.join(TIMEOUT)
    assert caller.pool.running == 0


def test_the_worker_pool_runs_all_callbacks_that_replaced_reader_threads_have_added(
    watch: Watched,
) -> None:
    """No work is lost while inline callers and other threads add it.

    Each thread adds little, so that the inline caller comes and goes while workers fall asleep.
    Some callbacks take so long that the inline caller is relieved.
    """
    caller = Caller()
    with pool_of(WORKERS) as pool:
        pool.admit(caller)
        load = Load(pool, inline=True)

        def check() -> None:
            while not load.is_over():
                pool.check()
                threading.Event().wait(0.0005)

        others = [threading.Thread(target=target) for target in (load.add, load.add, check)]
        caller.tell(load.add)
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        caller.leave()
        load.assert_all_done()
        eventually(lambda: sleeping(pool))
        assert caller.inline_runs
