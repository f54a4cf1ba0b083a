"""Pauses between attempts: they grow, they differ, they end."""

from subscriber.streaming.backoff import Backoff


def test_pauses_double_up_to_the_longest_each_shortened_by_up_to_a_half() -> None:
    """Also after more attempts than a float has doublings."""
    backoff = Backoff(0.1, 10.0)
    for attempt in range(2000):
        bound = min(0.1 * 2.0 ** min(attempt, 20), 10.0)
        assert bound / 2 <= backoff.next_pause() <= bound


def test_two_clients_do_not_come_back_in_step() -> None:
    """The pauses are random."""
    assert len({Backoff(1.0, 10.0).next_pause() for _ in range(20)}) > 1


def test_after_a_reset_the_next_pause_is_the_first() -> None:
    """All was well in between."""
    backoff = Backoff(0.1, 10.0)
    for _ in range(10):
        backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() <= 0.1
