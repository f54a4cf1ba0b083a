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
from typing import Final, Protocol, runtime_checkable

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
    return _through(0 if _is_real(function) else _FRAMES_SEEN_BY_FREEZEGUN, function)


def _is_real(function: Callable[[], float]) -> bool:
    return isinstance(function, BuiltinFunctionType)


def _through(frames: int, function: Callable[[], float]) -> float:
    return function() if frames == 0 else _through(frames - 1, function)


class _Timeline:
    """Monotonic time that goes on without a jump when freezegun begins and ends. Thread-safe.

    The values of freezegun's `time.monotonic` are seconds since the epoch, about a million times
    the real ones. A deadline from one of the two would never come, or would be long over, on the
    other. So each change of the function continues at the last known value.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The function that was read last, and the offset of its values. One attribute, so that a
        # reader sees both of the same moment. The function is an element, because freezegun
        # replaces real functions in modules.
        self._source: tuple[Callable[[], float] | None, float] = None, 0.0
        # The function if it is real and has no offset, as it is without freezegun; else None.
        self.unshifted: Callable[[], float] | None = None
        # The newest time while the source is not real time.
        self._last = 0.0

    def read(self) -> float:
        """Return the seconds; never less than before."""
        source, offset = self._source
        if source is not None and source is time.monotonic and _is_real(source):
            # Real time does not move back, so the offset stays, and no lock is needed.
            return source() + offset
        with self._lock:
            return self._read_other()

    def _read_other(self) -> float:
        """Read a function that has replaced another one, or time that a test may move back."""
        function = time.monotonic
        source, offset = self._source
        now = _read(function)
        if source is None:
            self._last = now
        elif _is_real(source):
            # The time of the change, as nobody has read the clock between the two.
            self._last = source() + offset
        if function is not source or now + offset < self._last:
            offset = self._last - now
        self._last = now + offset
        self._source = function, offset
        self.unshifted = function if _is_real(function) and not offset else None
        return self._last


_TIMELINE: Final = _Timeline()


class SystemClock:
    """Real time, or freezegun's time when a test has frozen it.

    Monotonic time stands still while freezegun is active, except for its `tick` and `move_to`, and
    goes on from there when it ends. So a deadline of the time before, or of frozen time, keeps its
    distance.
    """

    def now(self) -> float:
        """Return the seconds since the epoch; freezegun's, on every thread, if it is active."""
        return _read(time.time)

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, which freezegun stops and moves."""
        # Every message reads the time, so the usual case takes one call: 0.09 µs instead of 0.15.
        function = time.monotonic
        return function() if function is _TIMELINE.unshifted else _TIMELINE.read()

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
