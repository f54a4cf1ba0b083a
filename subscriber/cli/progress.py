"""How far a running subscription has come: told by callbacks, waited for by the main thread."""

from __future__ import annotations

import threading

from protocol.clock import SYSTEM_CLOCK, Clock


class Progress:
    """Counts messages up to a limit and notes when the last one ended. Thread-safe.

    Args:
        limit: how many messages to take on; None: no limit.
        idle: seconds without any work after which there is nothing to wait for; None: no limit.
    """

    def __init__(
        self, limit: int | None = None, idle: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._limit = limit
        self._idle = idle
        self._clock = clock
        self._changed = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._quiet_since = clock.monotonic()
        self._stopped = False

    def begin(self) -> bool:
        """Whether to take on one more message. If so, `end` must follow.

        One too many waits here until the others have ended: given back at once, it would be
        delivered again at once, and so on.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._begun != self._limit)
            if not self._stopped:
                self._begun += 1
            return not self._stopped

    def end(self) -> None:
        """A message has been settled."""
        with self._changed:
            self._ended += 1
            self._quiet_since = self._clock.monotonic()
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is to be taken on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Block until the limit is reached, nothing came for too long, or `stop` was called."""
        self._clock.add_waker(self._wake)
        try:
            with self._changed:
                while not self._stopped and self._ended != self._limit:
                    deadline = self._idle_deadline()
                    if deadline is not None and deadline <= self._clock.monotonic():
                        return
                    self._changed.wait(self._clock.timeout(deadline))
        finally:
            self._clock.remove_waker(self._wake)

    def _idle_deadline(self) -> float | None:
        if self._idle is None or self._begun > self._ended:
            return None
        return self._quiet_since + self._idle

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
