"""Clocks: the only source of time in pullstream.

Every deadline in pullstream is read from a `Clock`, so that a test can control time: `ManualClock`
does not move until `advance` is called, and freezegun controls `SystemClock`.

Why `SystemClock` adds stack frames (measured with freezegun 1.5): freezegun returns *real* time to
a caller that is within five stack frames of a module on its ignore list, and `threading` is on that
list. A lease that gets its time in the main thread (frozen) and is checked near the bottom of a
background thread's stack (real) would compare two different times. `SystemClock` reads the time
through a few additional frames, so that freezegun does not see `threading`, wherever the call comes
from.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Protocol, runtime_checkable

Waker = Callable[[], None]

# The longest real wait, in seconds. A thread that waits for a virtual deadline (freezegun) checks
# the clock at least this often. With real time this costs one wake-up per second.
MAX_WAIT = 1.0

_FRAMES_SEEN_BY_FREEZEGUN = 5


class Clock(Protocol):
    """Wall-clock time, monotonic time, and real waiting times for deadlines on this clock."""

    def now(self) -> float:
        """Return the wall-clock time in seconds since the epoch, for visible timestamps."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, for deadlines and durations. Never decreases."""

    def timeout(self, deadline: float | None) -> float | None:
        """Return the real seconds to wait before checking `deadline` again.

        Args:
            deadline: A monotonic time. None if nothing is due.

        Returns:
            0.0 if the deadline has passed. None to wait until woken.
        """

    def add_waker(self, waker: Waker) -> None:
        """Call `waker` whenever time jumps, so that a waiting thread checks its deadline again."""

    def remove_waker(self, waker: Waker) -> None:
        """Remove `waker`. Unknown wakers are ignored."""


@runtime_checkable
class AdvancingClock(Clock, Protocol):
    """A clock that can be moved forward by hand."""

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`; return after every waker has run."""


def _read(function: Callable[[], float]) -> float:
    """Call a function of the time module, through additional frames if it has been replaced."""
    is_replaced = not isinstance(function, BuiltinFunctionType)
    return _through(_FRAMES_SEEN_BY_FREEZEGUN if is_replaced else 0, function)


def _through(frames: int, function: Callable[[], float]) -> float:
    return function() if frames == 0 else _through(frames - 1, function)


class SystemClock:
    """Real time, or freezegun's time when a test has frozen it."""

    def now(self) -> float:
        """Return the seconds since the epoch; freezegun's, on every thread, if it is active."""
        return _read(time.time)

    def monotonic(self) -> float:
        """Return `time.monotonic()`; freezegun's, on every thread, if it is active."""
        return _read(time.monotonic)

    def timeout(self, deadline: float | None) -> float | None:
        """Return the seconds to the deadline, at most MAX_WAIT because freezegun may move time."""
        if deadline is None:
            return None
        return min(max(deadline - self.monotonic(), 0.0), MAX_WAIT)

    def add_waker(self, waker: Waker) -> None:
        """Do nothing: real time does not jump."""

    def remove_waker(self, waker: Waker) -> None:
        """Do nothing; see `add_waker`."""


class _Advancing:
    """Base of the clocks that can be moved forward: the distance, and the wakers to call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._elapsed = 0.0
        self._wakers: list[Waker] = []

    def add_waker(self, waker: Waker) -> None:
        with self._lock:
            self._wakers.append(waker)

    def remove_waker(self, waker: Waker) -> None:
        with self._lock:
            if waker in self._wakers:
                self._wakers.remove(waker)

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`; return after every waker has run."""
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"seconds is {seconds}; it must be finite and not negative, "
                "because time only moves forward"
            )
        with self._lock:
            self._elapsed += seconds
            wakers = list(self._wakers)
        # Outside the lock: a waker may add or remove wakers.
        for wake in wakers:
            wake()


class ManualClock(_Advancing):
    """Time that moves only when a test says so.

    Any thread may call any method. `advance` returns after every waker has run. So if a waker does
    the work that is due, this work is done when `advance` returns.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        super().__init__()
        self._start = start

    def now(self) -> float:
        """Return the start time plus all advances, in seconds since the epoch."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the sum of all advances, in seconds."""
        return self._elapsed

    def timeout(self, deadline: float | None) -> float | None:
        """Return 0.0 after the deadline; otherwise None, because only `advance` moves time."""
        if deadline is not None and deadline <= self._elapsed:
            return 0.0
        return None


class OffsetClock(_Advancing):
    """A clock that runs like `base`, and can be moved ahead of it.

    Any thread may call any method. `advance` behaves as in `ManualClock`.
    """

    def __init__(self, base: Clock | None = None) -> None:
        super().__init__()
        self._base = base or SYSTEM_CLOCK

    def now(self) -> float:
        """Return the wall-clock time of `base` plus all advances."""
        return self._base.now() + self._elapsed

    def monotonic(self) -> float:
        """Return the monotonic time of `base` plus all advances."""
        return self._base.monotonic() + self._elapsed

    def timeout(self, deadline: float | None) -> float | None:
        """Return the seconds that `base` must still run until the deadline."""
        return self._base.timeout(None if deadline is None else deadline - self._elapsed)


SYSTEM_CLOCK = SystemClock()
