"""Retry schedule of a listener's calls."""

from __future__ import annotations

import grpc

from pullstream.runtime.outage_reporter import OutageReporter
from pullstream.runtime.retry_clock import RetryClock
from pullstream.streaming.stream import PROVEN_AFTER, TERMINAL_CODES
from pullstream_protocol.errors import DeadlineExceeded, RpcError

# Status codes with which a publisher refuses a command. Any other code is a failure of the
# publisher as a whole.
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

# The pause before the second attempt, and the longest pause, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 5.0


class PollRetries:
    """Schedules the retries of one kind of call, and decides when to give up.

    Args:
        give_up_after: Give up this many seconds after the first failure in a row. None: never.
        outage: Reports outages of the server. Shared with the other kinds of calls.
    """

    def __init__(self, give_up_after: float | None, outage: OutageReporter) -> None:
        self._outage = outage
        self._clock = RetryClock(_FIRST_PAUSE, _LAST_PAUSE, give_up_after)
        self._begun_at = 0.0

    def begin(self, now: float) -> None:
        """Record the start of an attempt."""
        self._begun_at = now

    def succeeded(self) -> None:
        """Record a success: the next failure begins again with the shortest pause."""
        self._clock.succeeded()
        self._outage.over()

    def failed(self, error: RpcError, now: float) -> float | None:
        """Record a failure; return the time of the next attempt, or None to give up."""
        if error.grpc_status_code in TERMINAL_CODES:
            return None
        if now - self._begun_at >= PROVEN_AFTER and not isinstance(error, DeadlineExceeded):
            # The call has reached the server: it lasted long, and proxies cut idle connections. But
            # DEADLINE_EXCEEDED is a failure, because a healthy server answers before the deadline.
            self.succeeded()
        self._outage.failed(now, error)
        return self._clock.failed(now)
