"""Delays of Spark on a subscription: from publishing to the table, and after a kill.

    python -m tests.bench.spark_delays localhost:PORT --sink source --folder FOLDER

`freshness` and `restart` are modes of tests/bench/spark_client.py. The program above is the query
that `restart` kills.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.subscriber.spark.processes import descendants, wait_until_gone

from .client import SUBSCRIPTION, Figures
from .publisher import READY

NAME = SUBSCRIPTION.format(0)
LINGER_MS = 100
LEASE = 10.0
PER_SECOND = 5_000

# Seconds of a freshness run that do not count: Java and the source start.
WARM_UP = 20.0

# Batches before a kill and after the restart, and seconds that they may take.
BATCHES = 5
TIMEOUT = 120.0


# ---- freshness -----------------------------------------------------------------------------------


def freshness(arguments: argparse.Namespace) -> Figures:
    """Measure the age of rows when the table has them, at a constant rate of messages.

    `late` is the 99th percentile of the ages divided by the linger time and three batches.
    """
    from pullstream.spark import IngestJob, run_ingest

    from .spark_client import session

    with session() as spark, TemporaryDirectory() as name:
        table = Path(name) / "table"
        job = IngestJob(
            subscription=NAME,
            to=str(table),
            format=arguments.sink,
            options={"endpoint": arguments.endpoint, "lingerMs": str(LINGER_MS)},
        )
        stop = threading.Event()
        progress: dict[int, Any] = {}
        seconds = arguments.messages / PER_SECOND

        def watch(report: Any) -> None:
            for query in spark.streams.active:
                progress.update({one.batchId: one for one in query.recentProgress})
            if report.seconds > WARM_UP + seconds:
                stop.set()

        with _publisher(arguments.endpoint):
            began = time.time() + WARM_UP
            run_ingest(job, spark=spark, stop=stop, watch=watch)
        ages = sorted(_ages(table, arguments.sink, began))
        batches = [one.durationMs["triggerExecution"] for one in progress.values() if _rows(one)]
        batch = statistics.median(batches)
        p99 = ages[len(ages) * 99 // 100] * 1e3
        return {
            "p50_ms": statistics.median(ages) * 1e3,
            "p99_ms": p99,
            "batch_ms": batch,
            "late": p99 / (LINGER_MS + 3 * batch),
        }


def _rows(progress: Any) -> int:
    return int(progress.numInputRows)


@contextmanager
def _publisher(endpoint: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.publisher", endpoint]
    command += ["--per-second", str(PER_SECOND), "--batch", "50"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == READY
        yield
    finally:
        process.kill()
        process.wait()


def _ages(table: Path, format: str, since: float) -> Iterator[float]:
    """Yield the ages in seconds of all rows at the commits of their files after a time."""
    import pyarrow as pa
    from pyarrow import parquet

    for committed, files in _commits(table, format):
        if committed < since:
            continue
        for file in files:
            column = parquet.read_table(file, columns=["publish_time"]).column(0)
            for published in column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist():
                yield committed - published / 1e6


def _commits(table: Path, format: str) -> Iterator[tuple[float, list[Path]]]:
    """Yield the time of each commit, and its files."""
    if format == "delta":
        for entry in sorted((table / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            files = [table / one["add"]["path"] for one in actions if "add" in one]
            yield entry.stat().st_mtime, files
    else:
        for entry in sorted((table / "_batches").glob("*.json")):
            named = json.loads(entry.read_text())["files"]
            yield entry.stat().st_mtime, [table / _path(one) for one in named]


def _path(file: Any) -> str:
    return str(file["path"] if isinstance(file, dict) else file)


# ---- restart -------------------------------------------------------------------------------------


def restart(arguments: argparse.Namespace) -> Figures:
    """Kill a driver, start it again, and measure the time until it has read a new batch.

    One lease is subtracted for the source: messages that the killed process held come again after
    it. With `files`, the query reads files that another process writes.
    """
    with TemporaryDirectory() as name, _publisher(arguments.endpoint):
        first = _query(arguments, name)
        _wait_for_batches(first, BATCHES)
        _kill(first)
        began = time.monotonic()
        second = _query(arguments, name)
        _wait_for_batches(second, 2)
        seconds = time.monotonic() - began
        _kill(second)
    lease = 0.0 if arguments.sink == "files" else LEASE
    return {"restart_s": seconds, "restart_beyond_lease_s": max(seconds - lease, 1.0)}


def _query(arguments: argparse.Namespace, folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.spark_delays", arguments.endpoint]
    command += ["--folder", folder, "--sink", arguments.sink]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _wait_for_batches(process: subprocess.Popen[str], count: int) -> None:
    """Wait until a query has printed lines for this number of batches."""
    timer = threading.Timer(TIMEOUT, lambda: _kill(process))
    timer.start()
    assert process.stdout is not None
    for _ in range(count):
        if not process.stdout.readline():
            sys.exit(f"the query has not read {count} batches")
    timer.cancel()


def _kill(process: subprocess.Popen[str]) -> None:
    family = [*descendants(process.pid), process.pid]
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    wait_until_gone(family)


def query(arguments: argparse.Namespace) -> None:
    """Run a query, which prints a line for each batch with rows, until this process is ended."""
    from .spark_client import session

    folder = Path(arguments.folder)
    with session() as spark:
        if arguments.sink == "files":
            (folder / "rows").mkdir(exist_ok=True)
            threading.Thread(target=_write_files, args=(folder / "rows",), daemon=True).start()
            reader = spark.readStream.format("text").load(str(folder / "rows"))
        else:
            reader = (
                spark.readStream.format("pubsub")
                .option("subscription", NAME)
                .option("endpoint", arguments.endpoint)
                .option("spoolDir", str(folder / "spool"))
                .option("lingerMs", str(LINGER_MS))
                .option("leaseSeconds", str(int(LEASE)))
                .load()
            )

        def handle(batch: Any, number: int) -> None:
            if batch.count():
                print(number, flush=True)

        writer = reader.writeStream.foreachBatch(handle)
        writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def _write_files(folder: Path) -> None:
    """Write a new file twice a second."""
    for number in range(100_000):
        new = folder / f".{os.getpid()}-{number}"
        new.write_text("a line\n" * (PER_SECOND // 2))
        new.rename(folder / f"{os.getpid()}-{number}.txt")
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--sink", choices=("source", "files"), required=True)
    query(parser.parse_args())


if __name__ == "__main__":
    main()
