"""Timers that wake an event loop when something falls due on the broker's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pullstream_protocol.clock import Clock
from pullstream_protocol.due_queue import DueQueue


class DueTimer:
    """Calls `act` at the time that `next_due` returns, until it is closed.

    Belongs to the event loop on which it is created. `act` may leave work that is due at once; then
    other calls run before it is called again. The timer also reacts when a clock is advanced by
    hand: `advance`, called on any thread, returns after the last `act` that is due has returned.

    Args:
        clock: Source of time.
        next_due: Returns the monotonic time of the next call of `act`; None if there is none.
        act: Does the work that is due.
    """

    def __init__(
        self, clock: Clock, next_due: Callable[[], float | None], act: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._next_due = next_due
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None
        clock.add_waker(self._catch_up)
        self._arm()

    def expect(self, due: float) -> None:
        """Note that work was added that is due at this monotonic time."""
        if self._armed_for is None or due < self._armed_for:
            self._arm()

    def close(self) -> None:
        """Stop calling `act`, even if the clock is advanced by hand."""
        self._clock.remove_waker(self._catch_up)
        self._disarm()

    def _catch_up(self) -> None:
        """Run the work that is due; if called on another thread, wait until it is done."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._wake()
            while self._is_due():
                self._wake()
        else:
            asyncio.run_coroutine_threadsafe(self._wake_soon(), self._loop).result()

    async def _wake_soon(self) -> None:
        self._wake()
        while self._is_due():
            await asyncio.sleep(0)
            self._wake()

    def _is_due(self) -> bool:
        due = self._next_due()
        return due is not None and due <= self._clock.monotonic()

    def _wake(self) -> None:
        self._act()
        self._arm()

    def _arm(self) -> None:
        self._disarm()
        self._armed_for = self._next_due()
        delay = self._clock.timeout(self._armed_for)
        if delay is not None:
            self._handle = self._loop.call_later(delay, self._wake)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Alarm:
    """One pending callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback


class Timer:
    """Calls callbacks after a delay on the broker's clock, which may be advanced by a test.

    Belongs to the event loop on which it is created; must be closed.
    """

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
