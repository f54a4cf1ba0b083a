"""The pool under the scheduler: no work waits while a worker is idle."""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from time import process_time

import pytest

from pullstream.scheduling.pace import FAST_CALLBACK
from pullstream.scheduling.stall_monitor import QUIET_CHECKS
from pullstream.scheduling.worker_pool import WorkerPool
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.pools import (
    STRESS,
    Load,
    Slow,
    Watched,
    brisk_pool,
    pool_of,
    prove_brisk,
    send_to_sleep,
)
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.threads import on_threads, run_on_threads

# ---- races, one step at a time -------------------------------------------------------------------


class Hooked:
    """Runs a function once, on the first thread that calls it."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.done = threading.Event()

    def once(self, action: Callable[[], None]) -> None:
        self._todo.put(action)

    def run(self) -> None:
        try:
            action = self._todo.get_nowait()
        except queue.Empty:
            return
        action()
        self.done.set()


class Sleepers(list[threading.Lock]):
    """Sleepers with a hook just before a sleeper is added and one just after."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Hooked(), Hooked()

    def append(self, gate: threading.Lock) -> None:
        self.before.run()
        super().append(gate)
        self.after.run()


class WorkQueue(deque[object]):
    """A queue with a hook just after a worker that goes to sleep has found it empty."""

    def __init__(self, sleepers: Sleepers) -> None:
        super().__init__()
        self._sleepers = sleepers
        self.after = Hooked()

    def __bool__(self) -> bool:
        there_is = len(self) > 0
        if not there_is and self._sleepers:
            self.after.run()
        return there_is


