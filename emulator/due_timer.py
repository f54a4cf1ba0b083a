"""Waking an event loop when something falls due on the broker's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol.clock import Clock


class DueTimer:
    """Calls `act` when the moment comes that `next_due` tells, until it is closed.

    Belongs to the event loop on which it is made. A clock that is moved by hand wakes it: its
    `advance` returns, on whatever thread, after `act` has.
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
        """Something has been added that is due then."""
        if self._armed_for is None or due < self._armed_for:
            self._arm()

    def close(self) -> None:
        self._clock.remove_waker(self._catch_up)
        self._disarm()

    def _catch_up(self) -> None:
        """Do what is due by now; when called from another thread, wait for it."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._wake()
        else:
            asyncio.run_coroutine_threadsafe(self._wake_soon(), self._loop).result()

    async def _wake_soon(self) -> None:
        self._wake()

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
