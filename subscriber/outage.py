"""An outage that lasts is told, once: who only waits looks as if there were no messages."""

from __future__ import annotations

import logging

# Seconds of an outage that are not worth a word: servers restart, and end streams now and then.
TOLD_AFTER = 3.0


class Outage:
    """Since when nothing that was tried has worked. One thread at a time calls it.

    Args:
        log: gets the warning, at the first failure after TOLD_AFTER seconds of them.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since: float | None = None
        self._is_told = False

    def failed(self, now: float, error: Exception | None) -> None:
        """Another attempt has failed. `now` is on the monotonic clock."""
        if self._since is None:
            self._since = now
        lasted = now - self._since
        if lasted >= TOLD_AFTER and not self._is_told:
            self._is_told = True
            cause = error or "it ends every stream at once"
            self._log.warning(
                "the server is out of reach for %.0f s (%s): trying on", lasted, cause
            )

    def over(self) -> None:
        """Something has worked."""
        if self._is_told:
            self._log.info("the server is back")
        self._since, self._is_told = None, False
