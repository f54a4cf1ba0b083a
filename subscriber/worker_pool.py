"""The threads behind a ThreadScheduler."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from protocol.clock import SYSTEM_CLOCK

from .worker_watch import WATCH

_log = logging.getLogger("pullstream.scheduler")

# A worker that was not needed for so many seconds leaves. One stays.
IDLE_EXIT = 2.0

# Callbacks that take less than this on average, in seconds, are brisk: one worker handles them as
# fast as several, which could only take turns.
BRISK = 50e-6

# A pool that was found without work so often has a pause.
QUIET_LOOKS = 20

# Where the average begins. Some dozens of short responses prove that callbacks are brisk, a single
# slow one that they are not.
_UNPROVEN = 1e-3
_WEIGHT = 0.1


class WorkerPool:
    """Threads of our own around one queue, made so that a crowd of short callbacks costs little.

    Waking a thread costs more than a short callback, and ten threads that were woken for ten
    messages mostly wake to find that the first has done the work of all. So whoever adds work wakes
    one sleeper, however much it is; and a worker that takes a piece and sees more wakes the next
    before it begins. If its callback turns out to be slow, the next is already on its way: nothing
    waits behind a slow callback while a worker is idle. If it is short, the first takes piece after
    piece, and no third is woken before the second has come to run (`_waking`).

    Where callbacks have proved to be brisk even the second is one too many. Then the worker asks to
    be watched (`_watched`) and wakes nobody: if one callback is slow for once, the watch wakes the
    next, some milliseconds later, and from then on all goes as before. Python lets a thread that
    computes delay the others for as long.

    A sleeper waits on a lock of its own, its gate, which stands in `_sleepers` for whoever wants to
    wake it. It lies down in this order: gate into `_sleepers`, then a last look at the queue.
    Whoever adds work does the opposite: work into the queue, then a look for sleepers. So one of
    the two sees the other, and no work is left lying.

    The last to lie down is the first to be woken, so with short callbacks the others sleep on, and
    leave after a while: a process with a hundred subscriptions keeps hundreds of threads less.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        # What was added together stays together: a callback, and the arguments not taken yet.
        self._work: deque[tuple[Callable[[Any], Any], deque[Any]]] = deque()
        self._sleepers: list[threading.Lock] = []
        # A sleeper was woken and has not come to run. A race on this flag wakes one too many.
        self._waking = False
        # Seconds a callback takes, on average; races on it do no harm.
        self._pace = _UNPROVEN
        self._watched = False
        # What the watch saw when it last looked: what was first in the queue, and how much of it.
        self._seen: tuple[deque[Any], int] | None = None
        self._quiet_looks = 0
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def waiting(self) -> int:
        return sum(len(arguments) for _, arguments in list(self._work))

    @property
    def running(self) -> int:
        if self._closed:
            # Those that sleep are on their way out; what is still alive is in a callback.
            return sum(thread.is_alive() for thread in self._threads)
        return max(len(self._threads) - len(self._sleepers), 0)

    def add(self, callback: Callable[[Any], Any], arguments: Iterable[Any]) -> None:
        """Queue `callback(argument)` for each; raises RuntimeError after `close`."""
        if self._closed:
            raise closed_pool()
        pieces = deque(arguments)
        if not pieces:
            return
        self._work.append((callback, pieces))
        # A worker that has not lain down will look at the queue again before it does.
        if not self._watched or len(self._threads) == len(self._sleepers):
            self._call_another()

    def close(self) -> list[Any]:
        """Begin nothing any more; returns the arguments of what has not begun."""
        with self._lock:
            self._closed = True
        dropped: list[Any] = []
        for _, arguments in list(self._work):
            while arguments:
                try:
                    dropped.append(arguments.popleft())
                except IndexError:
                    # A worker was quicker.
                    break
        while self._sleepers:
            self._wake_one(even_if_waking=True)
        return dropped

    def look(self) -> bool:
        """For the watch: call another worker if those at work have got nowhere since the last look.

        Returns whether the pool is worth another look.
        """
        try:
            _, arguments = self._work[0]
        except IndexError:
            self._seen = None
            self._quiet_looks += 1
            if self._quiet_looks >= QUIET_LOOKS:
                self._watched = False
        else:
            self._quiet_looks = 0
            last, self._seen = self._seen, (arguments, len(arguments))
            if last is not None and last[0] is arguments and last[1] == len(arguments):
                self._pace = _UNPROVEN
                self._watched = False
                self._seen = None
                self._call_another()
        return self._watched and not self._closed

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
        self._waking = False
        while not self._closed:
            try:
                callback, arguments = self._work[0]
            except IndexError:
                if not self._sleep(gate):
                    return
                continue
            if arguments:
                self._handle(callback, arguments)
            else:
                # Who took the last of them has not come to forget them. To look again until then
                # would keep the interpreter from just that thread.
                self._forget(arguments)
            # Kept, the last message would keep its whole response in memory.
            del callback, arguments

    def _handle(self, callback: Callable[[Any], Any], arguments: deque[Any]) -> None:
        """Take what nobody else takes of the arguments."""
        began = perf_counter()
        taken = 0
        work, take = self._work, arguments.popleft
        while arguments:
            try:
                argument = take()
            except IndexError:
                # Another worker was quicker.
                break
            taken += 1
            if not arguments:
                self._forget(arguments)
            if work and not (self._watched or self._waking):
                self._share()
            try:
                callback(argument)
            except BaseException:
                # The SDK's callbacks do not raise; a stranger's must not take a worker with it.
                _log.exception("scheduled callback %r raised", callback)
        if taken:
            self._pace += ((perf_counter() - began) / taken - self._pace) * _WEIGHT

    def _forget(self, arguments: deque[Any]) -> None:
        """The last of them is taken: whoever sees it first puts them away."""
        with self._lock:
            if self._work and self._work[0][1] is arguments:
                self._work.popleft()

    def _share(self) -> None:
        """There is more to do than one callback."""
        if self._pace < BRISK:
            self._watched = True
            WATCH.add(self)
        else:
            self._call_another()

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


def closed_pool() -> RuntimeError:
    return RuntimeError("this scheduler is shut down; each subscription needs its own")
