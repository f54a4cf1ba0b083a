"""Callbacks after a while on the broker's clock, whether that is real or moved by a test."""

from __future__ import annotations

from collections.abc import Callable

from emulator.due_timer import DueTimer
from protocol.clock import Clock
from protocol.deadlines import DeadlineTable


class Alarm:
    """One callback to come."""

    __slots__ = ()


class Timer:
    """Belongs to the event loop on which it is made; `close` it in the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarms: DeadlineTable[Alarm, Callable[[], None]] = DeadlineTable()
        self._due_timer = DueTimer(clock, self._alarms.next_due, self._call_due)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` on the loop when so much time has passed."""
        alarm = Alarm()
        now = self._clock.monotonic()
        self._alarms.set(alarm, callback, seconds, now)
        self._due_timer.expect(now + seconds)
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Forget an alarm, if it has not come yet."""
        self._alarms.pop(alarm)

    def close(self) -> None:
        self._due_timer.close()

    def _call_due(self) -> None:
        for _, callback in self._alarms.pop_due(self._clock.monotonic()):
            callback()
