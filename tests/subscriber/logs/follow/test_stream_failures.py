"""A follower polls for a while after repeated failures of its streams."""

from __future__ import annotations

from pullstream.logs.follow.stream_failures import (
    FAILURES_WITHIN,
    MAX_FAILURES,
    POLL_FOR,
    StreamFailures,
)


def test_failures_in_a_short_time() -> None:
    """The third failure within a minute ends the use of streams for a minute."""
    failures = StreamFailures()
    for second in range(MAX_FAILURES - 1):
        failures.add(second)
        assert failures.poll_until == 0
    failures.add(FAILURES_WITHIN)
    assert failures.poll_until == FAILURES_WITHIN + POLL_FOR
    assert failures.count == MAX_FAILURES


def test_failures_in_a_long_time() -> None:
    """Streams are used again after each failure."""
    failures = StreamFailures()
    for number in range(10):
        failures.add(number * (FAILURES_WITHIN / (MAX_FAILURES - 1) + 1))
    assert (failures.count, failures.poll_until) == (10, 0)


def test_failures_before_a_poll_do_not_count_twice() -> None:
    """The next poll needs as many new failures."""
    failures = StreamFailures()
    for second in range(2 * MAX_FAILURES - 1):
        failures.add(second)
    assert failures.poll_until == MAX_FAILURES - 1 + POLL_FOR
