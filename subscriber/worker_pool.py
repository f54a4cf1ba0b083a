"""The threads behind a ThreadScheduler: its own, or those of a foreign executor."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

from protocol.clock import SYSTEM_CLOCK

_log = logging.getLogger("pullstream.scheduler")

# A worker that was not needed for so many seconds leaves. One stays.
IDLE_EXIT = 2.0

# A callable and its only argument.
Work = tuple[Callable[[Any], Any], Any]


class WorkerPool:
    """Threads of our own around one queue, made so that a crowd of short callbacks costs little.

    Waking a thread costs more than a short callback, and ten threads that were woken for ten
    messages mostly wake to find that the first has done the work of all. So whoever adds work wakes
    one sleeper, however much it is; and a worker that takes a piece and sees more wakes the next
    before it begins. If its callback turns out to be slow, the next is already on its way: nothing
    waits behind a slow callback while a worker is idle. If it is short, the first takes piece after
    piece, and no third is woken before the second has come to run (`_waking`).

    A sleeper waits on a lock of its own, its gate, which stands in `_sleepers` for whoever wants to
    wake it. It lies down in this order: gate into `_sleepers`, then a last look at the queue.
    Whoever adds work does the opposite: work into the queue, then a look for sleepers. So one of
    the two sees the other, and no work is left lying.

    The last to lie down is the first to be woken, so with short callbacks the others sleep on, and
    leave after a while: a process with a hundred subscriptions keeps hundreds of threads less.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._work: deque[Work] = deque()
        self._sleepers: list[threading.Lock] = []
        # A sleeper was woken and has not come to run. A race on this flag wakes one too many.
        self._waking = False
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def waiting(self) -> int:
        return len(self._work)

    @property
    def running(self) -> int:
        if self._closed:
            # Those that sleep are on their way out; what is still alive is in a callback.
            return sum(thread.is_alive() for thread in self._threads)
        return max(len(self._threads) - len(self._sleepers), 0)

    def add(self, work: Iterable[Work]) -> None:
        """Queue work; raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("this scheduler is shut down; each subscription needs its own")
        self._work.extend(work)
        self._call_another()

    def close(self) -> list[Work]:
        """Begin nothing any more; returns what has not begun."""
        with self._lock:
            self._closed = True
        dropped: list[Work] = []
        while self._work:
            try:
                dropped.append(self._work.popleft())
            except IndexError:
                # A worker was quicker.
                break
        while self._sleepers:
            self._wake_one(even_if_waking=True)
        return dropped

    def join(self, timeout: float | None) -> None:
        """Wait for the threads to end, those that are in a callback included."""
        deadline = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                left = None if deadline is None else max(deadline - SYSTEM_CLOCK.monotonic(), 0.0)
                thread.join(left)

    def runs_here(self) -> bool:
        return threading.current_thread() in self._threads

    def _start_one(self) -> None:
        with self._lock:
            if self._closed or len(self._threads) >= self._max_workers:
                return
            name = f"pullstream-worker-{next(self._numbers)}"
            # Daemon: a callback that never returns must not keep the process from exiting.
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            self._waking = True
            try:
                thread.start()
            except BaseException:
                self._threads.remove(thread)
                self._waking = False
                raise

    def _wake_one(self, *, even_if_waking: bool = False) -> bool:
        """Wake a sleeper; whether there was one, or one is on its way."""
        if self._waking and not even_if_waking:
            return True
        try:
            gate = self._sleepers.pop()
        except IndexError:
            return False
        self._waking = True
        gate.release()
        return True

    def _run(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        work = self._work
        self._waking = False
        # What slips into the queue while it is closed is left there.
        while not self._closed:
            try:
                callback, argument = work.popleft()
            except IndexError:
                # Kept, the last message would keep its whole response in memory.
                argument = None
                if not self._sleep(gate):
                    return
                continue
            if work and not self._waking:
                self._call_another()
            try:
                callback(argument)
            except BaseException:
                # The SDK's callbacks do not raise; a stranger's must not take a worker with it.
                _log.exception("scheduled callback %r raised", callback)

    def _call_another(self) -> None:
        if not self._wake_one() and len(self._threads) < self._max_workers:
            self._start_one()

    def _sleep(self, gate: threading.Lock) -> bool:
        """Wait for work; False when it is time to leave."""
        self._sleepers.append(gate)
        while not (self._work or self._closed):
            if gate.acquire(timeout=IDLE_EXIT):
                self._waking = False
                return True
            if len(self._threads) > 1:
                break
        try:
            self._sleepers.remove(gate)
        except ValueError:
            # Somebody is about to wake us: that must not open the gate for the next sleep.
            gate.acquire()
            self._waking = False
            return True
        return bool(self._work) or self._closed or self._stay()

    def _stay(self) -> bool:
        """Leave the pool, unless work came in: whoever added it may have counted on this thread."""
        with self._lock:
            self._threads.remove(threading.current_thread())
            if not self._work:
                return False
            self._threads.append(threading.current_thread())
            return True


class ExecutorPool:
    """Work for a foreign executor: one turn there for each piece, which takes whatever is first."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._work: deque[Work] = deque()
        self._quiet = threading.Condition()
        self._closed = False
        # Threads that are in a callback.
        self._running: set[int] = set()

    @property
    def waiting(self) -> int:
        return len(self._work)

    @property
    def running(self) -> int:
        return len(self._running)

    def add(self, work: Iterable[Work]) -> None:
        """Queue work; raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("this scheduler is shut down; each subscription needs its own")
        for piece in work:
            self._work.append(piece)
            self._executor.submit(self._turn)

    def close(self) -> list[Work]:
        """Begin nothing any more; returns what has not begun."""
        with self._quiet:
            self._closed = True
            dropped = list(self._work)
            self._work.clear()
            return dropped

    def join(self, timeout: float | None) -> None:
        """With no timeout: wait for the callbacks that run. With one: do not."""
        if timeout is None:
            with self._quiet:
                self._quiet.wait_for(lambda: not self._running)

    def runs_here(self) -> bool:
        return threading.get_ident() in self._running

    def _turn(self) -> None:
        thread = threading.get_ident()
        with self._quiet:
            if self._closed or not self._work:
                return
            callback, argument = self._work.popleft()
            self._running.add(thread)
        try:
            callback(argument)
        finally:
            with self._quiet:
                self._running.discard(thread)
                self._quiet.notify_all()
