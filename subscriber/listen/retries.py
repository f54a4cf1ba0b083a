"""When a call is tried again, and when its server is given up."""

from __future__ import annotations

from protocol.errors import RpcError
from subscriber.streaming.backoff import Backoff
from subscriber.streaming.stream import TERMINAL_CODES

# Pauses before the second attempt, and before later ones at most, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 5.0


class Retries:
    """The attempts of one kind of call since one of them last went well.

    Args:
        give_up_after: seconds since the first failure in a row. None: never.
    """

    def __init__(self, give_up_after: float | None) -> None:
        self._give_up_after = give_up_after
        self._backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE)
        self._failing_since: float | None = None

    def succeeded(self) -> None:
        self._failing_since = None
        self._backoff.reset()

    def failed(self, error: RpcError, now: float) -> float | None:
        """The moment of the next attempt; None: there is none."""
        if error.grpc_status_code in TERMINAL_CODES:
            return None
        if self._failing_since is None:
            self._failing_since = now
        due = now + self._backoff.next_pause()
        if self._give_up_after is None:
            return due
        last = self._failing_since + self._give_up_after
        return min(due, last) if now < last else None
