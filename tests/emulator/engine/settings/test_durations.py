"""Durations in error texts, and the range of timestamps."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_emulator.engine.settings.durations import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    in_words,
    is_timestamp,
    seconds_of,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (5, "5s"),
        (600, "10m"),
        (86_400, "24h"),
        (90, "90s"),
        (5400, "90m"),
        (0.1, "0.1s"),
        (1e-9, "0.000000001s"),
        (10**10 + 1, "10000000001s"),
    ],
)
def test_a_duration_in_an_error_text_is_written_in_the_largest_unit_that_divides_it_evenly(
    seconds: float, text: str
) -> None:
    """The largest unit that divides the duration evenly is used."""
    assert in_words(seconds) == text


def test_the_function_seconds_of_adds_seconds_and_nanoseconds_of_a_duration() -> None:
    """Both parts may be negative."""
    assert seconds_of(Duration(seconds=-1, nanos=-500_000_000)) == -1.5


@pytest.mark.parametrize(
    ("seconds", "nanos", "is_valid"),
    [
        (MIN_TIMESTAMP, 0, True),
        (MAX_TIMESTAMP, 999_999_999, True),
        (MIN_TIMESTAMP - 1, 0, False),
        (MAX_TIMESTAMP + 1, 0, False),
        (0, -1, False),
        (0, 1_000_000_000, False),
    ],
)
def test_a_timestamp_outside_the_years_1_to_9999_is_invalid(
    seconds: int, nanos: int, is_valid: bool
) -> None:
    """Python's datetime has the same range."""
    assert is_timestamp(Timestamp(seconds=seconds, nanos=nanos)) is is_valid
