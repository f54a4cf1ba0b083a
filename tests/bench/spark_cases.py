"""The cases of the Spark source and the ingestion job, compared with alternatives."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .rows import Case, Row

FILES = "the same rows from files"
# Our driver and executors must take at most 1 / 0.85 of its CPU: no source in Python takes less.
BARE = "a bare source in Python"
LOOP = "a loop of pulls"
OURS = "pullstream"


@dataclass(frozen=True)
class SparkWork:
    """One program of tests/bench/spark_client.py. The fields are its options.

    Attributes:
        rows: The rows of a batch.
        messages: The messages of all batches, the first of which is not counted.
        earlier: The commits that the table has before.
        receivers: The receivers outside of Spark.
        tuned: Whether the settings of the cluster are made by hand.
    """

    mode: str
    sink: str = "noop"
    rows: int = 10_000
    messages: int = 0
    earlier: int = 0
    receivers: int = 1
    tuned: bool = False

    @property
    def needs_broker(self) -> bool:
        return self.mode not in ("files", "bare", "convert", "upsert", "commits")

    @property
    def has_publisher(self) -> bool:
        """Whether messages are published during the work, and not before."""
        return self.mode in ("freshness", "restart")


GROUP = "Spark"
# Java warms up for half a minute, and its compilers take a quarter of the machine. There are enough
# large batches to make this a small part of the time.
FEW = 1_000
LARGE = 50_000
MESSAGES = {FEW: 30_000, 10_000: 600_000, LARGE: 1_500_000}


def streamed(rows: int, sink: str, *figures: Row, loop: bool = False) -> Case:
    """Return a case: our stream, and one of the same rows from files, into the same sink."""
    ours = SparkWork("stream", sink, rows, MESSAGES[rows])
    runs = {OURS: ours, FILES: replace(ours, mode="files")}
    if loop:
        runs[LOOP] = replace(ours, mode="loop")
    if rows == LARGE:
        runs[BARE] = replace(ours, mode="bare")
    # The time of a batch with few rows is Spark's own, and the first measurement shows it.
    once = rows == FEW
    return Case(f"Spark, {rows:,} rows a batch to {sink}", GROUP, runs, figures, once=once)


PARQUET = "the same job to Parquet"


def ingested(format: str) -> Case:
    """Return a case: batches 500 to 520 of a table of this format, and of a Parquet folder."""
    job = SparkWork("job", format, 50_000, 1_000_000, earlier=500)
    return Case(
        f"ingest, 50,000 rows a batch to {format} after 500 others",
        GROUP,
        {OURS: job, PARQUET: replace(job, sink="parquet")},
        (Row("rows", against=PARQUET, at_least=0.75), Row("miscounted", at_most=0)),
    )


def committed(format: str) -> Case:
    """Return a case: commits 1,900 to 2,000 of a table, and commits 20 to 120."""
    rows = (Row("commit_ms"), Row("commit_growth", at_most=1.5), Row("commit_cpu_growth"))
    work = {OURS: SparkWork("commits", format)}
    return Case(f"2,000 commits to {format}", GROUP, work, rows, once=True)


SMALL = "into 1,000,000 rows"


def upserts(format: str) -> Case:
    """Return a case: the same changes into a large table and into a small one."""
    large = SparkWork("upsert", format, 50_000, 5_000_000)
    # The driver may have at most 1.2 times the memory, and a ratio is better if it is greater.
    memory = Row("driver_mebibytes", against=SMALL, at_least=1 / 1.2)
    return Case(
        f"50,000 upserts into 5,000,000 rows of {format}",
        GROUP,
        {OURS: large, SMALL: replace(large, messages=1_000_000)},
        (memory, Row("upsert_s", against=SMALL)),
    )


def fresh(format: str) -> Case:
    """Return a case: the age of rows at 5,000 messages a second for half a minute."""
    return Case(
        f"freshness at 5,000 messages/s, ingest to {format}",
        GROUP,
        {OURS: SparkWork("freshness", format, messages=150_000)},
        (Row("p50_ms"), Row("p99_ms"), Row("batch_ms"), Row("late", at_most=1)),
    )


RESTARTED = Case(
    "a query after kill -9",
    GROUP,
    {OURS: SparkWork("restart", "source"), FILES: SparkWork("restart", "files")},
    (Row("restart_s"), Row("restart_beyond_lease_s", against=FILES, at_least=1 / 1.5)),
)

ONE = "one receiver"
TWO_RECEIVERS = Case(
    "two receivers, 10,000 rows a segment",
    GROUP,
    {
        OURS: SparkWork("receivers", rows=10_000, messages=1_000_000, receivers=2),
        ONE: SparkWork("receivers", rows=10_000, messages=1_000_000),
    },
    # A row takes at most 1.2 times the CPU.
    (Row("receiver_micros", against=ONE, at_least=1 / 1.2),),
)

TUNED = "tuned by hand"
CLUSTER = Case(
    "ingest on a standalone cluster, 50,000 rows a batch",
    GROUP,
    {
        OURS: SparkWork("cluster", rows=50_000, messages=1_500_000),
        TUNED: SparkWork("cluster", rows=50_000, messages=1_500_000, tuned=True),
    },
    (Row("rows", against=TUNED, at_least=0.85),),
)

BATCH = Row("batch_ms", against=FILES)
WORKER = Row("worker_micros")
CPU = (
    WORKER,
    Row("broker_micros"),
    Row("executor_micros", against=FILES),
    Row("rows", against=BARE),
    Row("executor_micros", against=BARE, at_least=0.85),
)

SPARK_CASES = (
    streamed(1_000, "noop", Row("rows", against=FILES), BATCH),
    streamed(10_000, "noop", Row("rows", against=FILES), BATCH, WORKER),
    streamed(
        LARGE,
        "noop",
        Row("rows", at_least=80_000),
        Row("rows", against=FILES, at_least=0.45),
        BATCH,
        *CPU,
    ),
    streamed(1_000, "parquet", Row("rows", against=FILES), BATCH),
    streamed(
        10_000,
        "parquet",
        Row("rows", against=LOOP, at_least=3),
        Row("rows", against=FILES),
        BATCH,
        loop=True,
    ),
    streamed(
        LARGE,
        "parquet",
        Row("rows", at_least=50_000),
        Row("rows", against=FILES, at_least=0.57),
        BATCH,
        *CPU,
    ),
    Case(
        "messages into Arrow",
        GROUP,
        {OURS: SparkWork("convert", rows=4_096)},
        (Row("rows", at_least=200_000),),
    ),
    Case(
        "ingest, 1,000,000 messages",
        GROUP,
        {OURS: SparkWork("job", "parquet", 50_000, 1_000_000)},
        (Row("rows"), Row("batch_ms"), WORKER, Row("miscounted", at_most=0)),
        once=True,
    ),
    ingested("delta"),
    ingested("iceberg"),
    committed("delta"),
    committed("iceberg"),
    upserts("delta"),
    upserts("iceberg"),
    fresh("parquet"),
    fresh("delta"),
    RESTARTED,
    TWO_RECEIVERS,
    CLUSTER,
)
