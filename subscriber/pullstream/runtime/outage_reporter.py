"""Logs a lasting outage once, because a client that waits looks like one without messages."""

from __future__ import annotations

import logging

# Outages of fewer seconds are not logged: servers restart, and end streams now and then.
REPORT_AFTER = 3.0


class OutageReporter:
    """Tracks since when every attempt has failed. Not thread-safe.

    Args:
        log: Receives a warning at the first failed attempt after REPORT_AFTER seconds of failures.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since: float | None = None
        self._is_reported = False

    def failed(self, now: float, error: Exception | None) -> None:
        """Record a failed attempt.

        Args:
            now: The time on the monotonic clock, in seconds.
            error: The error of the attempt. None: the server ended the stream at once.
        """
        if self._since is None:
            self._since = now
        lasted = now - self._since
        if lasted >= REPORT_AFTER and not self._is_reported:
            self._is_reported = True
            cause = error or "it ends every stream at once"
            self._log.warning(
                "the server has been unreachable for %.0f s (%s); retrying", lasted, cause
            )

    def over(self) -> None:
        """Record a successful attempt."""
        if self._is_reported:
            self._log.info("the server is reachable again")
        self._since, self._is_reported = None, False
