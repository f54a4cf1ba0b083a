"""Describes in words why the unconfirmed messages of a publisher wait: the state of the server."""

from __future__ import annotations

import math

from pullstream.runtime.outage_reporter import REPORT_AFTER
from pullstream_protocol.errors import DeadlineExceeded, Unavailable

from .publish_queue import Batch


class PublishOutage:
    """Tracks since when the server has answered no request. Not thread-safe.

    Attributes:
        error: The error of the last attempt that is retried, if there was no answer since then.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._since: float | None = None
        self._is_reported = False

    def sent(self, now: float) -> None:
        """Record that a request was sent."""
        if self._since is None:
            self._since = now

    def failed(self, error: BaseException) -> None:
        """Record the error of an attempt that is retried."""
        self.error = error

    def answered(self, now: float, *, others_wait: bool) -> bool:
        """Record an answer of the server; return whether the end of the outage must be reported.

        Args:
            now: The time on the monotonic clock, in seconds.
            others_wait: Whether other requests are in flight.
        """
        was_reported, self._is_reported = self._is_reported, False
        self._since = now if others_wait else None
        self.error = None
        return was_reported

    @property
    def is_known(self) -> bool:
        """Whether an attempt has failed, or the outage was reported, since the last answer."""
        return self.error is not None or self._is_reported

    @property
    def report_due(self) -> float | None:
        """When the outage must be reported, or None."""
        return None if self._since is None or self._is_reported else self._since + REPORT_AFTER

    def must_report(self, now: float) -> bool:
        """Return whether the outage must be reported now. It is True once for each outage."""
        due = self.report_due
        if due is None or due > now:
            return False
        self._is_reported = True
        return True

    def state(self, now: float) -> str:
        """Return the state of the server as a clause."""
        lasted = f"for {now - self._since:.0f} s" if self._since is not None else "yet"
        if self.error is None:
            return f"the server has not answered {lasted}"
        verb = "been unreachable" if isinstance(self.error, _NO_ANSWER) else "refused requests"
        return f"the server has {verb} {lasted} ({self.error})"

    def reason_of(self, batch: Batch, now: float) -> str:
        """Return as a clause what the messages of an unresolved batch wait for."""
        sequencer = batch.sequencer
        if batch.attempts:
            left = batch.gives_up_at(now) - now
            return f"{self.state(now)}; the request is retried {time_limit(left)}"
        if sequencer.key and (sequencer.in_flight or sequencer.retrying):
            return f"an earlier message of the ordering key is not confirmed: {self.state(now)}"
        if sequencer.open is batch:
            return f"the batch is open, and is sent {max(batch.due - now, 0.0):.2f} s from now"
        return f"too many requests are in flight: {self.state(now)}"


_NO_ANSWER = (Unavailable, DeadlineExceeded)


def time_limit(seconds: float) -> str:
    """Return a time limit in words. `math.inf`: there is none."""
    if seconds == math.inf:
        return "without a time limit"
    return f"for up to {max(seconds, 0.0):.0f} s"
