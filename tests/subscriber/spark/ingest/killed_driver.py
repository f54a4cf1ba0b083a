"""Drivers that die at a step of a batch. Run as a program by `Drivers`.

A driver is a process that writes batches by a Spark that runs already. So it needs no time to start
Java, and it dies as a real process does: nothing is cleaned up. The program imports everything
once, and forks a driver for each line of its input.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pullstream.spark import IngestJob
from pullstream.spark.datasource.source import message_columns
from pullstream.spark.ingest import merging_target
from pullstream.spark.ingest.batch_handler import BatchHandler
from pullstream.spark.ingest.columns import message_schema
from pullstream.spark.ingest.preparation import Rows, tables_for
from pullstream.spark.tables import table as tables
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.delta_log import DeltaLog
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.iceberg import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[4]
SOURCE = "0" * 32
SUBSCRIPTION = "projects/p/subscriptions/rows"
SCHEMA = "id BIGINT NOT NULL, country STRING, key INT"
PUBLISHED = datetime(2026, 11, 1, tzinfo=timezone.utc)

# Messages of a batch that can be decoded. Each batch has another one that cannot.
ROWS = 3

APPENDS = ("parquet", "delta", "iceberg")
UPSERTS = ("delta upserts", "iceberg upserts")
KINDS = (*APPENDS, *UPSERTS)


@dataclass(frozen=True)
class Step:
    """A moment of a batch at which a driver can die.

    Attributes:
        name: The state at this moment.
        places: For some kinds of tables, the owner and the name of a function.
        is_after: Whether the driver dies after the call, and not before it.
        call: The number of the call in a batch, from 1. The rows are written first, then the bad
            records; the bad records are committed first, then the rows.
    """

    name: str
    places: dict[str, tuple[Any, str]]
    is_after: bool = False
    call: int = 1


_FILES = {
    **dict.fromkeys(APPENDS, (tables, "written_files")),
    **dict.fromkeys(UPSERTS, (merging_target, "written_files")),
}
_BAD_COMMIT = {
    "parquet": (FileTable, "commit"),
    **dict.fromkeys(("delta", "delta upserts"), (DeltaLakeTable, "commit")),
    **dict.fromkeys(("iceberg", "iceberg upserts"), (IcebergTable, "commit")),
}
# A list of files, and an entry of Delta's log, are written under another name first.
_LINK = dict.fromkeys(("parquet", "delta", "delta upserts"), (os, "link"))
_CATALOG = dict.fromkeys(("iceberg", "iceberg upserts"), (SqlCatalog, "commit_table"))
_METADATA = dict.fromkeys(("iceberg", "iceberg upserts"), (SqlCatalog, "_write_metadata"))
_AFTERWARDS = {
    "parquet": (FileTable, "delete_unlisted"),
    **dict.fromkeys(("delta", "delta upserts"), (DeltaLog, "add_checkpoint")),
}
_BATCH = dict.fromkeys(KINDS, (BatchHandler, "_write"))

STEPS = (
    Step("nothing is written", _BATCH),
    Step("executors have written the files", _FILES),
    Step("the files of the bad records are written", _BAD_COMMIT),
    Step("the bad records are committed", _BAD_COMMIT, is_after=True),
    Step("Iceberg's manifests are written", _CATALOG, call=2),
    Step("Iceberg's metadata is written", _METADATA, is_after=True, call=2),
    Step("the catalog has the metadata", _CATALOG, is_after=True, call=2),
    Step("the list or the version is written under another name", _LINK, call=2),
    Step("the list or the version is there", _LINK, is_after=True, call=2),
    Step("the work after the commit begins", _AFTERWARDS, call=2),
    Step("Spark has not committed the batch", _BATCH, is_after=True),
)


class Drivers:
    """Starts drivers, one after the other.

    Args:
        spark: The session whose Java they use.
        log: The file for their errors.
    """

    def __init__(self, spark: SparkSession, log: Path) -> None:
        context: Any = spark.sparkContext
        parameters = context._gateway.gateway_parameters
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.subscriber.spark.ingest.killed_driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYSPARK_GATEWAY_PORT": str(parameters.port),
                    "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
                },
            )

    def run(self, kind: str, folder: Path, batches: Sequence[tuple[int, str | None]]) -> bool:
        """Let a new driver write batches; return whether it was killed.

        Args:
            kind: One of KINDS.
            folder: The folder of the table.
            batches: The numbers of the batches, and for each the step at which the driver dies.

        Raises:
            AssertionError: The driver has ended in another way.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, str(folder), batches]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, -signal.SIGKILL), self._log.read_text()[-5000:]
        return code != 0

    def end(self) -> None:
        """End the program."""
        self._process.communicate()


def ids_of(number: int) -> list[int]:
    """Return the ids of the rows of a batch."""
    return [number * 100 + row for row in range(ROWS)]


def key_of(id: int) -> int:
    """Return the key of a row: all but the first one of a batch replace rows of the last batch."""
    return id if id % 100 == 0 else id % 100


def main() -> None:
    # No test here cuts the power.
    os.fsync = lambda fd: None
    for line in sys.stdin:
        kind, folder, batches = json.loads(line)
        driver = os.fork()
        if driver == 0:
            code = 1
            try:
                _drive(kind, folder, batches)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(driver, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _drive(kind: str, folder: str, batches: Sequence[tuple[int, str | None]]) -> None:
    spark = _attached()
    format, _, upserts = kind.partition(" ")
    job = IngestJob(
        subscription=SUBSCRIPTION,
        to=folder,
        format=format,
        decode="json",
        schema=SCHEMA,
        merge_on=("key",) if upserts else (),
        latest_by="id" if upserts else None,
    )
    decoding = job.decoding()
    messages = message_schema(job)
    rows = Rows.of(decoding, decoding.columns(messages), decoding.bad_columns(messages))
    targets = tables_for(job, rows)
    targets.open(spark, rows)
    handler = BatchHandler(decoding, *targets, name=lambda number: BatchName(SOURCE, number))
    for number, name in batches:
        batch = _messages(spark, number)
        if name is not None:
            (step,) = (one for one in STEPS if one.name == name)
            _let_die(kind, step)
        handler(batch, number)


def _attached() -> SparkSession:
    """Return a session of the running Java, which the environment names."""
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    conf = SparkConf(_jconf=java.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf))


def _messages(spark: SparkSession, number: int) -> DataFrame:
    """Return the messages of a batch."""
    data = [
        json.dumps({"id": id, "country": "DE", "key": key_of(id)}).encode() for id in ids_of(number)
    ]
    data.append(f"bad {number}".encode())
    schema = message_columns({})
    rows = [
        {
            "message_id": str(number * 100 + index),
            "data": one,
            "attributes": {},
            "ordering_key": "",
            "publish_time": PUBLISHED + timedelta(seconds=number),
        }
        for index, one in enumerate(data)
    ]
    # From Arrow, Java has the rows without a Python worker.
    columns = to_arrow_schema(schema, timezone="UTC")
    return spark.createDataFrame(pa.Table.from_pylist(rows, columns), schema)


def _let_die(kind: str, step: Step) -> None:
    """Let this process die at the step."""
    owner, name = step.places[kind]
    original = getattr(owner, name)
    calls = 0

    def patched(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        is_last = calls == step.call
        if is_last and not step.is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(patched) if is_static else patched)


if __name__ == "__main__":
    main()
