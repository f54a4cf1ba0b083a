"""Appends that were carried out already, by the keys that their callers gave them."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from protocol.errors import ResourceExhausted

# Most keys that one feed remembers at a time.
MAX_KEYS = 100_000


class Appended(NamedTuple):
    """The numbers that an append was given: from first to last."""

    first: int
    last: int


class IdempotencyKeys:
    """The keys of one feed, each remembered for as long as the feed's window for it.

    Times are seconds on the monotonic clock.
    """

    def __init__(self) -> None:
        # The oldest first.
        self._known: OrderedDict[str, tuple[float, Appended]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str, now: float, window: float) -> Appended | None:
        """What was appended with the key within the last `window` seconds."""
        self.forget(now, window)
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

    def forget(self, now: float, window: float) -> None:
        """Forget the keys that are older than `window` seconds."""
        while self._known:
            key, (then, _) = next(iter(self._known.items()))
            if now - then < window:
                return
            del self._known[key]

    def clear(self) -> None:
        self._known.clear()
