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

from .stint import UNENDING, Guest, Stint
from .worker_watch import LOOK_EVERY, WATCH, Piece, Sight

_log = logging.getLogger("pullstream.scheduler")

# A worker that was not needed for so many seconds leaves. One stays.
IDLE_EXIT = 2.0

# Callbacks that take less than this on average, in seconds, are brisk: one worker handles them as
# fast as several, which could only take turns.
BRISK = 50e-6

# A pool that was found without work so often has a pause.
QUIET_LOOKS = 20

# Work that comes this soon after the last, in seconds, comes often enough to keep the watch at a
# pool. To start it for each piece would take longer than to wake a worker; but where it looks after
# others anyway it costs little.
OFTEN = QUIET_LOOKS * LOOK_EVERY / 2

# Where the average begins. Some dozens of short responses prove that callbacks are brisk, a single
# slow one that they are not; see `_learn`.
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

    Then, too, the thread that brings the work may be spared the waking of the first: a guest does
    what it brings itself, while all workers sleep (`_work_along`); likewise if it brings one piece
    at a time, but often. It counts as a worker as long as it is in a callback. If that is slow for
    once, the watch relieves it of its other duties, and calls a worker to what it has left lying.

    A sleeper waits on a lock of its own, its gate, which stands in `_sleepers` for whoever wants to
    wake it. It lies down in this order: gate into `_sleepers`, then a last look at the queue.
    Whoever adds work does the opposite: work into the queue, then a look for sleepers. So one of
    the two sees the other, and no work is left lying.

    The last to lie down is the first to be woken, so with short callbacks the others sleep on, and
    leave after a while: a process with a hundred subscriptions keeps hundreds of threads less.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._work: deque[Piece] = deque()
        self._sleepers: list[threading.Lock] = []
        # A sleeper was woken and has not come to run. A race on this flag wakes one too many.
        self._waking = False
        # Seconds a callback takes, on average, and did the last time; races on them do no harm.
        self._pace = _UNPROVEN
        self._last_pace = _UNPROVEN
        self._watched = False
        # Who may work along, if anybody; the threads that do, each with a gate that opens when it
        # leaves; and the stint of the one among them that has not been relieved.
        self._guest: Guest | None = None
        self._guests: dict[threading.Thread, threading.Lock] = {}
        self._stint: Stint | None = None
        # How many stints there were since the watch last looked.
        self._stints = 0
        # When work was last added, by perf_counter.
        self._added = float("-inf")
        # What the watch saw when it last looked: a guest at work, what was first in the queue, and
        # how much of it. And how often it has seen the same since.
        self._seen: Sight | None = None
        self._unchanged = 0
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
            alive = sum(thread.is_alive() for thread in self._threads)
        else:
            alive = max(len(self._threads) - len(self._sleepers), 0)
        return alive + len(self._guests)

    def admit(self, guest: Guest) -> bool:
        """Let `guest` do, now and then, what it adds with `may_wait`; returns whether it may.

        It may not where one callback at a time is asked for: that may be because all of them are to
        be run by one thread.
        """
        if self._max_workers > 1:
            self._guest = guest
        return self._guest is not None

    def add(
        self,
        callback: Callable[[Any], Any],
        arguments: Iterable[Any],
        *,
        may_wait: bool = False,
    ) -> None:
        """Queue `callback(argument)` for each; raises RuntimeError after `close`.

        Args:
            may_wait: a guest's thread may run them before it returns. Whoever has more to add, or
                holds a lock, cannot wait for a callback.
        """
        if self._closed:
            raise closed_pool()
        pieces = deque(arguments)
        if not pieces:
            return
        self._work.append((callback, pieces))
        before, self._added = self._added, perf_counter()
        nobody_works = len(self._threads) == len(self._sleepers) and self._stint is None
        if (
            may_wait
            and nobody_works
            and (
                self._watched
                or (self._pace < BRISK and (WATCH.is_there or self._added - before < OFTEN))
            )
        ):
            stint = self._guest.stint() if self._guest is not None else None
            if stint is not None and len(self._guests) < self._max_workers:
                self._work_along(stint)
                return
        if nobody_works or not self._watched:
            self._call_another()
        # Else somebody is at work who will look at the queue again before lying down, or leaving.

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

    def look(self, *, is_alone: bool = True) -> bool:
        """For the watch: call another worker if those at work have got nowhere since the last look.

        Where other pools are at work, too, they may only have waited for the interpreter; then they
        have one look more.

        Returns whether the pool is worth another look.
        """
        stint, first = self._stint, self._first()
        stints, self._stints = self._stints, 0
        last, self._seen = self._seen, None
        if stint is not None or first is not None:
            self._quiet_looks = 0
            self._seen = Sight.of(stint, first)
            is_the_same = last is not None and self._seen.shows_the_same_as(last)
            self._unchanged = self._unchanged + 1 if is_the_same else 0
            if self._unchanged >= (1 if is_alone else 2):
                self._get_on(stint)
        elif stints:
            # The watch comes to look while the guest is out: both want Python's lock.
            self._quiet_looks = 0
        else:
            self._quiet_looks += 1
            if self._quiet_looks >= QUIET_LOOKS:
                # Then a last look, as whoever brings work brings it first and then looks at this.
                self._watched = False
                self._watched = self._stint is not None or bool(self._work)
        # Closed or not, a guest that is held up is to be relieved: its thread is the reader's.
        return self._watched and (not self._closed or self._stint is not None)

    def _get_on(self, stint: Stint | None) -> None:
        """A callback is slow: from now on workers call each other."""
        try:
            if stint is not None and not stint.relieve():
                return
            self._stint = None
            self._pace = _UNPROVEN
            self._watched = False
            self._seen = None
            if self._work:
                self._call_another()
        except RuntimeError as error:
            _log.warning("no thread can be started beside a slow callback: %s", error)
            # To be looked at again, and then it is tried again.
            self._watched = True

    def join(self, timeout: float | None) -> None:
        """Wait for the threads to end, also those in a callback, and for guests to leave."""
        deadline = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        here = threading.current_thread()
        threads = [thread for thread in self._threads if thread is not here]
        gates = [gate for thread, gate in list(self._guests.items()) if thread is not here]
        for thread in threads:
            thread.join(SYSTEM_CLOCK.timeout(deadline))
        for gate in gates:
            left = SYSTEM_CLOCK.timeout(deadline)
            if gate.acquire(timeout=-1 if left is None else left):
                gate.release()

    def runs_here(self) -> bool:
        return threading.current_thread() in (*self._threads, *self._guests)

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
            if not self._do_first(UNENDING) and not self._sleep(gate):
                return

    def _first(self) -> Piece | None:
        try:
            return self._work[0]
        except IndexError:
            return None

    def _do_first(self, stint: Stint) -> bool:
        """Do the first piece of work, if there is one."""
        first = self._first()
        if first is None:
            return False
        callback, arguments = first
        if arguments:
            self._handle(callback, arguments, stint)
        else:
            # Who took the last of them has not come to forget them. To look again until then
            # would keep the interpreter from just that thread.
            self._forget(arguments)
        return True

    def _work_along(self, stint: Stint) -> None:
        """As a guest, do what there is to do: what it brought, and what that brings in turn."""
        gate = threading.Lock()
        gate.acquire()
        self._guests[threading.current_thread()] = gate
        self._stints += 1
        # In this order: the watch does the opposite, and so one of the two sees the other.
        self._stint = stint
        try:
            if not self._watched:
                self._ask_for_the_watch()
            while not (stint.is_over or self._closed) and self._do_first(stint):
                stint.pieces += 1
        finally:
            if stint.end():
                self._stint = None
            del self._guests[threading.current_thread()]
            gate.release()
        # After that: whoever added work before may have counted on this thread.
        if self._work:
            self._call_another()

    def _handle(self, callback: Callable[[Any], Any], arguments: deque[Any], stint: Stint) -> None:
        """Take what nobody else takes of the arguments, until the stint is over."""
        began = perf_counter()
        taken = 0
        work, take = self._work, arguments.popleft
        while arguments and not stint.is_over:
            try:
                argument = take()
            except IndexError:
                # Another worker was quicker.
                break
            taken += 1
            if not arguments:
                self._forget(arguments)
            if work and not (self._watched or self._waking):
                # Not the callbacks' time: a thread may have to be started.
                paused = perf_counter()
                self._share()
                began += perf_counter() - paused
            try:
                callback(argument)
            except BaseException:
                # The SDK's callbacks do not raise; a stranger's must not take a worker with it.
                _log.exception("scheduled callback %r raised", callback)
        if taken:
            self._learn(perf_counter() - began, taken)

    def _learn(self, seconds: float, callbacks: int) -> None:
        """So many callbacks took so many seconds.

        With a hundred subscriptions in a process one wait for the interpreter, in the middle of
        them, makes all of them look slow. It seldom comes twice in a row.
        """
        last, self._last_pace = self._last_pace, seconds / callbacks
        pace = self._last_pace if callbacks == 1 else min(last, self._last_pace)
        self._pace += (pace - self._pace) * _WEIGHT

    def _forget(self, arguments: deque[Any]) -> None:
        """The last of them is taken: whoever sees it first puts them away."""
        with self._lock:
            if self._work and self._work[0][1] is arguments:
                self._work.popleft()

    def _share(self) -> None:
        """There is more to do than one callback."""
        if self._pace < BRISK:
            self._ask_for_the_watch()
        else:
            self._call_another()

    def _ask_for_the_watch(self) -> None:
        self._quiet_looks = 0
        self._watched = True
        try:
            WATCH.add(self)
        except BaseException:
            self._watched = False
            raise

    def _call_another(self) -> None:
        if self._guests and self.running >= self._max_workers:
            # The guest is one of them, and sees to it when it leaves.
            return
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
