"""Short runs of every kind, with real processes: figures are printed, failures reported."""

from __future__ import annotations

import pytest

from tests.bench.broker_cases import Work
from tests.bench.cases import Run
from tests.bench.fetch_cases import NATS, REDIS, FetchWork
from tests.bench.measure import Effort, Failed, measure, measure_case, missing
from tests.bench.peers import BARE, OURS
from tests.bench.rows import Case, Row
from tests.bench.servers import Broker, Feed
from tests.bench.spark_cases import SparkWork
from tests.bench.watch_cases import WatchWork

SHORT = Effort(rounds=1, seconds=0.2, idle_seconds=0.2)
ALWAYS = {"peak_mebibytes", "threads", "mebibytes"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "figures"),
    [
        (Run(OURS, Feed(), subscriptions=2), {"rate", "cpu_micros", "megabytes"}),
        (Run(BARE, Feed(per_response=100)), {"rate", "cpu_micros", "megabytes"}),
        (Run(OURS, Broker.OURS, mode="latency"), {"p50_ms", "p99_ms"}),
        (Run(OURS, Broker.OURS, mode="idle", subscriptions=2), {"idle_percent"}),
    ],
    ids=["feed", "bare", "latency", "idle"],
)
def test_each_mode_has_its_figures(run: Run, figures: set[str]) -> None:
    """Each mode also has the common figures, and all figures are plausible."""
    found = measure(run, SHORT)
    assert set(found) == figures | ALWAYS
    assert all(value > 0 for name, value in found.items() if name != "idle_percent")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "figures"),
    [
        (Work(Broker.OURS, "ready"), {"ready_ms", "resident_mebibytes"}),
        (Work(Broker.OURS, "publish", batch=10), {"rate"}),
        (Work(Broker.OURS, "deliver", messages=2_000, keys=10, streams=3), {"rate", "bytes_each"}),
        (Work(Broker.OURS, "receipt"), {"p50_ms", "p99_ms"}),
    ],
    ids=["ready", "publish", "deliver", "receipt"],
)
def test_a_broker_is_measured_by_a_bare_client(work: Work, figures: set[str]) -> None:
    """Each mode of the broker runs, also with keys and with idle streams."""
    found = measure(work, SHORT)
    assert set(found) == figures
    assert all(value > 0 for name, value in found.items() if name != "bytes_each")


@pytest.mark.slow
@pytest.mark.parametrize("server", [Feed(per_response=100), Broker.OURS], ids=["feed", "broker"])
def test_drained_messages_are_counted_exactly(server: Feed | Broker) -> None:
    """No message is lost or delivered twice, from a feed or a broker."""
    found = measure(Run(OURS, server, mode="drain", messages=30_000), SHORT)
    assert found["miscounted"] == 0
    assert found["rate"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "figures"),
    [
        (WatchWork("watch", messages=5_000), {"rate", "cpu_micros"}),
        (WatchWork("read", messages=5_000), {"rate", "cpu_micros"}),
        (WatchWork("latency", per_second=200), {"p50_ms", "p99_ms"}),
        (WatchWork("fan-out", topics=3), {"p50_ms", "p99_ms"}),
    ],
    ids=["watch", "read", "latency", "fan-out"],
)
def test_feeds_are_measured_with_our_client(work: WatchWork, figures: set[str]) -> None:
    """Each mode runs."""
    found = measure(work, SHORT)
    assert set(found) == figures
    assert all(value > 0 for value in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("peer", [OURS, NATS, REDIS])
def test_a_fetching_client_is_measured_against_its_own_broker(peer: str) -> None:
    """Ours always runs, and the others where they are installed."""
    work = FetchWork(peer, 100, 500)
    if reason := missing(work):
        pytest.skip(reason)
    assert measure(work, SHORT)["rate"] > 0


def test_a_run_that_fails_is_reported_and_leaves_no_figures() -> None:
    """A client that does not start affects only its own figures."""
    told: list[str] = []
    runs = {OURS: Run(OURS, Feed(per_response=3, total=10))}
    case = Case("broken", "", runs, (Row("rate"),))
    assert measure_case(case, SHORT, told.append) == {OURS: [{}]}
    (line,) = told
    assert line.startswith("broken: pullstream: ")


def test_a_clients_last_words_are_the_failure() -> None:
    """The error has no traceback of the benchmark."""
    with pytest.raises(Failed, match="invalid choice: 'nobody'"):
        measure(Run("nobody", Feed()), SHORT)


def test_messages_into_arrow_are_measured() -> None:
    """This is the only measurement of Spark's that needs no Spark."""
    pytest.importorskip("pyarrow")
    assert measure(SparkWork("convert", rows=100), SHORT)["rows"] > 0
