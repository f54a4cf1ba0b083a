"""A clock on real time that a test may move ahead. It continues from there."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from freezegun import freeze_time

from pullstream_protocol.clock import MAX_WAIT, SYSTEM_CLOCK, ManualClock, OffsetClock

START = "2030-01-01 00:00:00"
START_SECONDS = 1_893_456_000.0


def test_an_offset_clock_is_ahead_of_its_base_clock_by_the_sum_of_its_advances() -> None:
    """The offset applies to wall and monotonic time. The base is unchanged."""
    base = ManualClock(start=1000.0)
    clock = OffsetClock(base)
    clock.advance(600)
    clock.advance(0.5)
    assert (clock.now(), clock.monotonic()) == (1600.5, 600.5)
    assert (base.now(), base.monotonic()) == (1000.0, 0.0)


def test_an_offset_clock_runs_on_with_its_base_clock_after_an_advance() -> None:
    """The clock is moved, not stopped."""
    base = ManualClock(start=1000.0)
    clock = OffsetClock(base)
    clock.advance(600)
    base.advance(7)
    assert (clock.now(), clock.monotonic()) == (1607.0, 607.0)


def test_an_offset_clock_without_a_base_clock_uses_real_time() -> None:
    """The time may be frozen by freezegun."""
    with freeze_time(START) as frozen:
        clock = OffsetClock()
        before = clock.monotonic()
        clock.advance(60)
        frozen.tick(timedelta(seconds=5))
        assert clock.now() == START_SECONDS + 65
        assert clock.monotonic() - before == pytest.approx(65)


def test_advancing_an_offset_clock_does_not_change_another_offset_clock() -> None:
    """Moving one broker ahead affects neither another broker nor the system clock."""
    with freeze_time(START):
        first, second = OffsetClock(), OffsetClock()
        first.advance(3600)
        assert second.now() == SYSTEM_CLOCK.now() == START_SECONDS
        assert first.now() == START_SECONDS + 3600


def test_the_timeout_of_a_wait_on_an_offset_clock_is_shorter_by_the_offset() -> None:
    """A deadline on this clock is nearer by the offset of the clock."""
    with freeze_time(START):
        clock = OffsetClock()
        due = clock.monotonic() + 600.25
        assert clock.timeout(due) == MAX_WAIT
        clock.advance(600)
        assert clock.timeout(due) == pytest.approx(0.25)
        clock.advance(1)
        assert clock.timeout(due) == 0.0
        assert clock.timeout(None) is None


def test_wakers_of_an_offset_clock_are_called_with_the_new_time_before_advance_returns() -> None:
    """A removed waker is not woken."""
    clock = OffsetClock(ManualClock())
    seen: list[float] = []

    def look() -> None:
        seen.append(clock.monotonic())

    clock.add_waker(look)
    clock.advance(5)
    clock.remove_waker(look)
    clock.advance(5)
    assert seen == [5.0]


@pytest.mark.parametrize("seconds", [-1, -0.001, math.inf, math.nan])
def test_an_offset_clock_refuses_an_advance_by_a_negative_or_infinite_time(
    seconds: float,
) -> None:
    """Any other step is refused, and the time is unchanged."""
    clock = OffsetClock(ManualClock())
    with pytest.raises(ValueError, match=r"seconds is .+; it must be finite and not negative"):
        clock.advance(seconds)
    assert clock.monotonic() == 0.0
