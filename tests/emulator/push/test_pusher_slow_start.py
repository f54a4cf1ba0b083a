"""Slow start: the number of concurrent requests to an endpoint, and its pauses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.push.pusher import (
    FIRST_WINDOW,
    MAX_PAUSE,
    MAX_WINDOW,
    MIN_PAUSE,
    SlowStart,
)


def test_the_limit_of_concurrent_push_requests_doubles_after_as_many_successes() -> None:
    """The window grows from a few requests to many within a few rounds."""
    pace = SlowStart()
    for expected in (8, 16, 32):
        for _ in range(pace.window):
            pace.succeeded(pace.round)
        assert pace.window == expected


def test_the_number_of_concurrent_push_requests_has_a_maximum() -> None:
    """More successes do not increase it further."""
    pace = SlowStart()
    for _ in range(2 * MAX_WINDOW):
        pace.succeeded(pace.round)
    assert pace.window == MAX_WINDOW


def test_each_round_of_failed_push_requests_doubles_the_pause_up_to_one_minute() -> None:
    """The window is halved each time, down to one."""
    pace = SlowStart()
    pauses, windows = [], []
    for _ in range(12):
        pauses.append(pace.failed(pace.round))
        windows.append(pace.window)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0]
    assert windows[:3] == [FIRST_WINDOW // 2, 1, 1]
    assert set(windows[3:]) == {1}


def test_failures_of_simultaneous_push_requests_lengthen_the_pause_only_once() -> None:
    """A full window of requests to a dead endpoint counts as one failure."""
    pace = SlowStart()
    begun = pace.round
    assert [pace.failed(begun) for _ in range(FIRST_WINDOW)] == [MIN_PAUSE, 0.0, 0.0, 0.0]
    assert pace.window == FIRST_WINDOW // 2
    assert pace.failed(pace.round) == 2 * MIN_PAUSE


def test_only_the_success_of_a_push_begun_after_the_failure_resets_the_pause() -> None:
    """A request that began earlier does not show the present state of the endpoint."""
    pace = SlowStart()
    before = pace.round
    pace.failed(before)
    pace.succeeded(before)
    assert pace.failed(pace.round) == 2 * MIN_PAUSE
    pace.succeeded(pace.round)
    assert pace.failed(pace.round) == MIN_PAUSE


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))))
def test_the_number_of_concurrent_push_requests_and_the_pause_stay_within_their_bounds(
    outcomes: list[tuple[bool, int]],
) -> None:
    """The bounds hold for any order in which requests of present and earlier rounds end."""
    pace = SlowStart()
    for taken, age in outcomes:
        if taken:
            pace.succeeded(pace.round - age)
        else:
            pause = pace.failed(pace.round - age)
            assert (pause == 0.0) == (age > 0)
            assert pause <= MAX_PAUSE
        assert 1 <= pace.window <= MAX_WINDOW
