"""An activity of the broker that a fault can hold or end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock


class Waiter:
    """A call or connection. Only `wake` and `end_soon` may be called from other threads.

    Belongs to one event loop.

    Attributes:
        ended: Why the activity must end at once; None while it may continue.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self.ended: Exception | None = None

    def wake(self) -> None:
        """Make `wait` check its condition again."""
        self._loop.call_soon_threadsafe(self._woken.set)

    def end(self, error: Exception) -> None:
        """End with `error`, unless it has ended already."""
        if self.ended is None:
            self.ended = error
            self._woken.set()

    def end_soon(self, error: Exception) -> None:
        """Call `end` on the event loop; for other threads."""
        self._loop.call_soon_threadsafe(self.end, error)

    def check(self) -> None:
        """Raise the error with which it has ended, if any."""
        if self.ended is not None:
            raise self.ended

    async def wait(
        self,
        over: Callable[[], bool],
        seconds: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Return when `over()` is true or the time has passed; raise the same as `check`.

        Args:
            over: The condition; checked again after each `wake`.
            seconds: Longest wait on `clock`, in seconds; None means no limit.
            clock: Measures the wait.
        """
        due = None if seconds is None else clock.monotonic() + seconds
        clock.add_waker(self.wake)
        timer: asyncio.TimerHandle | None = None
        try:
            while True:
                # Clear the event before checking, so that a wake in between is not missed.
                self._woken.clear()
                self.check()
                timeout = clock.timeout(due)
                if over() or timeout == 0.0:
                    return
                if timeout is not None:
                    timer = self._loop.call_later(timeout, self._woken.set)
                await self._woken.wait()
        finally:
            clock.remove_waker(self.wake)
            if timer is not None:
                timer.cancel()
