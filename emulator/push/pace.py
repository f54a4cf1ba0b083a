"""How fast an endpoint gets its messages: more at a time while it takes them, pauses when not."""

from __future__ import annotations

# Requests under way at a time. Few at first: an endpoint that has just started is not overrun.
FIRST_WINDOW = 4
MAX_WINDOW = 256

# Between failed rounds, in seconds.
MIN_PAUSE = 0.1
MAX_PAUSE = 60.0


class Pace:
    """Slow start and backoff of one endpoint, after the real service's.

    A success widens the window by one, so that it doubles with every full window that is taken. A
    failure halves it, and asks for a pause: 100 ms at first, twice as long each time, 60 s at most,
    until there is a success again. Requests belong to the round in which they were begun, and a
    failure ends the round: however many of one window fail, it counts once, and what of it succeeds
    after that says nothing about the time since.
    """

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self.round = 0
        self._pause = 0.0

    def succeeded(self, begun_in: int) -> None:
        """A request of this round was taken by the endpoint."""
        self.window = min(self.window + 1, MAX_WINDOW)
        if begun_in == self.round:
            self._pause = 0.0

    def failed(self, begun_in: int) -> float:
        """A request of this round was not; returns for how long no other should begin."""
        if begun_in != self.round:
            return 0.0
        self.round += 1
        self.window = max(self.window // 2, 1)
        self._pause = min(max(2 * self._pause, MIN_PAUSE), MAX_PAUSE)
        return self._pause
