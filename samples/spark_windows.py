"""Spark on a subscription: publish reports, and count them in windows of event time.

    make demo-spark        3,376 airports of the shipped file; each reports once

    publish -> subscription -> readStream -> windows with a watermark -> Parquet

Reports have one ordering key and arrive in the order of their time, except for some late ones.
Reports that are late by less than the watermark must be counted; reports that are much later must
not. One query reads the first half, and a second query reads the rest from the first one's
checkpoint. At the end the program compares the table with the published reports, and exits with 1
if a number is wrong.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions
from rich.console import Console
from rich.table import Table

from pullstream import PublisherClient, PublisherOptions, SubscriberClient
from pullstream.spark import local_session
from pullstream.types import PubsubMessage
from pullstream_emulator import Emulator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AIRPORTS = Path(__file__).parent / "data" / "airports.csv"
TOPIC = "projects/demo/topics/reports"
SUBSCRIPTION = "projects/demo/subscriptions/reports"

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
BETWEEN = timedelta(seconds=10)
WINDOW = timedelta(minutes=30)
WATERMARK = timedelta(minutes=20)
# One in this many reports is late, by this much: late ones are counted, too late ones are not.
LATE, LATE_BY = 7, timedelta(minutes=10)
TOO_LATE, TOO_LATE_BY = 401, timedelta(hours=5)
IN_A_REQUEST, IN_A_BATCH = 500, 600


class Report(NamedTuple):
    """A report of an airport.

    Attributes:
        state: The airport's state.
        time: Time of the report.
        counts: The report is early enough for its window.
    """

    state: str
    time: datetime
    counts: bool = True

    @property
    def window(self) -> datetime:
        """Begin of the window to which the report belongs."""
        return BEGIN + (self.time - BEGIN) // WINDOW * WINDOW

    @property
    def data(self) -> bytes:
        """The message for the report, in JSON."""
        return json.dumps({"state": self.state, "time": self.time.isoformat()}).encode()


def read_reports(path: Path) -> list[Report]:
    """Return one report for each line of the file, in the order of publishing."""
    with path.open(encoding="utf-8", newline="") as file:
        states = [row["state"] for row in csv.DictReader(file)]
    reports = []
    for number, state in enumerate(states):
        time = BEGIN + number * BETWEEN
        # During the first half no window is closed yet, so no report can be too late.
        if number > len(states) // 2 and number % TOO_LATE == 0:
            reports.append(Report(state, time - TOO_LATE_BY, counts=False))
        else:
            reports.append(Report(state, time - LATE_BY if number % LATE == LATE - 1 else time))
    return reports


def publish(broker: Emulator, reports: list[Report]) -> None:
    """Publish the reports, and wait until the broker has confirmed them."""
    ordered = PublisherOptions(enable_message_ordering=True)
    messages = [PubsubMessage(data=report.data, ordering_key="reports") for report in reports]
    with PublisherClient(publisher_options=ordered, endpoint=broker.endpoint) as publisher:
        publisher.publish_many(TOPIC, messages).result()


def counted(messages: DataFrame) -> DataFrame:
    """Count messages by window and state; the part that a notebook would contain."""
    return (
        messages.selectExpr("from_json(cast(data AS STRING), 'state STRING, time TIMESTAMP') AS r")
        .select("r.*")
        .withWatermark("time", f"{WATERMARK.seconds} seconds")
        .groupBy("state", functions.window("time", f"{WINDOW.seconds} seconds"))
        .count()
        .selectExpr("window.start AS window", "state", "count")
    )


def run_query(spark: SparkSession, broker: Emulator, folder: Path) -> int:
    """Read all available messages; return their number."""
    messages = (
        spark.readStream.format("pubsub")
        .option("subscription", SUBSCRIPTION)
        .option("endpoint", broker.endpoint)
        .option("spoolDir", str(folder / "spool"))
        .option("maxMessagesPerTrigger", IN_A_BATCH)
        .option("drainWaitMs", 500)
        .load()
    )
    query = (
        counted(messages)
        .writeStream.format("parquet")
        .option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def verify(
    spark: SparkSession, reports: list[Report], taken: int, left: int, folder: Path
) -> list[tuple[str, bool]]:
    """Return each check, and whether it passed."""
    rows = spark.read.parquet(str(folder / "table")).collect()
    found = {(row.window.replace(tzinfo=timezone.utc), row.state): row["count"] for row in rows}
    expected = Counter((one.window, one.state) for one in reports if one.counts)
    late = sum(not one.counts for one in reports)
    return [
        (f"every report read, once ({taken:,} of {len(reports):,})", taken == len(reports)),
        (f"no window and state twice ({len(rows) - len(found)})", len(rows) == len(found)),
        (f"every count right ({len(expected):,} windows and states)", found == expected),
        (f"{late} reports too late for their window, and left out", bool(late)),
        (f"all acknowledged ({left} left)", left == 0),
    ]


def main() -> int:
    """Publish and count both halves, and verify the table; return the exit code."""
    console = Console()
    reports = read_reports(AIRPORTS)
    # Spark closes the last window only when it sees a later time, so publish a later report.
    closing = Report("none", reports[-1].time + 2 * WINDOW + WATERMARK)
    with console.status("starting Spark"):
        spark = local_session("local[2]", config={"spark.sql.shuffle.partitions": "2"})
    with (
        TemporaryDirectory() as name,
        Emulator() as broker,
        PublisherClient(endpoint=broker.endpoint) as publisher,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        folder = Path(name)
        publisher.create_topic(name=TOPIC)
        # Without order, a report could come after the watermark has passed its window.
        client.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
        taken = 0
        half = len(reports) // 2
        for part in (reports[:half], reports[half:]):
            publish(broker, part)
            with console.status(f"{len(part):,} reports published; the query reads them"):
                taken += run_query(spark, broker, folder)
        publish(broker, [closing])
        run_query(spark, broker, folder)
        checks = verify(spark, reports, taken, broker.backlog(SUBSCRIPTION), folder)
        show(spark, folder, console)
    for promise, kept in checks:
        console.print(f"[green]  ok  {promise}" if kept else f"[bold red]BROKEN {promise}")
    return 0 if all(kept for _, kept in checks) else 1


def show(spark: SparkSession, folder: Path, console: Console) -> None:
    """Print the largest counts."""
    table = Table("window", "state", "reports", title="reports by half hour and state")
    rows = spark.read.parquet(str(folder / "table"))
    for row in rows.orderBy(rows["count"].desc(), "window", "state").limit(5).collect():
        table.add_row(f"{row.window:%Y-%m-%d %H:%M}", row.state, str(row["count"]))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
