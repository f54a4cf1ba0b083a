"""Warnings about messages that a spool leaves out, or may not leave out."""

from __future__ import annotations

import logging

from pullstream.spark.protocol.coordinator import Coordinator

_log = logging.getLogger("pullstream.spark")

# Redeliveries of messages that were committed long before are late answers up to this part of all
# messages.
_PART = 0.1


class SpoolWarner:
    """Logs each warning once.

    Args:
        window: The time for which committed messages shall be known, in seconds.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._messages = 0
        self._long_committed = 0
        self._is_sought = False
        self._is_forgetful = False

    def look(self, coordinator: Coordinator) -> None:
        """Compare the coordinator's numbers with the numbers of the last call."""
        counts = coordinator.counts
        messages = counts.rows + counts.left_out - self._messages
        long_committed = counts.long_committed - self._long_committed
        self._messages += messages
        self._long_committed += long_committed
        if long_committed > _PART * messages and not self._is_sought:
            self._is_sought = True
            _log.warning(
                "%d of %d messages were committed at least 10 minutes ago and are left out: "
                "somebody has probably sought the subscription back. To read them again on "
                "purpose, use an empty spoolDir",
                long_committed,
                messages,
            )
        known = coordinator.known_ids
        if known.forgotten_early and not self._is_forgetful:
            self._is_forgetful = True
            _log.warning(
                "the spool remembers %d committed messages, of the last %.0f seconds instead of "
                "%.0f; an older message that is delivered again is written twice. Raise "
                "dedupMessages",
                len(known),
                known.oldest_age,
                self._window,
            )
