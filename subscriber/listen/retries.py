"""When a call is tried again, and when its server is given up."""

from __future__ import annotations

import grpc

from protocol.errors import DeadlineExceeded, RpcError
from subscriber.outage import Outage
from subscriber.streaming.backoff import Backoff
from subscriber.streaming.stream import PROVEN_AFTER, TERMINAL_CODES

# How a publisher says that it does not take a command; with the others it is at fault as a whole.
REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)

# Pauses before the second attempt, and before later ones at most, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 5.0


class Retries:
    """The attempts of one kind of call since one of them last went well.

    Args:
        give_up_after: seconds since the first failure in a row. None: never.
        outage: that of the server, which other kinds of calls have in common with this one.
    """

    def __init__(self, give_up_after: float | None, outage: Outage) -> None:
        self._give_up_after = give_up_after
        self._outage = outage
        self._backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE)
        self._begun_at = 0.0
        self._failing_since: float | None = None

    def begin(self, now: float) -> None:
        """An attempt is made."""
        self._begun_at = now

    def succeeded(self) -> None:
        self._failing_since = None
        self._backoff.reset()
        self._outage.over()

    def failed(self, error: RpcError, now: float) -> float | None:
        """The moment of the next attempt; None: there is none."""
        if error.grpc_status_code in TERMINAL_CODES:
            return None
        if now - self._begun_at >= PROVEN_AFTER and not isinstance(error, DeadlineExceeded):
            # It did reach the server until now: proxies cut what has nothing to say for long. But
            # a server that lives answers before the deadline.
            self.succeeded()
        self._outage.failed(now, error)
        if self._failing_since is None:
            self._failing_since = now
        due = now + self._backoff.next_pause()
        if self._give_up_after is None:
            return due
        last = self._failing_since + self._give_up_after
        return min(due, last) if now < last else None
