"""Short runs of every kind, with real processes: figures are printed, failures reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.bench.broker_cases import Work
from tests.bench.cases import Run
from tests.bench.fetch_cases import NATS, REDIS, FetchWork
from tests.bench.fixture_cases import FixtureWork
from tests.bench.measure import Effort, Failed, measure, measure_case, missing
from tests.bench.peers import BARE, BARE_ACKS, BARE_FUTURES, COLUMNS, GO, OURS
from tests.bench.publish_cases import PublishWork
from tests.bench.rows import Case, Row
from tests.bench.servers import Broker, Feed, PublishSink
from tests.bench.spark_cases import SparkWork
from tests.bench.watch_cases import WatchWork

SHORT = Effort(rounds=1, seconds=0.2, idle_seconds=0.2)
ALWAYS = {"peak_mebibytes", "threads", "mebibytes"}


RATE = {"rate", "cpu_micros"}
PUBLISH = RATE | {"client_cores"}
LATENCY = {"p50_ms", "p99_ms"}
AnyWork = Run | Work | WatchWork | PublishWork | FixtureWork
RUNS: dict[str, tuple[AnyWork, set[str]]] = {
    "feed": (Run(OURS, Feed(), subscriptions=2), RATE | ALWAYS | {"megabytes"}),
    "bare": (Run(BARE, Feed(per_response=100)), RATE | ALWAYS | {"megabytes"}),
    "columns": (Run(COLUMNS, Feed(per_response=100)), RATE | ALWAYS | {"megabytes"}),
    "bare with acks": (Run(BARE_ACKS, Feed(per_response=100)), RATE | ALWAYS | {"megabytes"}),
    "latency": (Run(OURS, Broker.OURS, mode="latency"), LATENCY | ALWAYS),
    "idle": (
        Run(OURS, Broker.OURS, mode="idle", subscriptions=2),
        ALWAYS | {"idle_percent"},
    ),
    "broker-ready": (Work(Broker.OURS, "ready"), {"ready_ms", "resident_mebibytes"}),
    "broker-publish": (Work(Broker.OURS, "publish", batch=10), PUBLISH),
    "broker-bare": (Work(PublishSink(), "publish", batch=10), PUBLISH),
    "broker-large-requests": (Work(Broker.GRPC_ONLY, "publish", batch=1000), PUBLISH),
    "broker-earlier": (Work(Broker.EARLIER, "publish", batch=10), PUBLISH),
    "broker-sqlite-load": (Work(Broker.WITH_SQLITE_LOAD, "publish", batch=10), PUBLISH),
    "broker-deliver": (
        Work(Broker.OURS, "deliver", messages=2_000, keys=10, streams=3),
        RATE | {"bytes_each"},
    ),
    "broker-receipt": (Work(Broker.OURS, "receipt"), LATENCY),
    "publish": (PublishWork(OURS, batch=10, keys=5), RATE),
    "publish-many": (PublishWork(OURS, "many", 1000), RATE),
    "publish-bare": (PublishWork(BARE), RATE),
    "publish-bare-futures": (PublishWork(BARE_FUTURES), RATE),
    "publish-one": (PublishWork(OURS, "one", on_broker=True), LATENCY),
    "publish-await": (PublishWork(OURS, "await", on_broker=True), RATE),
    "watch": (WatchWork("watch", messages=5_000), RATE),
    "watch-read": (WatchWork("read", messages=5_000), RATE),
    "watch-latency": (WatchWork("latency", per_second=200), LATENCY),
    "fixture": (FixtureWork("own", 20), {"fixture_ms", "fixture_cpu_ms", "plugin_ms"}),
    "watch-fan-out": (WatchWork("fan-out", topics=3), LATENCY),
    "watch-bare-fan-out": (WatchWork("bare-fan-out", topics=3), LATENCY),
}


@pytest.mark.slow
@pytest.mark.parametrize(("run", "figures"), RUNS.values(), ids=RUNS)
def test_each_benchmark_mode_measures_a_plausible_value_for_each_of_its_figures(
    run: AnyWork, figures: set[str]
) -> None:
    """Clients, the broker with a bare client, and feeds are measured. All figures are plausible."""
    found = measure(run, SHORT)
    assert set(found) == figures
    # A run may use no CPU time when idle, and no memory for each message.
    may_be_zero = {Run: "idle_percent", Work: "bytes_each"}.get(type(run))
    assert all(value > 0 for name, value in found.items() if name != may_be_zero)


@pytest.mark.slow
@pytest.mark.parametrize("server", [Feed(per_response=100), Broker.OURS], ids=["feed", "broker"])
def test_a_drain_benchmark_measures_neither_lost_nor_duplicate_messages(
    server: Feed | Broker,
) -> None:
    """No message is lost or delivered twice, from a feed or a broker."""
    found = measure(Run(OURS, server, mode="drain", messages=30_000), SHORT)
    assert found["miscounted"] == 0
    assert found["rate"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("peer", [OURS, NATS, REDIS])
def test_the_benchmark_measures_the_fetch_rate_of_each_installed_client(peer: str) -> None:
    """Ours always runs, and the others where they are installed."""
    work = FetchWork(peer, 100, 500)
    if reason := missing(work):
        pytest.skip(reason)
    assert measure(work, SHORT)["rate"] > 0


def test_a_client_in_go_is_left_out_where_go_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report says why."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert missing(Run(GO, Feed())) == "Go is not installed"


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
def test_a_client_that_cannot_be_built_has_no_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error has the compiler's text."""
    (tmp_path / "go").mkdir()
    monkeypatch.setattr("tests.bench.peers.SOURCES", tmp_path)
    with pytest.raises(Failed, match="Google's Go client cannot be built: "):
        measure(Run(GO, Feed()), SHORT)


def test_a_failed_benchmark_run_is_reported_as_an_error_and_has_no_figures() -> None:
    """A client that does not start affects only its own figures."""
    told: list[str] = []
    runs = {OURS: Run(OURS, Feed(per_response=3, total=10))}
    case = Case("broken", "", runs, (Row("rate"),))
    assert measure_case(case, SHORT, told.append) == {OURS: [{}]}
    (line,) = told
    assert line.startswith("broken: pullstream: ")


def test_the_error_of_a_failed_benchmark_run_is_the_last_output_line_of_its_client() -> None:
    """The error has no traceback of the benchmark."""
    with pytest.raises(Failed, match="invalid choice: 'nobody'"):
        measure(Run("nobody", Feed()), SHORT)


def test_the_benchmark_measures_the_rate_of_converting_messages_to_arrow() -> None:
    """The conversion is the only measurement of Spark's that needs no Spark."""
    pytest.importorskip("pyarrow")
    assert measure(SparkWork("convert", rows=100), SHORT)["rows"] > 0