class Rig:
    """A pool with one worker, which goes to sleep after its work."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.sleepers = pool._sleepers = Sleepers()
        self.queue = WorkQueue(self.sleepers)
        pool._work = self.queue  # type: ignore[assignment]
        self.done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def add(self, name: str) -> None:
        self.pool.add(self.done.put, [name])

    def close(self) -> None:
        self.pool.close()

    def next_done(self) -> str:
        return self.done.get(timeout=TIMEOUT)

    def sleeps(self) -> bool:
        """Return whether the worker waits at its gate, and nothing can open the gate by mistake."""
        sleepers = list(self.pool._sleepers)
        return len(sleepers) == 1 and sleepers[0].locked() and not self.pool._waking


@pytest.fixture
def rig() -> Iterator[Rig]:
    with pool_of(1) as pool:
        yield Rig(pool)


@pytest.fixture(params=["before it is known", "when it is known", "after its check"])
def hook(rig: Rig, request: pytest.FixtureRequest) -> Hooked:
    """Return the hook at a moment at which a worker goes to sleep."""
    return {
        "before it is known": rig.sleepers.before,
        "when it is known": rig.sleepers.after,
        "after its check": rig.queue.after,
    }[request.param]


def test_work_added_to_a_pool_while_its_worker_falls_asleep_is_done(rig: Rig, hook: Hooked) -> None:
    """Work that comes while a worker goes to sleep is done.

    It comes before others can see that the worker sleeps, just after, or after its last check of
    the queue. The worker sleeps properly afterwards, and more work wakes it.
    """
    hook.once(lambda: rig.add("late"))
    rig.add("first")
    assert rig.next_done() == "first"
    assert rig.next_done() == "late"
    assert hook.done.is_set()
    eventually(rig.sleeps)
    rig.add("another")
    assert rig.next_done() == "another"
    eventually(rig.sleeps)


def test_closing_a_worker_pool_while_a_worker_falls_asleep_ends_the_worker_thread(
    rig: Rig, hook: Hooked
) -> None:
    """The worker ends, whichever step the closing meets."""
    hook.once(rig.close)
    rig.add("first")
    assert rig.next_done() == "first"
    assert hook.done.wait(TIMEOUT)
    rig.pool.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in rig.pool._threads)


def test_adding_much_work_to_a_pool_wakes_one_worker_which_wakes_the_next_worker(rig: Rig) -> None:
    """One wake-up in progress prevents others. Afterwards new wake-ups are possible."""
    with pool_of(3) as pool:
        send_to_sleep(pool, 3)
        woken: list[int] = []
        release = threading.Event()

        def slow(number: int) -> None:
            woken.append(number)
            assert release.wait(TIMEOUT)

        pool.add(slow, range(3))
        eventually(lambda: len(woken) == 3)
        assert (pool.running, pool.waiting) == (3, 0)
        release.set()
        eventually(lambda: pool.running == 0)
        assert not pool._waking


# ---- consequences --------------------------------------------------------------------------------


@pytest.mark.parametrize("asleep", [False, True])
def test_a_worker_pool_runs_as_many_pieces_of_work_at_once_as_it_has_workers(asleep: bool) -> None:
    """The barrier opens ten times for ten threads, with new threads and with sleeping ones."""
    together, done = threading.Barrier(10), threading.Semaphore(0)

    def meet(_: int) -> None:
        together.wait(TIMEOUT)
        done.release()

    with pool_of(10) as pool:
        if asleep:
            send_to_sleep(pool, 10)
        pool.add(meet, range(100))
        for _ in range(100):
            assert done.acquire(timeout=TIMEOUT)


@pytest.mark.parametrize("singly", [False, True])
def test_no_work_waits_behind_a_slow_piece_of_work_while_a_worker_of_the_pool_is_idle(
    singly: bool,
) -> None:
    """With nine slow pieces on ten workers, the last worker does all the rest."""
    slow = Slow()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    with pool_of(10) as pool:
        send_to_sleep(pool, 10)
        if singly:
            for _ in range(9):
                pool.add(slow, [None])
            for number in range(50):
                pool.add(done.put, [number])
        else:
            pool.add(slow, [None] * 9)
            pool.add(done.put, range(50))
        assert sorted(done.get(timeout=TIMEOUT) for _ in range(50)) == list(range(50))
        assert pool.running >= 9
        slow.release.set()


def test_short_pieces_of_work_in_sequence_start_only_one_worker_thread() -> None:
    """A piece that comes after the last one finds a sleeper, so no second thread is needed."""
    done = threading.Semaphore(0)
    with pool_of(10) as pool:
        for _ in range(50):
            pool.add(lambda _: done.release(), [None])
            assert done.acquire(timeout=TIMEOUT)
            eventually(lambda: pool.running == 0)
        assert len(pool._threads) == 1


def test_a_worker_thread_that_finds_no_more_work_uses_no_cpu_time() -> None:
    """A worker that finds no more work uses no CPU time.

    Python lets a computing thread run for a while. The worker that took the last piece would wait
    for that each time.
    """
    rounds = 300
    before, interval = process_time(), sys.getswitchinterval()
    # Longer than the default, so that the effect is visible.
    sys.setswitchinterval(0.05)
    try:
        with pool_of(10) as pool:
            for _ in range(rounds):
                done = threading.Event()
                left = list(range(100))

                def callback(_: int, left: list[int] = left, done: threading.Event = done) -> None:
                    left.pop()
                    if not left:
                        done.set()

                pool.add(callback, list(left))
                assert done.wait(TIMEOUT)
    finally:
        sys.setswitchinterval(interval)
    assert process_time() - before < rounds * 2e-3


def test_one_worker_thread_does_all_work_of_a_pool_if_no_other_thread_can_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker has taken an argument when it looks for help. No argument is lost."""
    handled: queue.SimpleQueue[int] = queue.SimpleQueue()
    start, started = threading.Thread.start, count()

    def start_one(thread: threading.Thread) -> None:
        if next(started):
            raise RuntimeError("can't start new thread")
        start(thread)

    pool = WorkerPool(4)
    monkeypatch.setattr(threading.Thread, "start", start_one)
    pool.add(handled.put, range(3))
    assert [handled.get(timeout=TIMEOUT) for _ in range(3)] == [0, 1, 2]
    pool.close()
    assert "cannot start another worker thread" in caplog.text


