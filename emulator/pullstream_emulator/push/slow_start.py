"""Flow control for an endpoint: more concurrent requests on success, pauses on failure."""

from __future__ import annotations

# Concurrent requests. Few at first, so that an endpoint that has just started is not overloaded.
FIRST_WINDOW = 4
MAX_WINDOW = 256

# Pause between failed rounds, in seconds.
MIN_PAUSE = 0.1
MAX_PAUSE = 60.0


class SlowStart:
    """Slow start and backoff of one endpoint, modelled on the real service.

    A success increases the window by one, so that it doubles with every full window of successes. A
    failure halves it and causes a pause: 100 ms at first, twice as long each time, at most 60 s,
    until the next success. A request belongs to the round in which it began, and a failure ends the
    round. Further failures of the same round do not count, and its later successes do not end the
    pauses.
    """

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self.round = 0
        self._pause = 0.0

    def succeeded(self, begun_in: int) -> None:
        """Note that the endpoint accepted a request that began in this round."""
        self.window = min(self.window + 1, MAX_WINDOW)
        if begun_in == self.round:
            self._pause = 0.0

    def failed(self, begun_in: int) -> float:
        """Note a failure of a request of this round; return the pause in seconds."""
        if begun_in != self.round:
            return 0.0
        self.round += 1
        self.window = max(self.window // 2, 1)
        self._pause = min(max(2 * self._pause, MIN_PAUSE), MAX_PAUSE)
        return self._pause
