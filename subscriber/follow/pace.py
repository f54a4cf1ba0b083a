"""When to try again, and when to stop trying: reads that fail, streams that do not stand."""

from __future__ import annotations

from collections import deque

from subscriber.streaming.backoff import Backoff

# Pauses between reads that fail, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 10.0

# So many falls within so many seconds are too many.
MAX_FALLS = 3
FALLS_WITHIN = 60.0

# After which the stream is left alone for so many seconds.
POLL_FOR = 60.0


class Attempts:
    """Reads that fail: when the next one is due, and for how long nothing has worked.

    Args:
        give_up_after: seconds without an answer after which no more are made. None: for ever.
    """

    def __init__(self, give_up_after: float | None, backoff: Backoff | None = None) -> None:
        # The monotonic time before which there is to be no other read.
        self.due: float = 0.0
        self._give_up_after = give_up_after
        self._backoff = backoff or Backoff(_FIRST_PAUSE, _LAST_PAUSE)
        self._down_since: float | None = None

    def succeeded(self) -> None:
        self._down_since = None
        self._backoff.reset()

    def failed(self, now: float) -> bool:
        """Whether that was the last one."""
        if self._down_since is None:
            self._down_since = now
        self.due = now + self._backoff.next_pause()
        if self._give_up_after is None:
            return False
        last = self._down_since + self._give_up_after
        self.due = min(self.due, last)
        return now >= last


class Falls:
    """How often the stream had to be left, and until when it is to be left alone.

    poll_until: on the monotonic clock.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.poll_until: float = 0.0
        self._recent: deque[float] = deque(maxlen=MAX_FALLS)

    def add(self, now: float) -> None:
        self.count += 1
        self._recent.append(now)
        if len(self._recent) == MAX_FALLS and now - self._recent[0] <= FALLS_WITHIN:
            self._recent.clear()
            self.poll_until = now + POLL_FOR
