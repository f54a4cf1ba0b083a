"""Medians, spreads, ratios, and missed floors."""

from __future__ import annotations

import itertools
import sys
import threading

import pytest

from tests.bench.arrival_cases import ArrivalWork
from tests.bench.arrival_client import MODES as ARRIVAL_MODES
from tests.bench.broker_cases import Work
from tests.bench.broker_client import MODES
from tests.bench.cases import CASES
from tests.bench.client import growth
from tests.bench.fetch_cases import FetchWork
from tests.bench.fetch_client import PEERS as FETCH_PEERS
from tests.bench.figures import KINDS, Summary, judge
from tests.bench.fixture_cases import FixtureWork
from tests.bench.fixture_client import MODES as FIXTURE_MODES
from tests.bench.listen_cases import ListenWork
from tests.bench.parked import MODES as PARKED_MODES
from tests.bench.peers import BARE, BARE_FUTURES, GO, OFFICIAL, OURS, PEERS, RUST, Counter
from tests.bench.publish_cases import PublishWork
from tests.bench.rows import Row
from tests.bench.spark_cases import SparkWork
from tests.bench.spark_client import MODES as SPARK_MODES
from tests.bench.spool_cases import SpoolWork
from tests.bench.spool_costs import SEGMENTS
from tests.bench.watch_cases import WatchWork
from tests.bench.watch_client import MODES as WATCH_MODES


def rates(*values: float) -> list[dict[str, float]]:
    return [{"rate": value} for value in values]


def test_a_benchmark_spread_is_half_the_range_divided_by_the_median() -> None:
    """The spread has the usual meaning of ±."""
    assert Summary.of([80.0, 100.0, 130.0]) == Summary(100.0, 0.25)
    assert Summary.of([]) is None


def test_a_benchmark_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    """The ratio of the medians would not do. A slow moment of the machine affects both alike."""
    rounds = {OURS: rates(100, 400, 1000), OFFICIAL: rates(50, 10, 100)}
    outcome = judge(Row("rate", against=OFFICIAL, at_least=10), rounds)
    assert outcome.ratio is not None
    assert outcome.ratio.median == 10
    assert outcome.met is True


def test_a_benchmark_run_with_a_third_of_the_peer_clients_latency_has_a_ratio_of_three() -> None:
    """A latency of a third is a ratio of three."""
    rounds = {OURS: [{"p50_ms": 2.0}], OFFICIAL: [{"p50_ms": 6.0}]}
    outcome = judge(Row("p50_ms", against=OFFICIAL, at_least=3.1), rounds)
    assert outcome.ratio is not None
    assert outcome.ratio.median == 3
    assert outcome.met is False


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row("cpu_micros", at_most=6.0), True),
        (Row("cpu_micros", at_most=5.9), False),
        (Row("rows", at_least=6.0), True),
        (Row("rows", at_least=6.1), False),
    ],
)
def test_a_benchmark_limit_without_a_peer_client_is_compared_with_the_measured_figure(
    row: Row, met: bool
) -> None:
    """A failed round misses the limit."""
    assert judge(row, {OURS: [{row.figure: 6.0}]}).met is met
    assert judge(row, {OURS: [{row.figure: 6.0}, {}]}).met is False
    assert judge(row, {OURS: [{}, {row.figure: 6.0}]}).met is False


def test_a_failed_benchmark_round_counts_as_a_missed_floor() -> None:
    """Either client may have failed. The ratio uses the rounds in which both have figures."""
    row = Row("rate", against=OFFICIAL, at_least=10)
    for rounds in (
        {OURS: [{}, *rates(100)], OFFICIAL: rates(10, 5)},
        {OURS: rates(100, 100), OFFICIAL: [{}, *rates(5)]},
    ):
        outcome = judge(row, rounds)
        assert outcome.ratio is not None
        assert outcome.ratio.median == 20
        assert outcome.met is False


def test_a_benchmark_floor_is_undecided_if_the_peer_client_is_not_installed() -> None:
    """The floor is neither met nor missed."""
    outcome = judge(Row("rate", against=OFFICIAL, at_least=10), {OURS: rates(100)})
    assert outcome.ratio is None
    assert outcome.met is None


def test_the_memory_growth_of_a_benchmark_run_divides_its_last_tenth_by_its_second_tenth() -> None:
    """The first memory of a process, and the memory in between, do not count."""
    memory = [(5, 1.0), (15, 10.0), (20, 12.0), (50, 99.0), (95, 11.0), (100, 22.0)]
    assert growth(memory, 100) == {"growth": 1.5}
    assert growth(memory[:4], 100) == {}


def test_each_row_of_a_benchmark_case_names_an_existing_run_and_a_known_figure() -> None:
    """Every run names a known client. A mistake is found before an hour of measuring."""
    for case in CASES:
        for row in case.rows:
            assert row.figure in KINDS
            assert {row.run, row.against or row.run} <= set(case.runs), case.name
            assert row.compare is None or row.compare in {other.name for other in CASES}
        for run in case.runs.values():
            match run:
                case Work():
                    assert run.mode in {"ready", *MODES}
                case ArrivalWork():
                    assert run.mode in ARRIVAL_MODES
                case ListenWork():
                    assert run.mode in {"latency", *PARKED_MODES}
                case SparkWork():
                    assert run.mode in SPARK_MODES
                case SpoolWork():
                    assert run.rows in SEGMENTS
                case FixtureWork():
                    assert run.mode in FIXTURE_MODES
                case FetchWork():
                    assert run.peer in FETCH_PEERS
                case WatchWork():
                    assert run.mode in WATCH_MODES
                case PublishWork():
                    assert run.peer in {OURS, OFFICIAL, BARE, BARE_FUTURES}
                case _:
                    assert run.peer in {*PEERS, GO, RUST}
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_benchmark_counter_counts_each_message_of_many_concurrent_threads_once() -> None:
    """Reading the counter changes nothing in it."""

    class Acknowledged:
        def ack(self) -> None:
            pass

    counter = Counter()

    def work() -> None:
        for _ in range(20_000):
            counter.callback(Acknowledged())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        looks = []
        while any(thread.is_alive() for thread in threads):
            looks.append(counter.read())
    finally:
        sys.setswitchinterval(interval)
    assert counter.read() == counter.read() == 160_000
    assert all(a <= b for a, b in itertools.pairwise(looks))
