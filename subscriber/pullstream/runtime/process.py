"""Process lifetime: forks, the end of the program, signals.

All clients share one hook for forks, one for the end of the program, and one way to wait. The
reasons lie in Python:

- A forked child has none of the parent's threads, and its locks stay as other threads held them.
- The interpreter calls the hooks for its exit one after the other, so that their time limits add
  up unless they share one.
- A signal handler runs between two instructions of the main thread. If it raises, as for Ctrl-C,
  `threading.Condition` and everything built on it may keep a lock for ever.
- If the handler calls a method that needs a lock which the interrupted code holds, it waits for
  itself. So the locks behind public methods are `CallLock`.
"""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures
import logging
import math
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

from pullstream.exceptions import ForkedProcess
from pullstream_protocol.call_lock import refuse_to_wait
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.queue_wait import get_within

from .callback_kinds import plain, refuse_awaitable
from .repeated_errors import RepeatedErrors
from .thread_start import threads_are_refused

T = TypeVar("T")

_log = logging.getLogger("pullstream.process")
_errors = RepeatedErrors(_log)

# Seconds between two checks of a waiting thread. A signal may arrive after the main thread's last
# check and before it sleeps. Such a signal does not wake the thread: Python notes it and runs its
# handler when the thread next does something. Without a limit, this Ctrl-C would be lost.
CHECK_EVERY = 0.5

# Seconds in which all clients together end when the program ends. They wait for servers until
# SHUTDOWN_MARGIN seconds before that.
EXIT_TIMEOUT = 5.0

# A shutdown has its own time limit. The waiting thread allows this many seconds more, in which the
# last callbacks run.
SHUTDOWN_MARGIN = 1.0


# ---- waits and locks ---------------------------------------------------------------------------


class Latch:
    """An event that happens once. Any thread and any signal handler may set it and wait for it.

    It differs from `threading.Event` in two points. A waiting main thread sees every signal within
    CHECK_EVERY seconds. And an exception that a signal handler raises at any instruction of a
    method leaves the latch usable: it has a plain lock, which is interrupted before it is acquired
    or after. A waiter that is interrupted before it releases the lock keeps it; the other waiters
    see the end at their next check.

    Attributes:
        is_set: Whether the event has happened.
    """

    __slots__ = ("_until_set", "is_set")

    def __init__(self) -> None:
        self.is_set: bool = False
        self._until_set = threading.Lock()
        self._until_set.acquire()

    def set(self) -> None:
        """Let all waiters return, now and later. Takes no lock."""
        if not self.is_set:
            self.is_set = True
            self._release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the event; return whether it has happened.

        Args:
            timeout: Seconds of real time. None (default): no limit.

        Raises:
            InterruptedCall: This is a signal handler, and the interrupted code holds a lock for
                which the other thread may wait.
        """
        if not self.is_set and threading.current_thread() is threading.main_thread():
            refuse_to_wait()
        left = math.inf if timeout is None else timeout
        while left > 0 and not self.is_set:
            if self._until_set.acquire(timeout=min(left, CHECK_EVERY)):
                self._release()
            left -= CHECK_EVERY
        return self.is_set

    def _release(self) -> None:
        try:
            self._until_set.release()
        except RuntimeError:
            # Two threads set the latch at the same time, and both released the lock.
            return


class WakeUp:
    """An event for one thread. Any thread and any signal handler may set it, at any instruction.

    `threading.Event` has a lock: a signal handler that sets an event while the interrupted code
    sets it waits for itself.
    """

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Let `wait` return, now or when it is called."""
        if self._sent.empty():
            self._sent.put(None)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the event is set, or for `timeout` seconds; None: no limit."""
        try:
            get_within(self._sent, timeout)
        except queue.Empty:
            return
        self._sent.put(None)

    def clear(self) -> None:
        """Forget that the event was set."""
        while not self._sent.empty():
            self._sent.get()


class _StateLock(_thread.RLock):  # type: ignore[misc]  # Final only in typeshed.
    """The `_condition` of a future whose waits are those of a Latch.

    The methods of `concurrent.futures.Future` enter a `threading.Condition`, which is written in
    Python: a Ctrl-C inside may keep its lock, and the thread that sets the result then waits for it
    for ever. This lock is entered by a single C call.
    """

    def notify_all(self) -> None:
        """Do nothing: nobody waits for the condition."""


def use_state_lock(future: Future[Any]) -> None:
    """Give a future a lock that a signal cannot leave locked; see `_StateLock`."""
    future._condition = cast(threading.Condition, _StateLock())


def no_result_yet(text: str = "") -> TimeoutError:
    """Return the error of a future that has no result in time."""
    # Before Python 3.11, it is not the builtin TimeoutError.
    error: Any = concurrent.futures.TimeoutError(text)
    return cast(TimeoutError, error)


class InterruptibleFuture(Future[T]):
    """A future that has begun, whose methods a signal may interrupt at any instruction."""

    def __init__(self) -> None:
        super().__init__()
        use_state_lock(self)
        self._end = Latch()
        # The first done callback, so that the waiters do not wait for those of the user.
        super().add_done_callback(_set_latch)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn(future)` when there is a result, or now if there is one.

        An error of `fn`, also SystemExit, is logged, and does not stop the other callbacks.

        Args:
            fn: A function of the future. It must be short: the thread that runs it has other work.

        Raises:
            TypeError: `fn` is an `async def`, which nothing would await.
        """
        # After the end, the calling thread runs it, which SystemExit may end.
        call = plain("fn", fn)
        super().add_done_callback(call if self.done() else partial(run_done_callback, fn))

    def _waits_for(self) -> str:
        """Return what the future waits for, as a clause for the error of a wait."""
        return "it has not ended yet"

    def wait_until_done(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether there is a result or an error.

        Args:
            timeout: Seconds to wait. None (default): no limit.
        """
        return self._end.wait(timeout)

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._end.is_set

    def running(self) -> bool:
        """Return whether there is neither a result nor an error yet."""
        return not self._end.is_set

    def result(self, timeout: float | None = None) -> T:
        """Wait for the end; return the result or raise the error.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: There is no result yet.
            Exception: The error.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return cast(T, self._result)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; return the error or None.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: There is no result yet.
        """
        if not self.wait_until_done(timeout):
            raise no_result_yet(f"no result after {timeout} s: {self._waits_for()}")
        return self._exception


def run_done_callback(fn: Callable[[Any], object], future: Future[Any]) -> None:
    """Call `fn(future)` on the thread that has set the result, and log its error.

    This includes SystemExit, which would end the thread with the work that it has for others.
    """
    try:
        refuse_awaitable(fn(future), fn)
    except BaseException as error:
        _errors.report(error, f"done callback {fn!r} of a future raised")


def _set_latch(future: Future[Any]) -> None:
    assert isinstance(future, InterruptibleFuture)
    future._end.set()


# ---- forks -------------------------------------------------------------------------------------

Owner = TypeVar("Owner")

# What to do with an object in each forked child. An object that is collected is forgotten.
_in_child: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()
_before_fork: list[Callable[[], object]] = []
_after_fork: list[Callable[[], object]] = []


def in_forked_child(owner: Owner, action: Callable[[Owner], object]) -> None:
    """Call `action(owner)` in every forked child, in the order of these calls.

    Args:
        owner: An object that the parent used. It is not kept alive.
        action: Makes the object usable, or refuse its use, in a process without its threads. It
            must not refer to the object.
    """
    _in_child[owner] = action


def around_fork(before: Callable[[], object], after: Callable[[], object]) -> None:
    """Call `before()` before every fork, and `after()` when it is over, in the parent only."""
    _before_fork.append(before)
    _after_fork.append(after)


class ForkCheck:
    """Tells a forked child that an object is its parent's. Belongs to the object."""

    def __init__(self) -> None:
        self._created_in = os.getpid()

    @property
    def is_child(self) -> bool:
        """Whether the running process is a forked child of the one that created the object."""
        return os.getpid() != self._created_in

    def refuse_child(self) -> None:
        """Raise ForkedProcess if the running process is a forked child."""
        if self.is_child:
            raise self.error()

    def error(self) -> ForkedProcess:
        """Return the error for the use of the object in a forked child."""
        return ForkedProcess(
            f"this client was made in process {self._created_in} and is used in process "
            f"{os.getpid()}, after a fork, where it does not work; make a new client in the new "
            "process"
        )


def _call_all(actions: list[Callable[[], object]]) -> None:
    for action in actions:
        action()


def _renew_in_child() -> None:
    for owner, action in list(_in_child.items()):
        action(owner)


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _call_all(_before_fork),
        after_in_parent=lambda: _call_all(_after_fork),
        after_in_child=_renew_in_child,
    )


