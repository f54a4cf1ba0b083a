"""Thread pool of a `ThreadScheduler`."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from pullstream.runtime.repeated_errors import RepeatedErrors
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK

from .inline_run import ALWAYS, InlineCaller, InlineRun
from .pace import PaceEstimate
from .stall_monitor import CHECK_INTERVAL, QUIET_CHECKS, STALL_MONITOR, StallState, WorkItem

_log = logging.getLogger("pullstream.scheduler")

# An idle worker leaves after this many seconds. One stays.
IDLE_EXIT = 2.0

# Seconds. Work that arrives within this time of the previous work is frequent enough to keep the
# stall monitor on a pool. Starting the monitor for each addition would take longer than waking a
# worker. If the monitor already runs for other pools, one more costs little.
OFTEN = QUIET_CHECKS * CHECK_INTERVAL / 2


class WorkerPool:
    """Threads around one queue, designed so that many short callbacks cost little.

    Waking a thread costs more than a short callback. If ten threads are woken for ten messages,
    most of them find that the first has done all the work. So a thread that adds work wakes one
    sleeping worker, regardless of the amount of work. A worker that takes a message and sees more
    wakes the next worker before it runs the callback. If that callback is slow, the next worker is
    already on its way, so nothing waits behind a slow callback while a worker is idle. If the
    callback is short, the first worker takes one message after another, and no third worker is
    woken before the second has started to run (`_waking`).

    Once callbacks have proved to be fast, even the second worker is one too many. Then the worker
    asks the stall monitor to check the pool (`StallState`), and wakes nobody. If a callback is slow
    for once, the monitor wakes the next worker some milliseconds later, and from then on workers
    wake each other again. Python lets a thread that computes delay the others for the same time.

    With fast callbacks, even the first worker need not be woken: while all workers sleep, the
    inline caller (the thread that adds the work) runs the callbacks itself (`_run_inline`). It also
    does so if it adds one message at a time, but often. It counts as a worker while it runs
    callbacks. If a callback is slow for once, the monitor hands the caller's other duties to
    another thread and wakes a worker for the remaining work.

    A sleeping worker waits on its own lock, the gate, which other threads find in `_sleepers` and
    release to wake it. The worker puts the gate into `_sleepers` first, and then checks the queue
    one last time. A thread that adds work does the opposite: it puts the work into the queue first,
    and then looks for sleepers. So at least one of the two sees the other, and no work stays in the
    queue unnoticed.

    The last worker that went to sleep is the first to be woken. With short callbacks the others
    keep sleeping, and leave after a while: a process with a hundred subscriptions has hundreds of
    threads fewer.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._work: deque[WorkItem] = deque()
        self._sleepers: list[threading.Lock] = []
        # Whether a worker was woken and has not started to run. A race on this flag wakes one
        # worker too many.
        self._waking = False
        self._errors = RepeatedErrors(_log)
        self._pace = PaceEstimate()
        self._stall = StallState()
        # The inline caller, if there is one. Then the threads that run callbacks inline, each with
        # a gate that opens when it leaves.
        self._inline_caller: InlineCaller | None = None
        self._inline_threads: dict[threading.Thread, threading.Lock] = {}
        # perf_counter() when work was last added.
        self._added = float("-inf")
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count()
        self._lock = CallLock()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of arguments that no thread has taken."""
        return sum(len(arguments) for _, arguments in list(self._work))

    @property
    def running(self) -> int:
        """Number of threads that are awake; slightly more than the running callbacks at times."""
        if self._closed:
            # Sleeping workers are leaving; a thread that is still alive is in a callback.
            alive = sum(thread.is_alive() for thread in self._threads)
        else:
            alive = max(len(self._threads) - len(self._sleepers), 0)
        return alive + len(self._inline_threads)

    def admit(self, caller: InlineCaller) -> bool:
        """Let the thread of `caller` run the callbacks that it adds with `may_wait`.

        Returns:
            Whether it may. A pool of one worker refuses, because the user may want all callbacks to
            run on the same thread.
        """
        if self._max_workers > 1:
            self._inline_caller = caller
        return self._inline_caller is not None

    def add(
        self,
        callback: Callable[[Any], Any],
        arguments: Iterable[Any],
        *,
        may_wait: bool = False,
    ) -> None:
        """Queue `callback(argument)` for each argument.

        Args:
            callback: Function of one argument.
            arguments: The arguments, one for each call.
            may_wait: Whether the inline caller's thread may run the callbacks before this method
                returns. Must be False if the calling thread has more work to add or holds a lock,
                because then it cannot wait for a callback.

        Raises:
            RuntimeError: The pool is closed.
        """
        if self._closed:
            raise closed_pool()
        item = deque(arguments)
        if not item:
            return
        self._work.append((callback, item))
        before, self._added = self._added, perf_counter()
        stall = self._stall
        nobody_works = len(self._threads) == len(self._sleepers) and stall.inline_run is None
        if may_wait and nobody_works and (stall.is_watched or self._may_be_watched(before)):
            inline_run = (
                self._inline_caller.inline_run() if self._inline_caller is not None else None
            )
            if inline_run is not None and len(self._inline_threads) < self._max_workers:
                self._run_inline(inline_run)
                return
        if nobody_works or not stall.is_watched:
            self._call_another()
        # Otherwise a thread is at work. It checks the queue again before it sleeps or leaves.

    def close(self) -> list[Any]:
        """Start no more callbacks; return the arguments of the calls that have not begun."""
        with self._lock.once:
            self._closed = True
        dropped: list[Any] = []
        for _, arguments in list(self._work):
            while arguments:
                try:
                    dropped.append(arguments.popleft())
                except IndexError:
                    # A worker has taken it first.
                    break
        while self._sleepers:
            self._wake_one(even_if_waking=True)
        return dropped

    def check(self, *, is_alone: bool = True) -> bool:
        """Wake another worker if the pool is stalled; return whether to check the pool again.

        The stall monitor calls this. See `StallState.check` for `is_alone`.
        """
        stall = self._stall
        inline_run = stall.inline_run
        if stall.check(inline_run, self._first(), is_alone=is_alone):
            self._relieve_stuck(inline_run)
        elif stall.is_quiet:
            # Clear the flag, then check the work once more. A thread that adds work does the
            # opposite: it queues the work, then reads the flag.
            stall.is_watched = False
            stall.is_watched = stall.inline_run is not None or bool(self._work)
        # A closed pool, too, must free an inline caller from a slow callback: its thread reads the
        # stream.
        return stall.is_watched and (not self._closed or stall.inline_run is not None)

    def _relieve_stuck(self, inline_run: InlineRun | None) -> None:
        """React to a slow callback: from now on workers wake each other."""
        try:
            if inline_run is not None and not inline_run.relieve():
                return
            self._pace.reset()
            self._stall.reset()
            if self._work:
                self._call_another()
        except RuntimeError as error:
            _log.warning("cannot start another worker thread while a callback is slow: %s", error)
            # The next check tries again.
            self._stall.is_watched = True

    def join(self, timeout: float | None) -> None:
        """Wait for the threads, including running callbacks, and for inline callers to leave.

        Args:
            timeout: Seconds to wait. None: no limit.
        """
        deadline = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        here = threading.current_thread()
        threads = [thread for thread in self._threads if thread is not here]
        gates = [gate for thread, gate in list(self._inline_threads.items()) if thread is not here]
        for thread in threads:
            thread.join(SYSTEM_CLOCK.timeout(deadline))
        for gate in gates:
            left = SYSTEM_CLOCK.timeout(deadline)
            if gate.acquire(timeout=-1 if left is None else left):
                gate.release()

    def runs_here(self) -> bool:
        """Return whether the calling thread runs callbacks of this pool, as a worker or inline."""
        return threading.current_thread() in (*self._threads, *self._inline_threads)

    def _start_one(self) -> None:
        with self._lock.once:
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
        """Wake a sleeping worker; return whether one was woken or is already waking."""
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
            if not self._do_first(ALWAYS) and not self._sleep(gate):
                return

    def _first(self) -> WorkItem | None:
        try:
            return self._work[0]
        except IndexError:
            return None

    def _do_first(self, inline_run: InlineRun) -> bool:
        """Run the first work item, if there is one; return whether there was."""
        first = self._first()
        if first is None:
            return False
        callback, arguments = first
        if arguments:
            self._handle(callback, arguments, inline_run)
        else:
            # Another thread has taken the last argument, and has not removed the work item yet.
            # Checking the queue in a loop until then would keep the interpreter lock from that very
            # thread.
            self._forget(arguments)
        return True

    def _run_inline(self, inline_run: InlineRun) -> None:
        """Run the queued work inline, including the work that its callbacks add."""
        gate = threading.Lock()
        gate.acquire()
        self._inline_threads[threading.current_thread()] = gate
        stall = self._stall
        stall.inline_runs += 1
        # Set `inline_run`, then read `is_watched`. The stall monitor clears `is_watched`, then
        # reads `inline_run`. So at least one of the two sees the other.
        stall.inline_run = inline_run
        try:
            if not stall.is_watched:
                self._request_checks()
            while not (inline_run.is_over or self._closed) and self._do_first(inline_run):
                inline_run.items += 1
        finally:
            if inline_run.end():
                stall.inline_run = None
            del self._inline_threads[threading.current_thread()]
            gate.release()
        # After leaving: a thread that added work before may have relied on this thread to run it.
        if self._work:
            self._call_another()

    def _handle(
        self, callback: Callable[[Any], Any], arguments: deque[Any], inline_run: InlineRun
    ) -> None:
        """Run the callback with the arguments that no other thread takes, until the run is over."""
        began = perf_counter()
        taken = 0
        work, stall, take = self._work, self._stall, arguments.popleft
        while arguments and not inline_run.is_over:
            try:
                argument = take()
            except IndexError:
                # Another worker has taken it first.
                break
            taken += 1
            if not arguments:
                self._forget(arguments)
            if work and not (stall.is_watched or self._waking):
                # Not part of the callbacks' time: a thread may have to be started.
                paused = perf_counter()
                self._share()
                began += perf_counter() - paused
            try:
                callback(argument)
            except BaseException as error:
                # The SDK's callbacks do not raise. Any other callback that raises must not end the
                # worker.
                self._errors.report(error, f"scheduled callback {callback!r} raised")
        if taken:
            self._pace.learn(perf_counter() - began, taken)

    def _forget(self, arguments: deque[Any]) -> None:
        """Remove a work item after its last argument was taken.

        This takes no lock. With one message in each work item, as ordering keys have, every worker
        would want it for every message, and a worker that waits for it gives up Python's lock. With
        this lock and the one in `MessagesOnHold.ended`, ten workers on two idle cores took 52 µs of
        CPU for a message instead of 7, for as long as there was more work.
        """
        first = self._first()
        if first is None or first[1] is not arguments:
            return
        try:
            # Not `popleft`: another thread may have removed this item since it was looked at, and
            # the next one must not leave the queue, where `close` looks for it. `remove` compares
            # items, but never their arguments: these have none, and `==` compares lengths first.
            self._work.remove(first)
        except (ValueError, IndexError):
            # Another thread has removed it, or has changed the queue. An item that stays is removed
            # by the next thread that finds it without arguments.
            return

    def _share(self) -> None:
        """Get help, because there is more work than one callback."""
        try:
            if self._pace.is_fast:
                self._request_checks()
            else:
                self._call_another()
        except RuntimeError as error:
            # This worker has taken an argument, and goes on alone.
            _log.warning("cannot start another worker thread: %s", error)

    def _may_be_watched(self, last_added: float) -> bool:
        """Return whether the callbacks are fast, and the work is frequent enough for checks."""
        is_often = STALL_MONITOR.is_running or self._added - last_added < OFTEN
        return is_often and self._pace.is_fast

    def _request_checks(self) -> None:
        self._stall.watch()
        try:
            STALL_MONITOR.add(self)
        except BaseException:
            self._stall.is_watched = False
            raise

    def _call_another(self) -> None:
        if self._inline_threads and self.running >= self._max_workers:
            # The inline caller is one of the workers, and wakes another one when it leaves.
            return
        if not self._wake_one() and len(self._threads) < self._max_workers:
            self._start_one()

    def _sleep(self, gate: threading.Lock) -> bool:
        """Wait for work; return False when this worker must leave."""
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
            # Another thread has taken the gate to wake this worker. Wait for that here, or the gate
            # would be open for the next sleep.
            gate.acquire()
            self._waking = False
            return True
        return bool(self._work) or self._closed or self._stay()

    def _stay(self) -> bool:
        """Leave the pool, unless work came in; return whether this worker stays.

        The thread that added the work may have relied on this worker.
        """
        with self._lock:
            self._threads.remove(threading.current_thread())
            if not self._work:
                return False
            self._threads.append(threading.current_thread())
            return True


def closed_pool() -> RuntimeError:
    """Return the error for work that is added after the shutdown."""
    return RuntimeError("this scheduler is shut down; each subscription needs its own")
