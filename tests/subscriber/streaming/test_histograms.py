"""How long messages took: in whole seconds for leases, finer for statistics; the past fades."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.statistics import Latency
from pullstream.streaming.histograms import Histogram, handling_times, latencies


def percentiles(times: Histogram) -> Latency:
    return Latency(*map(times.percentile, (0.5, 0.9, 0.99)))


def times_of(*samples: float) -> Histogram:
    times = handling_times()
    for seconds in samples:
        times.add_samples(seconds)
    return times


def test_a_histogram_sample_belongs_to_the_step_that_ends_at_it() -> None:
    """The last step takes what is beyond its end."""
    histogram = Histogram([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    for sample, value in ((0.0, 10.0), (1.0, 10.0), (1.5, 20.0), (3.0, 30.0), (99.0, 30.0)):
        one = Histogram([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
        one.add_samples(sample)
        assert one.percentile(0.5) == one.percentile(1.0) == value
        histogram.add_samples(sample)
    assert [histogram.percentile(part) for part in (0.4, 0.6, 0.61)] == [10.0, 20.0, 30.0]


# ---- latencies ---------------------------------------------------------------------------------


def test_latency_percentiles_are_zero_without_samples() -> None:
    """Zeros, not an error."""
    assert percentiles(latencies()) == Latency(0.0, 0.0, 0.0)


@pytest.mark.parametrize("seconds", [2e-5, 0.001, 0.2, 1.0, 60.0, 900.0])
def test_the_latency_histogram_reports_times_within_six_percent(seconds: float) -> None:
    """From microseconds to a quarter of an hour."""
    times = latencies()
    times.add_samples(seconds)
    assert percentiles(times).p50 == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0])
def test_the_latency_histogram_counts_a_time_of_zero_in_its_first_step(seconds: float) -> None:
    """A clock that stands still, as in tests, is no reason to fail."""
    times = latencies()
    times.add_samples(seconds)
    assert 0.0 < percentiles(times).p99 <= 1e-5


def test_the_latency_histogram_counts_very_long_times_in_its_last_step() -> None:
    """More than half an hour is more than half an hour."""
    times = latencies()
    times.add_samples(1e9)
    assert 1_200.0 < percentiles(times).p50 < 2_400.0


def test_latency_percentiles_separate_common_from_rare_times() -> None:
    """Of a hundred: the middle one, the ninetieth and the one before the last."""
    times = latencies()
    times.add_samples(0.01, 50)
    times.add_samples(0.1, 40)
    times.add_samples(1.0, 9)
    times.add_samples(10.0)
    latency = percentiles(times)
    assert latency.p50 == pytest.approx(0.01, rel=0.06)
    assert latency.p90 == pytest.approx(0.1, rel=0.06)
    assert latency.p99 == pytest.approx(1.0, rel=0.06)


def test_the_latency_histogram_weights_recent_samples_more_than_old_ones() -> None:
    """After a change for the better it does not take as many messages again to see it."""
    times = latencies()
    times.add_samples(10.0, 100_000)
    for _ in range(20_000):
        times.add_samples(0.01)
    assert percentiles(times).p50 == pytest.approx(0.01, rel=0.06)


@given(st.lists(st.floats(1e-4, 1_000.0), min_size=1, max_size=200))
def test_the_p50_latency_equals_the_median_of_the_samples(samples: list[float]) -> None:
    """Of any times, in any order, to the width of a step."""
    times = latencies()
    for seconds in samples:
        times.add_samples(seconds)
    latency = percentiles(times)
    assert latency.p50 == pytest.approx(statistics.median_low(samples), rel=0.06)
    assert latency.p50 <= latency.p90 <= latency.p99
    assert min(samples) * 0.94 <= latency.p99 <= max(samples) * 1.06


# ---- handling times ----------------------------------------------------------------------------


def test_the_handling_time_is_unknown_without_samples() -> None:
    """The bounds of an extension apply then."""
    assert handling_times().percentile(0.99) == 0


def test_handling_times_are_rounded_up_and_kept_within_the_servers_lease_bounds() -> None:
    """A lease of 11 s is too short for a callback of 11.2 s."""
    assert times_of(11.0).percentile(0.99) == 11
    assert times_of(11.2).percentile(0.99) == 12
    assert times_of(0.0).percentile(0.99) == 10
    assert times_of(-3.0).percentile(0.99) == 10
    assert times_of(599.5).percentile(0.99) == 600
    assert times_of(100_000.0).percentile(0.99) == 600


def test_one_slow_callback_in_a_hundred_does_not_lengthen_the_handling_time() -> None:
    """The 99th percentile: two do."""
    assert times_of(*[20.0] * 99, 300.0).percentile(0.99) == 20
    assert times_of(*[20.0] * 98, 300.0, 300.0).percentile(0.99) == 300


@given(st.lists(st.integers(10, 600), min_size=1, max_size=300))
def test_the_handling_time_is_the_shortest_that_covers_99_percent_of_callbacks(
    samples: list[int],
) -> None:
    """Compared with sorting all of them."""
    percentile = times_of(*map(float, samples)).percentile(0.99)
    allowed = len(samples) // 100
    assert sum(sample > percentile for sample in samples) <= allowed
    assert percentile == 10 or sum(sample > percentile - 1 for sample in samples) > allowed


def test_the_handling_time_forgets_old_callbacks() -> None:
    """Callbacks that have become fast are seen to be, in spite of a slow past."""
    times = handling_times()
    times.add_samples(500.0, times=9_999)
    assert times.percentile(0.99) == 500
    for _ in range(20):
        times.add_samples(12.0, times=5_000)
    assert times.percentile(0.99) == 12


def test_adding_a_sample_many_times_at_once_equals_adding_it_one_by_one() -> None:
    """`times` is only a shorter way to say it."""
    together = times_of(*[20.0] * 98)
    together.add_samples(300.0, times=2)
    assert together.percentile(0.99) == 300
