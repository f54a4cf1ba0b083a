"""Measurement of upserts: the driver's memory, and the time of a batch, by rows of the table.

Executors are separate processes, so that their memory does not count as the driver's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .client import Figures, Process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = (
    "id BIGINT NOT NULL, at TIMESTAMP, value STRING, pubsub_message_id STRING NOT NULL, "
    "pubsub_publish_time TIMESTAMP NOT NULL, _deleted BOOLEAN NOT NULL"
)
REQUIRED = {"id", "pubsub_message_id", "pubsub_publish_time", "_deleted"}
BATCHES = 3
# One key in fifty is new.
NEW_KEYS = 1.02
FILE_ROWS = 200_000


def upsert(arguments: argparse.Namespace) -> Figures:
    """Merge batches of `rows` changes all over a table of `messages` rows."""
    from pyspark.sql.types import StructType

    from pullstream.spark import local_session
    from pullstream.spark.ingest.columns import arrow_schema
    from pullstream.spark.ingest.merging_target import MergingTarget
    from pullstream.spark.tables.batch import BatchName
    from pullstream.spark.tables.delta import DeltaLakeTable
    from pullstream.spark.tables.iceberg import IcebergTable
    from pullstream.spark.tables.merge import MergeColumns
    from pullstream.spark.tables.table import write_files

    columns = MergeColumns(
        ("id",),
        ("at", "pubsub_publish_time", "pubsub_message_id"),
        frozenset({"pubsub_message_id"}),
    )
    with TemporaryDirectory() as folder:
        os.environ["SPARK_HOME"] = str(_home(Path(folder) / "spark"))
        config = {"spark.driver.memory": "1g", "spark.executor.memory": "2g"}
        spark = local_session("local-cluster[1,2,2048]", config=config)
        try:
            kind = DeltaLakeTable if arguments.sink == "delta" else IcebergTable
            table = kind(str(Path(folder) / "rows"))
            target = MergingTarget(table, columns)
            schema: Any = StructType.fromDDL(ROWS)
            target.open(spark, arrow_schema(schema, REQUIRED))
            filled = _changes(spark, arguments.messages, 0)
            files = write_files(
                table,
                filled.repartition(max(1, arguments.messages // FILE_ROWS)),
                BatchName("first", 1),
            )
            table.commit(files, BatchName("first", 1))
            seconds = []
            for number in range(1, BATCHES + 1):
                rows = _changes(spark, arguments.rows, number, arguments.messages)
                began = time.monotonic()
                target.write(rows, BatchName("changes", number)).commit()
                seconds.append(time.monotonic() - began)
            peaks = (Process.of(one).peak_mebibytes for one in (os.getpid(), *_java()))
            return {"driver_mebibytes": sum(peaks), "upsert_s": statistics.median(seconds)}
        finally:
            spark.stop()


def _home(folder: Path) -> Path:
    """Link the installed Spark under another name, because workers leave files in its home."""
    import pyspark

    folder.mkdir()
    for entry in Path(pyspark.__path__[0]).iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


def _changes(spark: Any, count: int, number: int, keys: int | None = None) -> DataFrame:
    """Return changes of scattered keys, or the first rows of a table."""
    found = "id" if keys is None else f"pmod(xxhash64(id, {number}), {int(keys * NEW_KEYS)})"
    frame: DataFrame = spark.range(count).selectExpr(
        f"{found} AS id",
        f"TIMESTAMP '2026-11-01 00:00:00' + INTERVAL '{number}' HOUR AS at",
        "sha1(CAST(id AS STRING)) AS value",
        "CAST(id AS STRING) AS pubsub_message_id",
        "TIMESTAMP '2026-11-01 00:00:00' AS pubsub_publish_time",
        "false AS _deleted",
    )
    return frame


def _java() -> list[int]:
    """Return the driver's Java process, which is the child of this one."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (one / "stat").read_text().partition("(")[2].rsplit(")", 1)
        except OSError:
            continue
        if name == "java" and int(rest.split()[1]) == os.getpid():
            found.append(int(one.name))
    return found
