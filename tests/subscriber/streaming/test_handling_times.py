"""How long callbacks take, as the extension of leases sees it."""

from hypothesis import given
from hypothesis import strategies as st

from subscriber.streaming.handling_times import HandlingTimes


def times_of(*samples: float) -> HandlingTimes:
    times = HandlingTimes()
    for seconds in samples:
        times.add(seconds)
    return times


def test_without_samples_it_is_the_shortest_deadline() -> None:
    """10 seconds, the least that the server takes."""
    assert HandlingTimes().percentile() == 10


def test_times_are_rounded_up_and_kept_within_the_servers_bounds() -> None:
    """A lease of 11 s is too short for a callback of 11.2 s."""
    assert times_of(11.0).percentile() == 11
    assert times_of(11.2).percentile() == 12
    assert times_of(0.0).percentile() == 10
    assert times_of(-3.0).percentile() == 10
    assert times_of(599.5).percentile() == 600
    assert times_of(100_000.0).percentile() == 600


def test_one_slow_callback_in_a_hundred_does_not_count() -> None:
    """The 99th percentile: two do."""
    assert times_of(*[20.0] * 99, 300.0).percentile() == 20
    assert times_of(*[20.0] * 98, 300.0, 300.0).percentile() == 300


@given(st.lists(st.integers(10, 600), min_size=1, max_size=300))
def test_at_least_99_of_100_fit_and_no_shorter_time_would_do(samples: list[int]) -> None:
    """Compared with sorting all of them."""
    percentile = times_of(*map(float, samples)).percentile()
    allowed = len(samples) // 100
    assert sum(sample > percentile for sample in samples) <= allowed
    assert percentile == 10 or sum(sample > percentile - 1 for sample in samples) > allowed


def test_what_callbacks_did_long_ago_is_forgotten() -> None:
    """Callbacks that have become fast are seen to be, in spite of a slow past."""
    times = HandlingTimes()
    times.add(500.0, times=9_999)
    assert times.percentile() == 500
    for _ in range(20):
        times.add(12.0, times=5_000)
    assert times.percentile() == 12


def test_many_at_once_count_as_many_one_by_one() -> None:
    """`times` is only a shorter way to say it."""
    together = times_of(*[20.0] * 98)
    together.add(300.0, times=2)
    assert together.percentile() == 300
