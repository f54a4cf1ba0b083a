"""Delayed callbacks on the broker's clock, which may be real or advanced by a test."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_emulator.due_timer import DueTimer
from pullstream_protocol.clock import Clock
from pullstream_protocol.due_queue import DueQueue


class Alarm:
    """One pending callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback


class Timer:
    """Belongs to the event loop on which it is created; must be closed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarms: DueQueue[Alarm] = DueQueue()
        self._due_timer = DueTimer(clock, self._alarms.next_due, self._call_due)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` on the loop after this many seconds."""
        alarm = Alarm(callback)
        due = self._clock.monotonic() + seconds
        self._alarms.schedule(alarm, due)
        self._due_timer.expect(due)
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Cancel an alarm, if it is still pending."""
        self._alarms.forget(alarm)

    def close(self) -> None:
        """Discard the pending alarms without calling them."""
        self._due_timer.close()

    def _call_due(self) -> None:
        for alarm in self._alarms.pop_due(self._clock.monotonic()):
            alarm.callback()
