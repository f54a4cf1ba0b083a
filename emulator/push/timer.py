"""Callbacks after a while on the broker's clock, whether that is real or moved by a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol.clock import Clock
from protocol.deadlines import DeadlineTable


class Alarm:
    """One callback to come."""

    __slots__ = ()


class Timer:
    """Belongs to the event loop on which it is made; `close` it in the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._alarms: DeadlineTable[Alarm, Callable[[], None]] = DeadlineTable()
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None
        clock.add_waker(self._catch_up)

    def now(self) -> float:
        return self._clock.monotonic()

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` on the loop when so much time has passed."""
        alarm = Alarm()
        now = self._clock.monotonic()
        self._alarms.set(alarm, callback, seconds, now)
        if self._armed_for is None or now + seconds < self._armed_for:
            self._arm()
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Forget an alarm, if it has not come yet."""
        self._alarms.pop(alarm)

    def close(self) -> None:
        self._clock.remove_waker(self._catch_up)
        self._disarm()

    def _catch_up(self) -> None:
        """Call what is due by now; when called from another thread, wait for it."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._call_due()
        else:
            asyncio.run_coroutine_threadsafe(self._call_soon(), self._loop).result()

    async def _call_soon(self) -> None:
        self._call_due()

    def _call_due(self) -> None:
        for _, callback in self._alarms.pop_due(self._clock.monotonic()):
            callback()
        self._arm()

    def _arm(self) -> None:
        """Wake up for the next moment; a manual clock wakes us itself."""
        self._disarm()
        self._armed_for = self._alarms.next_due()
        delay = self._clock.timeout(self._armed_for)
        if delay is not None:
            self._handle = self._loop.call_later(delay, self._call_due)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
