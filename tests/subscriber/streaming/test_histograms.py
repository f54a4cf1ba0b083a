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


def test_a_histogram_sample_at_the_end_of_a_step_is_counted_in_that_step() -> None:
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
def test_percentiles_of_the_latency_histogram_are_within_six_percent_of_the_samples(
    seconds: float,
) -> None:
    """From microseconds to a quarter of an hour."""
    times = latencies()
    times.add_samples(seconds)
    assert percentiles(times).p50 == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0])
def test_the_latency_histogram_counts_a_latency_of_zero_in_its_first_step(seconds: float) -> None:
    """A clock that stands still, as in tests, is no reason to fail."""
    times = latencies()
    times.add_samples(seconds)
    assert 0.0 < percentiles(times).p99 <= 1e-5


def test_the_latency_histogram_counts_very_long_latencies_in_its_last_step() -> None:
    """More than half an hour is more than half an hour."""
    times = latencies()
    times.add_samples(1e9)
    assert 1_200.0 < percentiles(times).p50 < 2_400.0


def test_p50_p90_and_p99_latencies_are_the_50th_90th_and_99th_of_a_hundred_samples() -> None:
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


def test_recent_latencies_weigh_more_than_old_ones_in_the_percentiles() -> None:
    """After a change for the better it does not take as many messages again to see it."""
    times = latencies()
    times.add_samples(10.0, 100_000)
    for _ in range(20_000):
        times.add_samples(0.01)
    assert percentiles(times).p50 == pytest.approx(0.01, rel=0.06)


@given(st.lists(st.floats(1e-4, 1_000.0), min_size=1, max_size=200))
def test_the_p50_of_the_latency_histogram_equals_the_median_of_its_samples(
    samples: list[float],
) -> None:
    """Of any times, in any order, to the width of a step."""
    times = latencies()
    for seconds in samples:
        times.add_samples(seconds)
    latency = percentiles(times)
    assert latency.p50 == pytest.approx(statistics.median_low(samples), rel=0.06)
    assert latency.p50 <= latency.p90 <= latency.p99
    assert min(samples) * 0.94 <= latency.p99 <= max(samples) * 1.06


# ---- handling times ----------------------------------------------------------------------------


def test_the_measured_handling_time_of_messages_is_unknown_without_samples() -> None:
    """The bounds of an extension apply then."""
    assert handling_times().percentile(0.99) == 0


def test_measured_handling_times_are_rounded_up_within_the_ack_deadline_bounds() -> None:
    """A lease of 11 s is too short for a callback of 11.2 s."""
    assert times_of(11.0).percentile(0.99) == 11
    assert times_of(11.2).percentile(0.99) == 12
    assert times_of(0.0).percentile(0.99) == 10
    assert times_of(-3.0).percentile(0.99) == 10
    assert times_of(599.5).percentile(0.99) == 600
    assert times_of(100_000.0).percentile(0.99) == 600


def test_one_slow_callback_in_a_hundred_does_not_lengthen_the_measured_handling_time() -> None:
    """The 99th percentile: two do."""
    assert times_of(*[20.0] * 99, 300.0).percentile(0.99) == 20
    assert times_of(*[20.0] * 98, 300.0, 300.0).percentile(0.99) == 300


@given(st.lists(st.integers(10, 600), min_size=1, max_size=300))
def test_the_measured_handling_time_is_the_shortest_that_covers_99_percent_of_callbacks(
    samples: list[int],
) -> None:
    """Compared with sorting all of them."""
    percentile = times_of(*map(float, samples)).percentile(0.99)
    allowed = len(samples) // 100
    assert sum(sample > percentile for sample in samples) <= allowed
    assert percentile == 10 or sum(sample > percentile - 1 for sample in samples) > allowed


def test_the_measured_handling_time_shrinks_after_callbacks_become_faster() -> None:
    """Callbacks that have become fast are seen to be, in spite of a slow past."""
    times = handling_times()
    times.add_samples(500.0, times=9_999)
    assert times.percentile(0.99) == 500
    for _ in range(20):
        times.add_samples(12.0, times=5_000)
    assert times.percentile(0.99) == 12


def test_adding_a_histogram_sample_n_times_in_one_call_equals_n_calls() -> None:
    """`times` is only a shorter way to say it."""
    together = times_of(*[20.0] * 98)
    together.add_samples(300.0, times=2)
    assert together.percentile(0.99) == 300
