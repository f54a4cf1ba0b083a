"""Times, and durations in the form of Cloud Pub/Sub's error texts: `24h`, `10m`, `5s`."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

MINUTE = 60
HOUR = 3600
DAY = 86400

# Seconds of the first and the last time that a Timestamp can express.
MIN_TIMESTAMP = -62_135_596_800
MAX_TIMESTAMP = 253_402_300_799


def seconds_of(duration: Duration) -> float:
    """Convert a Duration message to seconds, with fractions."""
    return duration.seconds + duration.nanos / 1e9


def is_timestamp(time: Timestamp) -> bool:
    """Return whether `time` is well-formed and within the years 1 to 9999."""
    return MIN_TIMESTAMP <= time.seconds <= MAX_TIMESTAMP and 0 <= time.nanos < 1_000_000_000


def in_words(seconds: float) -> str:
    """Format a duration in the largest unit that divides it evenly; 0 is `0`."""
    if seconds == 0:
        return "0"
    for unit, name in ((HOUR, "h"), (MINUTE, "m")):
        if seconds % unit == 0:
            return f"{in_digits(seconds / unit)}{name}"
    return f"{in_digits(seconds)}s"


def in_digits(number: float) -> str:
    """Format a number with up to nine decimals, without an exponent or trailing zeros."""
    return f"{number:.9f}".rstrip("0").rstrip(".")
