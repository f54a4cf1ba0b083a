"""A subscription becomes a Delta table while messages arrive, and the lag is drawn.

    make demo-spark        3,376 airports of the shipped file; each reports once

    publish -> subscription -> two receivers -> the ingestion job -> a Delta table by day

The reports arrive in bursts. Two receivers, which run as tasks of Spark, take them for the job. One
job writes the first half and is stopped, and a second one continues from its state. At the end the
program compares the table with the published reports, and exits with 1 if one is missing or twice.
"""

from __future__ import annotations

import csv
import json
import sys
import threading
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from pullstream import PublisherClient, SubscriberClient
from pullstream.spark import IngestJob, IngestReport, local_session, run_ingest
from pullstream.types import PubsubMessage
from pullstream_emulator import Emulator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AIRPORTS = Path(__file__).parent / "data" / "airports.csv"
TOPIC = "projects/demo/topics/reports"
SUBSCRIPTION = "projects/demo/subscriptions/reports"
SCHEMA = "code STRING NOT NULL, state STRING, time TIMESTAMP"

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
BETWEEN = timedelta(minutes=1)
# Each one needs a core, and the query one more.
RECEIVERS = 2
# Messages in a burst, and the seconds between two bursts.
BURST, PAUSE = 170, 0.5

# The picture: its characters from low to high, and its width.
LEVELS, WIDTH = " ▁▂▃▄▅▆▇█", 72


def read_reports(path: Path) -> list[bytes]:
    """Return one report for each line of the file, in JSON."""
    with path.open(encoding="utf-8", newline="") as file:
        airports = list(csv.DictReader(file))
    return [
        json.dumps(
            {
                "code": airport["iata"],
                "state": airport["state"],
                "time": (BEGIN + number * BETWEEN).isoformat(),
            }
        ).encode()
        for number, airport in enumerate(airports)
    ]


def publish(broker: Emulator, reports: list[bytes], ended: threading.Event) -> None:
    """Publish the reports in bursts, and say when all are confirmed."""
    pause = threading.Event()
    with PublisherClient(endpoint=broker.endpoint) as publisher:
        for start in range(0, len(reports), BURST):
            burst = [PubsubMessage(data=data) for data in reports[start : start + BURST]]
            publisher.publish_many(TOPIC, burst).result()
            pause.wait(PAUSE)
    ended.set()


def run_job(
    spark: SparkSession, broker: Emulator, folder: Path, reports: list[bytes], lags: list[float]
) -> IngestReport:
    """Publish the reports while a job writes them, and stop the job when all are in the table."""
    published, stop = threading.Event(), threading.Event()
    publishing = threading.Thread(target=publish, args=(broker, reports, published))

    def watch(report: IngestReport) -> None:
        if report.totals.batches or report.lag:
            lags.append(report.lag)
        if published.is_set() and report.totals.rows >= len(reports):
            stop.set()

    job = IngestJob(
        subscription=SUBSCRIPTION,
        to=str(folder / "reports"),
        format="delta",
        decode="json",
        schema=SCHEMA,
        partition_by=("day(time)",),
        receivers=RECEIVERS,
        options={"endpoint": broker.endpoint, "lingerMs": "300"},
    )
    publishing.start()
    try:
        return run_ingest(job, spark=spark, stop=stop, watch=watch)
    finally:
        publishing.join()


def picture(values: list[float]) -> str:
    """Return numbers as one line of bars; each bar is the greatest of its part."""
    width = min(WIDTH, len(values))
    parts = [
        max(values[at * len(values) // width : (at + 1) * len(values) // width])
        for at in range(width)
    ]
    top = max(parts, default=0.0) or 1.0
    return "".join(LEVELS[round(part / top * (len(LEVELS) - 1))] for part in parts)


def main() -> int:
    """Ingest both halves, show the table and the lag, and verify; return the exit code."""
    console = Console()
    reports = read_reports(AIRPORTS)
    with console.status("starting Spark"):
        spark = local_session(f"local[{RECEIVERS + 2}]")
    lags: list[float] = []
    with (
        TemporaryDirectory() as name,
        Emulator() as broker,
        PublisherClient(endpoint=broker.endpoint) as publisher,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        folder = Path(name)
        publisher.create_topic(name=TOPIC)
        client.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})
        half = len(reports) // 2
        rows = 0
        for part in (reports[:half], reports[half:]):
            with console.status(f"{len(part):,} reports are published; the job writes them"):
                rows += run_job(spark, broker, folder, part, lags).totals.rows
        table = DeltaTable(folder / "reports")
        found = table.to_pyarrow_table()
        show(table, found, console)
        left = unacknowledged(broker)
    console.print(f"lag of the job, at most {max(lags, default=0.0):.1f} s:")
    console.print(f"[cyan]{picture(lags)}")
    expected = Counter(json.loads(report)["code"] for report in reports)
    checks = [
        (f"every report in the table, once ({found.num_rows:,})", expected == codes_in(found)),
        (f"counted by the two jobs ({rows:,})", rows == len(reports)),
        (f"all acknowledged ({left} left)", left == 0),
    ]
    for promise, kept in checks:
        console.print(f"[green]  ok  {promise}" if kept else f"[bold red]BROKEN {promise}")
    return 0 if all(kept for _, kept in checks) else 1


def unacknowledged(broker: Emulator) -> int:
    """Return the backlog when the receivers have ended, for which they have 10 seconds."""
    pause = threading.Event()
    for _ in range(100):
        if not broker.backlog(SUBSCRIPTION):
            break
        pause.wait(0.1)
    return broker.backlog(SUBSCRIPTION)


def codes_in(found: pa.Table) -> Counter[str]:
    """Return how often each airport is in the table."""
    return Counter(found.column("code").to_pylist())


def show(table: DeltaTable, found: pa.Table, console: Console) -> None:
    """Print the files and rows of each day."""
    view = Table("day", "rows", "files", title=f"the Delta table, version {table.version()}")
    rows = Counter(found.column("time_day").to_pylist())
    paths = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
    files = Counter(path.partition("/")[0].partition("=")[2] for path in paths)
    for day in sorted(rows):
        view.add_row(f"{day}", f"{rows[day]:,}", str(files[str(day)]))
    console.print(view)


if __name__ == "__main__":
    sys.exit(main())
