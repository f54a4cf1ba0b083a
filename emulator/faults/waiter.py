"""Something under way in the broker that a fault can keep waiting, or end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol.clock import SYSTEM_CLOCK, Clock


class Waiter:
    """Belongs to one event loop; only `wake` and `end_soon` may be called from other threads.

    ended: why it is to end at once; None while it may go on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self.ended: Exception | None = None

    def wake(self) -> None:
        """Let `wait` look again."""
        self._loop.call_soon_threadsafe(self._woken.set)

    def end(self, error: Exception) -> None:
        """End with `error`, unless another was earlier."""
        if self.ended is None:
            self.ended = error
            self._woken.set()

    def end_soon(self, error: Exception) -> None:
        self._loop.call_soon_threadsafe(self.end, error)

    def check(self) -> None:
        """Raise what it ended with, if it did."""
        if self.ended is not None:
            raise self.ended

    async def wait(
        self,
        over: Callable[[], bool],
        seconds: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Return once `over()` holds, or after so many seconds on `clock`; raises as `check`.

        `over` is asked anew after each `wake`.
        """
        due = None if seconds is None else clock.monotonic() + seconds
        clock.add_waker(self.wake)
        timer: asyncio.TimerHandle | None = None
        try:
            while True:
                # Cleared before it looks, so that nothing is missed in between.
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
