"""Idempotency keys of past appends, for finding repeated requests."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.timetable import TimedTask
from pullstream_protocol.errors import ResourceExhausted

# Most keys that one feed remembers at the same time.
MAX_KEYS = 100_000

# A key may stay in memory this long after its expiry, in seconds.
SWEEP_AFTER = 10.0


class Appended(NamedTuple):
    """The sequence numbers that an append was given.

    Attributes:
        first: The first number.
        last: The last number.
    """

    first: int
    last: int


class IdempotencyKeys(TimedTask):
    """The keys of one feed. Each is remembered for the feed's idempotency window.

    Times are seconds on the monotonic clock.

    Attributes:
        window: Length of the window, in seconds. A change also applies to keys already stored.
    """

    def __init__(self, window: float) -> None:
        self.window = window
        # Oldest first.
        self._known: OrderedDict[str, tuple[float, Appended]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str, now: float) -> Appended | None:
        """Return the append that used the key within the window, if any."""
        self._forget(now)
        found = self._known.get(key)
        return None if found is None else found[1]

    def check_room(self) -> None:
        """Refuse another key if there are too many: no key may be forgotten before its time."""
        if len(self._known) >= MAX_KEYS:
            raise ResourceExhausted(
                f"The feed remembers {MAX_KEYS} idempotency keys, which is the maximum. Append "
                "without a key, or give the feed a shorter idempotency window."
            )

    def remember(self, key: str, appended: Appended, now: float) -> None:
        """Store the numbers of an append.

        Args:
            key: The append's idempotency key.
            appended: The sequence numbers.
            now: Monotonic time of the append, in seconds.
        """
        self._known[key] = (now, appended)

    def clear(self) -> None:
        """Forget all keys, so that a repeated request is a new append."""
        self._known.clear()

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Now) -> float | None:
        """Return when expired keys are removed; a delay lets many of them go at once."""
        oldest = next(iter(self._known.values()), None)
        return None if oldest is None else oldest[0] + self.window + SWEEP_AFTER

    def advance(self, now: Now) -> None:
        """Forget the expired keys."""
        self._forget(now.monotonic)

    def _forget(self, now: float) -> None:
        """Remove the keys that are older than the window."""
        while self._known:
            key, (then, _) = next(iter(self._known.items()))
            if now - then < self.window:
                return
            del self._known[key]
