"""The one source of time.

Every deadline in pullstream is read from a `Clock`, so that a test can own time: `ManualClock`
stands still until it is told to advance, and freezegun moves `SystemClock`.

What shaped `SystemClock` (measured with freezegun 1.5): freezegun hands out *real* time to a
caller that is within five stack frames of a module on its ignore list, and `threading` is on that
list. A lease stamped in the main thread (frozen) and checked near the bottom of a background
thread (real) would compare two different times. Reading the time through a few frames of our own
keeps `threading` out of freezegun's sight, wherever the call comes from.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Protocol, runtime_checkable

Waker = Callable[[], None]

# Upper bound of one real wait, in seconds. A thread that waits for a virtual deadline (freezegun)
# looks at the clock at least this often; on real time it costs one wake-up a second.
MAX_WAIT = 1.0

_FRAMES_SEEN_BY_FREEZEGUN = 5


class Clock(Protocol):
    """Wall and monotonic time, and how long to really wait for a moment on this clock."""

    def now(self) -> float:
        """Wall time in seconds since the epoch. For timestamps that people and peers see."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back. For every deadline and duration."""

    def timeout(self, deadline: float | None) -> float | None:
        """Real seconds to wait before looking again for `deadline` (None: nothing is due).

        Returns 0.0 for a deadline that has come, None to wait until woken.
        """

    def add_waker(self, waker: Waker) -> None:
        """Call `waker` whenever time jumps, so that a waiting thread looks again."""

    def remove_waker(self, waker: Waker) -> None:
        """Forget `waker`; unknown wakers are ignored."""


@runtime_checkable
class AdvancingClock(Clock, Protocol):
    """A clock that can be moved forward by hand."""

    def advance(self, seconds: float) -> None:
        """Move time forward by so many seconds; returns after every waker has run."""


def _read(function: Callable[[], float]) -> float:
    """Call one of the time module's functions, by the detour only if somebody has replaced it."""
    is_replaced = not isinstance(function, BuiltinFunctionType)
    return _through(_FRAMES_SEEN_BY_FREEZEGUN if is_replaced else 0, function)


def _through(frames: int, function: Callable[[], float]) -> float:
    return function() if frames == 0 else _through(frames - 1, function)


class SystemClock:
    """Real time, or freezegun's when a test has frozen it."""

    def now(self) -> float:
        return _read(time.time)

    def monotonic(self) -> float:
        return _read(time.monotonic)

    def timeout(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        return min(max(deadline - self.monotonic(), 0.0), MAX_WAIT)

    def add_waker(self, waker: Waker) -> None:
        """Real time does not jump, so there is nobody to wake."""

    def remove_waker(self, waker: Waker) -> None:
        """See `add_waker`."""


class _Advancing:
    """What the clocks that can be moved by hand share: how far, and who is to know of it."""

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
        """Move time forward and let everything that waits for it look again."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time only goes forward: advance({seconds}) needs seconds >= 0")
        with self._lock:
            self._elapsed += seconds
            wakers = list(self._wakers)
        # Outside the lock: a waker may add or remove wakers.
        for wake in wakers:
            wake()


class ManualClock(_Advancing):
    """Time that moves only when a test says so.

    Any thread may call any method. `advance` returns after every waker has run, so a driver that
    does its due work in its waker has done it by then.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        super().__init__()
        self._start = start

    def now(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def timeout(self, deadline: float | None) -> float | None:
        if deadline is not None and deadline <= self._elapsed:
            return 0.0
        return None


class OffsetClock(_Advancing):
    """A clock that runs as `base` does, and can be moved ahead of it.

    Any thread may call any method; for `advance` holds what `ManualClock` says of it.
    """

    def __init__(self, base: Clock | None = None) -> None:
        super().__init__()
        self._base = base or SYSTEM_CLOCK

    def now(self) -> float:
        return self._base.now() + self._elapsed

    def monotonic(self) -> float:
        return self._base.monotonic() + self._elapsed

    def timeout(self, deadline: float | None) -> float | None:
        return self._base.timeout(None if deadline is None else deadline - self._elapsed)


SYSTEM_CLOCK = SystemClock()
