"""How much time a shutdown has, and whether it waits for callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.clock import Clock
from subscriber.futures import ShutdownMode

# The part of a shutdown's time that callbacks may not use up: in it their messages are given back,
# and the server is told of all that was settled. At most so many seconds.
_RESERVED_PART = 0.2
_LONGEST_RESERVE = 2.0


class ShutdownTerms:
    """One deadline and one mode for all steps. Any thread may tighten them; nobody can relax them.

    Times are seconds on the clock; no deadline means that callbacks may take as long as they like.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._reserve = 0.0
        self._drains = True
        # Set whenever somebody who waits should look again.
        self._look = threading.Event()

    def tighten(self, mode: ShutdownMode, timeout: float | None) -> None:
        """Take on a request to shut down in this mode, within so many seconds from now."""
        with self._lock:
            if mode == "nack":
                self._drains = False
            if timeout is not None:
                deadline = self._clock.monotonic() + timeout
                if self._deadline is None or deadline < self._deadline:
                    self._deadline = deadline
                    self._reserve = min(timeout * _RESERVED_PART, _LONGEST_RESERVE)
        self._look.set()

    @property
    def drains(self) -> bool:
        """Whether running callbacks may finish."""
        return self._drains

    def left(self, longest: float) -> float:
        """Seconds that a step may take: `longest`, or less if the time is nearly up."""
        with self._lock:
            if self._deadline is None:
                return longest
            return min(max(self._deadline - self._clock.monotonic(), 0.0), longest)

    def wait_while_draining(self, is_done: Callable[[], bool]) -> None:
        """Wait until it is done, nobody wants to wait any more, or the time for it is up.

        Whoever does what is waited for calls `look_again` when it is done.
        """
        self._clock.add_waker(self.look_again)
        try:
            while not is_done() and self._drains:
                with self._lock:
                    end = None if self._deadline is None else self._deadline - self._reserve
                timeout = self._clock.timeout(end)
                if timeout == 0.0:
                    return
                self._look.wait(timeout)
                self._look.clear()
        finally:
            self._clock.remove_waker(self.look_again)

    def look_again(self) -> None:
        """Let whoever waits see what has changed."""
        self._look.set()