def test_a_sleeping_worker_thread_keeps_no_reference_to_finished_work() -> None:
    """A sleeping worker would keep a message, and with it the whole response."""

    class Piece:
        kept = 0

        def __init__(self) -> None:
            Piece.kept += 1

        def __del__(self) -> None:
            Piece.kept -= 1

    with pool_of(3) as pool:
        pool.add(lambda _: None, (Piece() for _ in range(10)))
        eventually(lambda: Piece.kept == 0)


# ---- short callbacks -----------------------------------------------------------------------------


def test_fast_callbacks_of_a_worker_pool_are_all_run_by_one_worker_thread(watch: Watched) -> None:
    """The worker asks for the monitor and wakes no other worker, even if more work comes."""
    slow, workers = Slow(), set()
    with brisk_pool(5) as pool:
        pool._stall.is_watched = False
        watch.asked = 0
        done = threading.Semaphore(0)

        def note(_: object) -> None:
            workers.add(threading.current_thread())
            done.release()

        pool.add(slow, [None])
        assert slow.begun.acquire(timeout=TIMEOUT)
        pool._stall.is_watched = True
        pool.add(note, range(100))
        assert pool.running == 1
        slow.release.set()
        for _ in range(100):
            assert done.acquire(timeout=TIMEOUT)
        assert len(workers) == 1


def test_a_worker_pool_with_many_fast_callbacks_registers_with_the_stall_monitor_once(
    watch: Watched,
) -> None:
    with pool_of(5) as pool:
        send_to_sleep(pool, 5)

        def ask() -> bool:
            prove_brisk(pool)
            return watch.asked == 1

        eventually(ask)
        assert ask()


