"""A thread that acts when something falls due."""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.clock import Clock


class Sweeper:
    """Calls `act` when the moment comes that `next_due` tells, until it is stopped.

    Its own thread waits, for real time; a clock that is moved by hand calls `act` on the thread
    that moves it. So `act` must be thread-safe, and do nothing when nothing is due.
    """

    def __init__(
        self, clock: Clock, next_due: Callable[[], float | None], act: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._next_due = next_due
        self._act = act
        self._stopped = False
        self._changed = threading.Event()
        clock.add_waker(act)
        # Daemon: a program that forgets to close its publisher must still be able to exit.
        self._thread = threading.Thread(target=self._run, name="pullstream-sweeper", daemon=True)
        self._thread.start()

    def expect(self, due: float) -> None:
        """Something is due then, where nothing was before."""
        self._changed.set()

    def stop(self) -> None:
        """End the thread."""
        self._clock.remove_waker(self._act)
        self._stopped = True
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            self._changed.wait(self._clock.timeout(self._next_due()))
            self._changed.clear()
            self._act()
