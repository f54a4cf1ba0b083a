"""Times of attempts: pauses grow and differ, and the last attempt is at the limit."""

import pytest

from pullstream.runtime.retry_clock import Backoff, RetryClock


def test_retry_pauses_double_up_to_the_maximum_with_random_shortening() -> None:
    """There may be more attempts than a float has doublings."""
    backoff = Backoff(0.1, 10.0)
    for attempt in range(2000):
        bound = min(0.1 * 2.0 ** min(attempt, 20), 10.0)
        assert bound / 2 <= backoff.next_pause() <= bound


def test_retry_pauses_of_two_clients_differ_by_a_random_part() -> None:
    """The pauses are random."""
    assert len({Backoff(1.0, 10.0).next_pause() for _ in range(20)}) > 1


def test_the_first_pause_after_a_successful_retry_is_the_shortest_one() -> None:
    """A reset means that a try has succeeded."""
    backoff = Backoff(0.1, 10.0)
    for _ in range(10):
        backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() <= 0.1


def test_pauses_between_retry_attempts_grow_and_are_short_again_after_a_success() -> None:
    """After a success, the pauses are short again."""
    clock, now = RetryClock(1.0, 8.0), 100.0
    for longest in (1.0, 2.0, 4.0, 8.0, 8.0):
        due = clock.failed(now)
        assert due is not None
        assert longest / 2 <= due - now <= longest
        now = due
    clock.succeeded()
    due = clock.failed(now)
    assert due is not None
    assert due - now <= 1.0


def test_the_last_retry_attempt_is_made_at_the_time_limit_of_retries() -> None:
    """The limit counts from the first failure, and a failure of this attempt is the last one."""
    clock, now, attempts = RetryClock(1.0, 8.0, 60.0), 100.0, 0
    while (due := clock.failed(now)) is not None:
        assert now < due <= 160.0
        now, attempts = due, attempts + 1
    assert now == 160.0
    assert attempts > 60 / 8


def test_a_success_restarts_the_time_limit_of_retries() -> None:
    """The limit counts from the next failure, however much later."""
    clock = RetryClock(1.0, 8.0, 60.0)
    clock.failed(100.0)
    clock.succeeded()
    assert clock.failed(1000.0) is not None
    assert clock.failed(1059.5) == pytest.approx(1060.0)
    assert clock.failed(1060.0) is None


def test_a_retry_time_limit_of_zero_allows_no_retry() -> None:
    """A limit of 0 allows no other attempt."""
    assert RetryClock(1.0, 8.0, 0.0).failed(100.0) is None


def test_retries_without_a_time_limit_never_end() -> None:
    """An outage may last for months."""
    assert RetryClock(1.0, 8.0).failed(1e7) is not None