def test_the_time_to_start_a_worker_thread_does_not_count_as_callback_duration(
    watch: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start may take long when a hundred subscriptions have just begun."""
    now = [0.0]
    with pool_of(2) as pool:
        monkeypatch.setattr("pullstream.scheduling.worker_pool.perf_counter", lambda: now[0])
        monkeypatch.setattr(pool, "_share", lambda: now.__setitem__(0, now[0] + 1.0))
        done = threading.Semaphore(0)
        pool.add(lambda _: done.release(), range(10))
        for _ in range(10):
            assert done.acquire(timeout=TIMEOUT)
        eventually(lambda: pool.running == 0)
        assert now[0] > 0
        assert pool._pace._last == 0


def test_one_slow_measurement_among_fast_ones_does_not_classify_callbacks_as_slow(
    watch: Watched,
) -> None:
    """One slow measurement among many fast ones changes nothing.

    Two in a row do, and so does one slow callback by itself.
    """
    with pool_of(1) as pool:
        for _ in range(50):
            pool._pace.learn(100e-6, 100)
        pool._pace.learn(0.1, 100)
        pool._pace.learn(100e-6, 100)
        assert pool._pace.average < FAST_CALLBACK
        pool._pace.learn(0.1, 100)
        pool._pace.learn(0.1, 100)
        assert pool._pace.average > FAST_CALLBACK
        for _ in range(50):
            pool._pace.learn(100e-6, 100)
        assert pool._pace.average < FAST_CALLBACK
        pool._pace.learn(1e-3, 1)
        assert pool._pace.average > FAST_CALLBACK


def test_a_slow_callback_among_fast_ones_makes_a_pool_use_other_workers(watch: Watched) -> None:
    """Help comes at the second check without progress. From then on each worker wakes the next."""
    slow = Slow()
    with brisk_pool(5) as pool:
        pool.add(slow, range(20))
        assert slow.begun.acquire(timeout=TIMEOUT)
        assert pool.running == 1
        assert pool.check()
        assert not slow.begun.acquire(blocking=False)
        assert not pool.check()
        for _ in range(4):
            assert slow.begun.acquire(timeout=TIMEOUT)
        assert (pool.running, pool.waiting) == (5, 15)
        slow.release.set()


def test_no_other_worker_is_woken_while_one_worker_makes_progress_with_fast_callbacks(
    watch: Watched,
) -> None:
    """The worker may be slow, but the waiting work makes progress."""
    steps = threading.Semaphore(0)
    begun: queue.SimpleQueue[int] = queue.SimpleQueue()

    def step(number: int) -> None:
        begun.put(number)
        assert steps.acquire(timeout=TIMEOUT)

    with brisk_pool(5) as pool:
        pool.add(step, range(5))
        for number in range(5):
            assert begun.get(timeout=TIMEOUT) == number
            assert pool.check()
            assert pool.running == 1
            steps.release()


def test_a_worker_pool_without_work_for_several_checks_ends_its_stall_monitoring(
    watch: Watched,
) -> None:
    """One check without work is not enough, because more work may be on its way."""
    with brisk_pool(2) as pool:
        pool._stall._quiet_checks = 0
        checks = [pool.check() for _ in range(QUIET_CHECKS)]
        assert checks == [True] * (QUIET_CHECKS - 1) + [False]


def test_workers_take_work_items_without_the_lock_of_the_pool(watch: Watched) -> None:
    """Workers that wait for a lock for each message give up Python's lock for each message."""
    with pool_of(2) as pool:
        send_to_sleep(pool, 2)
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        with pool._lock:
            for number in range(10):
                pool.add(done.put, [number])
            assert sorted(done.get(timeout=TIMEOUT) for _ in range(10)) == list(range(10))
        eventually(lambda: pool.running == 0)
        assert not pool._work


def test_closing_sees_the_next_work_item_while_two_workers_remove_a_finished_one(rig: Rig) -> None:
    """Both workers look at the finished item, the other one removes it, and `close` comes last."""
    finished, following = (rig.done.put, deque[str]()), (rig.done.put, deque(["next"]))
    dropped: list[str] = []

    class Contended(deque[object]):
        """The queue of work, with the other worker and the `close` at the worst moments."""

        def __getitem__(self, at: int) -> object:  # type: ignore[override]
            item = super().__getitem__(at)
            if item is finished:
                super().popleft()
            return item

        def popleft(self) -> object:
            item = super().popleft()
            dropped.extend(rig.pool.close())
            return item

        def remove(self, item: object) -> None:
            try:
                super().remove(item)
            finally:
                dropped.extend(rig.pool.close())

    rig.pool._work = Contended([finished, following])  # type: ignore[assignment]
    rig.pool._forget(finished[1])
    assert dropped == ["next"]


# ---- with real threads ---------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
def test_no_work_is_lost_if_several_threads_add_it_while_workers_fall_asleep(workers: int) -> None:
    """Each round has little work, so that workers go to sleep and are woken in every round."""
    with pool_of(workers) as pool:
        load = Load(pool)
        run_on_threads(load.add, times=3)
        load.assert_all_done()
        eventually(lambda: pool.running == 0)


def test_work_added_during_a_pool_close_is_run_once_or_handed_back_once_by_close() -> None:
    """No piece is handled twice or begun after the closing, and a late addition is refused."""
    rounds = 0
    end = SYSTEM_CLOCK.monotonic() + STRESS
    while rounds < 5 or SYSTEM_CLOCK.monotonic() < end:
        rounds += 1
        pool = WorkerPool(3)
        added: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        numbers = count()
        begin = threading.Barrier(4)

        def add() -> None:
            begin.wait(TIMEOUT)  # noqa: B023
            for _ in range(200):
                number = next(numbers)  # noqa: B023
                try:
                    pool.add(done.put, [number])  # noqa: B023
                except RuntimeError:
                    return
                added.put(number)  # noqa: B023

        with on_threads(add, times=3):
            begin.wait(TIMEOUT)
            returned = pool.close()
        pool.join(TIMEOUT)
        assert not any(thread.is_alive() for thread in pool._threads)
        # Work added during the closing is here, unless it was done or returned.
        left = pool.close()
        handled = [done.get_nowait() for _ in range(done.qsize())] + returned + left
        assert len(handled) == len(set(handled))
        assert sorted(handled) == sorted(added.get_nowait() for _ in range(added.qsize()))
