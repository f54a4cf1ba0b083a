"""How long messages took: close enough to be looked at, and the past fades."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subscriber.statistics import Latency
from subscriber.streaming.latencies import Latencies


def test_before_the_first_message_there_is_nothing_to_tell() -> None:
    """Zeros, not an error."""
    assert Latencies().snapshot() == Latency(0.0, 0.0, 0.0)


@pytest.mark.parametrize("seconds", [2e-5, 0.001, 0.2, 1.0, 60.0, 900.0])
def test_a_time_is_told_to_about_a_twentieth(seconds: float) -> None:
    """From microseconds to a quarter of an hour."""
    latencies = Latencies()
    latencies.add(seconds)
    assert latencies.snapshot().p50 == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, -1.0])
def test_what_takes_no_time_counts_as_the_shortest(seconds: float) -> None:
    """A clock that stands still, as in tests, is no reason to fail."""
    latencies = Latencies()
    latencies.add(seconds)
    assert 0.0 < latencies.snapshot().p99 <= 1e-5


def test_what_takes_for_ever_counts_as_the_longest() -> None:
    """More than half an hour is more than half an hour."""
    latencies = Latencies()
    latencies.add(1e9)
    assert 1_200.0 < latencies.snapshot().p50 < 2_400.0


def test_percentiles_tell_the_many_from_the_few() -> None:
    """Of a hundred: the middle one, the ninetieth and the one before the last."""
    latencies = Latencies()
    latencies.add(0.01, 50)
    latencies.add(0.1, 40)
    latencies.add(1.0, 9)
    latencies.add(10.0)
    latency = latencies.snapshot()
    assert latency.p50 == pytest.approx(0.01, rel=0.06)
    assert latency.p90 == pytest.approx(0.1, rel=0.06)
    assert latency.p99 == pytest.approx(1.0, rel=0.06)


def test_the_past_counts_less_and_less() -> None:
    """After a change for the better it does not take as many messages again to see it."""
    latencies = Latencies()
    latencies.add(10.0, 100_000)
    for _ in range(20_000):
        latencies.add(0.01)
    assert latencies.snapshot().p50 == pytest.approx(0.01, rel=0.06)


@given(st.lists(st.floats(1e-4, 1_000.0), min_size=1, max_size=200))
def test_the_middle_is_the_middle(times: list[float]) -> None:
    """Of any times, in any order, to the width of a step."""
    latencies = Latencies()
    for seconds in times:
        latencies.add(seconds)
    latency = latencies.snapshot()
    assert latency.p50 == pytest.approx(statistics.median_low(times), rel=0.06)
    assert latency.p50 <= latency.p90 <= latency.p99
    assert min(times) * 0.94 <= latency.p99 <= max(times) * 1.06
