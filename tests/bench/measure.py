"""Measures the runs of a case in turn, each in new processes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from . import fetch_cases, peers, servers
from .arrival_cases import ArrivalWork
from .broker_cases import Work
from .cases import Run
from .client import Figures, Process
from .fetch_cases import FetchWork
from .fetch_servers import serving_for
from .fixture_cases import FixtureWork
from .listen_cases import ListenWork
from .publish_cases import PublishWork
from .publisher import READY
from .rows import Case
from .servers import ROOT, Broker, Feed, NotStarted, PublishSink
from .spark_cases import SparkWork
from .spool_cases import SpoolWork
from .watch_cases import WatchWork

# In seconds, on top of the measuring time. The client's own limits are shorter; this one is for a
# client that hangs.
TIMEOUT = 600.0
PER_SECOND = 100
# Latencies are counted this many times longer than rates because of the 99th percentile.
LATENCY_TIMES = 4

# For each run, the figures of each round, empty if it failed. Runs that are impossible here are not
# in it.
Rounds = dict[str, list[Figures]]


AnyRun = (
    SpoolWork
    | Run
    | Work
    | SparkWork
    | FetchWork
    | WatchWork
    | ListenWork
    | ArrivalWork
    | PublishWork
    | FixtureWork
)


@dataclass(frozen=True)
class Effort:
    """The seconds to measure, and the `part` of the messages where they are counted."""

    rounds: int = 3
    seconds: float = 3.0
    idle_seconds: float = 60.0
    part: float = 1.0


QUICK = Effort(rounds=1, seconds=1.5, idle_seconds=5.0, part=0.1)


class Failed(Exception):
    """A run produced no figures."""


def missing(run: AnyRun) -> str | None:
    """Return the reason why that run is impossible here, or None."""
    if isinstance(run, (ListenWork, ArrivalWork, FixtureWork)):
        return None
    if isinstance(run, SpoolWork):
        return None if importlib.util.find_spec("pyarrow") else "pyarrow is not installed"
    if isinstance(run, SparkWork):
        if importlib.util.find_spec("pyspark") is None:
            return "pyspark is not installed"
        return peers.missing(peers.OFFICIAL) if run.mode == "loop" else None
    if isinstance(run, FetchWork):
        return fetch_cases.missing(run)
    if isinstance(run, WatchWork):
        return servers.missing(Broker.OURS)
    if isinstance(run, Work):
        return servers.missing(run.server)
    if isinstance(run, PublishWork):
        return peers.missing(run.peer)
    return peers.missing(run.peer) or servers.missing(run.server)


def measure_case(case: Case, effort: Effort, tell: Callable[[str], None]) -> Rounds:
    """Run all rounds of a case. A failed run is reported, and its figures are empty."""
    able = {name: run for name, run in case.runs.items() if missing(run) is None}
    taken: Rounds = {name: [] for name in able}
    for number in range(1 if case.once else effort.rounds):
        # Alternating, so that the same run is not always the first.
        for name in list(able)[:: -1 if number % 2 else 1]:
            try:
                taken[name].append(measure(able[name], effort))
            except Failed as failure:
                tell(f"{case.name}: {name}: {failure}")
                taken[name].append({})
    return taken


def measure(run: AnyRun, effort: Effort) -> Figures:
    """Return the figures of one run.

    Raises:
        Failed: The run produced no figures.
    """
    try:
        if isinstance(run, SparkWork):
            return _spark(run, effort)
        if isinstance(run, SpoolWork):
            return _spool(run)
        if isinstance(run, FixtureWork):
            return _fixture(run, effort)
        if isinstance(run, ListenWork):
            return _listen(run, effort)
        if isinstance(run, ArrivalWork):
            return _arrival(run)
        if isinstance(run, PublishWork):
            return _publish(run, effort)
        if isinstance(run, FetchWork):
            return _fetch(run, effort)
        if isinstance(run, WatchWork):
            return _watch(run, effort)
        return _work(run, effort) if isinstance(run, Work) else _run(run, effort)
    except (NotStarted, peers.BuildFailed, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error


def _spool(work: SpoolWork) -> Figures:
    # Imported here, because it needs pyarrow.
    from .spool_costs import RATE, simulate

    return {"requests": simulate(1, RATE, work.rows, work.acknowledge).total}


def _work(work: Work, effort: Effort) -> Figures:
    with servers.served(work.server) as server:
        if work.mode == "ready":
            resident = Process.of(server.pid).mebibytes
            return {"ready_ms": server.seconds * 1e3, "resident_mebibytes": resident}
        options = {
            "seconds": effort.seconds,
            "warm": work.warm * effort.part,
            "batch": work.batch,
            "messages": int(work.messages * effort.part),
            "deliver": int(work.deliver * effort.part),
            "keys": work.keys,
            "subscriptions": work.subscriptions,
            "streams": work.streams,
            "server-pid": server.pid,
        }
        command = [sys.executable, "-m", "tests.bench.broker_client", work.mode, server.endpoint]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        if isinstance(work.server, PublishSink):
            command.append("--bare")
        return _figures(command, effort.seconds + TIMEOUT)


def _run(run: Run, effort: Effort) -> Figures:
    messages = int(run.messages * effort.part)
    seconds = {"latency": effort.seconds * LATENCY_TIMES, "idle": effort.idle_seconds}.get(
        run.mode, effort.seconds
    )
    server = run.server
    if isinstance(server, Feed) and messages:
        server = replace(server, total=messages)
    command = peers.command(run.peer)
    options = ["--mode", run.mode, "--seconds", str(seconds), "--messages", str(messages)]
    options += ["--subscriptions", str(run.subscriptions), "--max-messages", str(run.max_messages)]
    with servers.serving(server) as endpoint, published(run, endpoint, messages):
        figures = _figures([*command, endpoint, *options], seconds + TIMEOUT)
    if "rate" in figures:
        size = server.size if isinstance(server, Feed) else run.size
        figures["megabytes"] = figures["rate"] * size / 1e6
    return figures


def _spark(work: SparkWork, effort: Effort) -> Figures:
    # At least three batches, because the first is not counted.
    messages = max(int(work.messages * effort.part), 3 * work.rows if work.messages else 0)
    command = [sys.executable, "-m", "tests.bench.spark_client", work.mode]
    options = ["--sink", work.sink, "--rows", str(work.rows), "--messages", str(messages)]
    options += ["--earlier", str(work.earlier), "--receivers", str(work.receivers)]
    options += ["--tuned"] if work.tuned else []
    if not work.needs_broker:
        return _figures([*command, *options], TIMEOUT)
    with servers.served(Broker.OURS) as broker:
        options += ["--broker-pid", str(broker.pid)]
        if not work.has_publisher:
            publisher = [sys.executable, "-m", "tests.bench.publisher", broker.endpoint]
            backlog = ["--messages", str(messages), "--attributes", "2"]
            with servers.running([*publisher, *backlog], READY, TIMEOUT):
                pass
        return _figures([*command, broker.endpoint, *options], TIMEOUT)


def _fetch(work: FetchWork, effort: Effort) -> Figures:
    command = [sys.executable, "-m", "tests.bench.fetch_client", work.peer]
    options = ["--messages", str(int(work.messages * effort.part)), "--batch", str(work.batch)]
    with serving_for(work) as endpoint:
        return _figures([*command, endpoint, *options], TIMEOUT)


def _watch(work: WatchWork, effort: Effort) -> Figures:
    command = [sys.executable, "-m", "tests.bench.watch_client", work.mode]
    options = ["--seconds", str(effort.seconds), "--topics", str(work.topics)]
    options += ["--messages", str(int(work.messages * effort.part))]
    with servers.serving(Broker.GRPC_ONLY) as endpoint, ExitStack() as stack:
        if work.per_second:
            publisher = [sys.executable, "-m", "tests.bench.publisher", endpoint]
            publisher += ["--subscriptions", "0", "--per-second", str(work.per_second)]
            stack.enter_context(servers.running(publisher, READY))
        return _figures([*command, endpoint, *options], effort.seconds + TIMEOUT)


def _listen(work: ListenWork, effort: Effort) -> Figures:
    options = ["--subscribers", str(work.subscribers)]
    if not work.needs_broker:
        return _figures([sys.executable, "-m", "tests.bench.parked", work.mode, *options], TIMEOUT)
    command = [sys.executable, "-m", "tests.bench.listen_client", work.mode]
    options += ["--seconds", str(effort.seconds)]
    with servers.serving(Broker.GRPC_ONLY) as endpoint:
        return _figures([*command, endpoint, *options], TIMEOUT)


def _arrival(work: ArrivalWork) -> Figures:
    command = [sys.executable, "-m", "tests.bench.arrival_client", work.mode]
    with servers.serving(work.server) as endpoint:
        return _figures([*command, endpoint, "--clients", str(work.clients)], TIMEOUT)


def _publish(work: PublishWork, effort: Effort) -> Figures:
    command = [sys.executable, "-m", "tests.bench.publish_client", work.peer]
    options = ["--mode", work.mode, "--batch", str(work.batch), "--keys", str(work.keys)]
    options += ["--seconds", str(effort.seconds)]
    server = Broker.OURS if work.on_broker else PublishSink(work.latency)
    with servers.serving(server) as endpoint:
        if work.on_broker:
            with servers.running([sys.executable, "-m", "tests.bench.publisher", endpoint], READY):
                pass
        return _figures([*command, endpoint, *options], effort.seconds + TIMEOUT)


def _fixture(work: FixtureWork, effort: Effort) -> Figures:
    command = [sys.executable, "-m", "tests.bench.fixture_client", work.mode]
    return _figures([*command, "--tests", str(int(work.tests * effort.part))], TIMEOUT)


def _figures(command: Sequence[str], timeout: float) -> Figures:
    """Return the figures that a program of the benchmark prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise Failed((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1])
    figures: Figures = json.loads(done.stdout)
    return figures


@contextmanager
def published(run: Run, endpoint: str, messages: int) -> Iterator[None]:
    """Prepare a broker for a run, with a publisher during the block if the run needs one.

    A feed needs neither.
    """
    if isinstance(run.server, Feed):
        yield
        return
    command = [sys.executable, "-m", "tests.bench.publisher", endpoint]
    command += ["--subscriptions", str(run.subscriptions), "--messages", str(messages)]
    command += ["--size", str(run.size)]
    if run.mode == "latency":
        command += ["--per-second", str(PER_SECOND)]
    with servers.running(command, READY):
        yield
