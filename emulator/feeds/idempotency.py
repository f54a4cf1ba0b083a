"""Appends that were carried out already, by the keys that their callers gave them."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from emulator.engine.moment import Moment
from emulator.engine.timetable import TimedTask
from protocol.errors import ResourceExhausted

# Most keys that one feed remembers at a time.
MAX_KEYS = 100_000

# So long a key may stay in memory behind its time, in seconds.
SWEEP_AFTER = 10.0


class Appended(NamedTuple):
    """The numbers that an append was given: from first to last."""

    first: int
    last: int


class IdempotencyKeys(TimedTask):
    """The keys of one feed, each remembered for as long as the feed's window for it.

    Times are seconds on the monotonic clock.

    window: how long, in seconds. It may be changed, and then holds for all of them.
    """

    def __init__(self, window: float) -> None:
        self.window = window
        # The oldest first.
        self._known: OrderedDict[str, tuple[float, Appended]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str, now: float) -> Appended | None:
        """What was appended with the key within the window."""
        self._forget(now)
        found = self._known.get(key)
        return None if found is None else found[1]

    def check_room(self) -> None:
        """Refuse one more key if there are too many: none may be forgotten before its time."""
        if len(self._known) >= MAX_KEYS:
            raise ResourceExhausted(
                f"The feed remembers {MAX_KEYS} idempotency keys, which is the maximum. Append "
                "without a key, or give the feed a shorter idempotency window."
            )

    def remember(self, key: str, appended: Appended, now: float) -> None:
        self._known[key] = (now, appended)

    def clear(self) -> None:
        self._known.clear()

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Moment) -> float | None:
        """When those that nobody asks for any more are forgotten, many at a time."""
        oldest = next(iter(self._known.values()), None)
        return None if oldest is None else oldest[0] + self.window + SWEEP_AFTER

    def advance(self, now: Moment) -> None:
        self._forget(now.monotonic)

    def _forget(self, now: float) -> None:
        """Forget those that are out of the window."""
        while self._known:
            key, (then, _) = next(iter(self._known.items()))
            if now - then < self.window:
                return
            del self._known[key]
