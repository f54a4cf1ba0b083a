"""The clock of receivers and coordinators."""

from __future__ import annotations

import sys
import time

from pullstream_protocol.clock import SYSTEM_CLOCK

if sys.platform == "linux":

    def elapsed() -> float:
        """Return seconds that no one sets, and that go on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

elif sys.platform == "darwin":

    def elapsed() -> float:
        """Return seconds that no one sets, and that go on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)

else:
    # Windows counts the time of sleep.
    elapsed = SYSTEM_CLOCK.monotonic