# ---- the end of the program --------------------------------------------------------------------


# How to begin the end of an object, and how to finish it. An object that is collected is forgotten.
_endings: weakref.WeakKeyDictionary[
    Any, tuple[Callable[[Any, float], object], Callable[[Any, float], object]]
] = weakref.WeakKeyDictionary()
_exit_deadline: float | None = None


def at_exit(
    owner: Owner,
    begin: Callable[[Owner, float], object],
    finish: Callable[[Owner, float], object],
) -> None:
    """End an object when the program ends, at the same time as the others.

    Args:
        owner: A client, or a part of one. It is not kept alive.
        begin: Called first, as `begin(owner, timeout)`: begins to end within `timeout` seconds.
            Waits only if no thread can be started.
        finish: Called as `finish(owner, timeout)` after all have begun: waits for the end for up to
            `timeout` seconds, and releases everything.
    """
    _endings[owner] = begin, finish


def left_at_exit(timeout: float) -> float:
    """Return the seconds that a wait may take: `timeout`, or less if the program is ending."""
    if _exit_deadline is None:
        return timeout
    return min(timeout, max(_exit_deadline - SYSTEM_CLOCK.monotonic(), 0.0))


def shares(left: Callable[[], float], steps: int) -> Callable[[], float]:
    """Divide a time between steps that run one after the other if no thread can be started.

    Args:
        left: Returns the seconds that are left for all steps.
        steps: Number of steps.

    Returns:
        A function to call before each step. It returns the seconds for this step: all remaining
        seconds if the steps only begin something, otherwise an equal part.
    """
    is_sequential = threads_are_refused()
    unbegun = steps

    def share() -> float:
        nonlocal unbegun
        part = left() / unbegun if is_sequential else left()
        unbegun -= 1
        return part

    return share


@atexit.register
def _end_all() -> None:
    """End all clients, at the same time, within EXIT_TIMEOUT seconds."""
    global _exit_deadline
    endings = list(_endings.items())
    if not endings:
        return
    _exit_deadline = SYSTEM_CLOCK.monotonic() + EXIT_TIMEOUT

    def left() -> float:
        return max(left_at_exit(EXIT_TIMEOUT) - SHUTDOWN_MARGIN, 0.0)

    share = shares(left, len(endings))
    for owner, (begin, _) in endings:
        _attempt(begin, owner, share())
    for owner, (_, finish) in endings:
        _attempt(finish, owner, left())


def _attempt(step: Callable[[Any, float], object], owner: Any, timeout: float) -> None:
    try:
        step(owner, timeout)
    except Exception:
        _log.exception("a client failed to end; the others follow")
