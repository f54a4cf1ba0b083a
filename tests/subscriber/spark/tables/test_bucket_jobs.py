"""Whole jobs into tables in a bucket, read by libraries that know nothing of pullstream."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyarrow.fs import S3FileSystem
from pyiceberg.catalog import load_catalog

from pullstream import SubscriberClient
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream_emulator import Emulator
from tests.subscriber.command_line import Result, pullstream
from tests.subscriber.spark.stage import QUICK, SUBSCRIPTION, publish, subscribed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES: dict[str, Any] = {"parquet": FileTable, "delta": DeltaLakeTable, "iceberg": IcebergTable}


class Job:
    """`pullstream ingest` into a table in a bucket, with its state on the disk."""

    def __init__(
        self,
        format: str,
        broker: Emulator,
        s3: dict[str, str],
        folder: Path,
        spool: str | None = None,
    ) -> None:
        self.format = format
        self.url = f"s3://lake/{uuid.uuid4().hex}/orders"
        self.state = folder / "state"
        self.checkpoint = self.state / "checkpoint"
        self._s3 = s3
        self._catalog = {"name": "lake", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        self._words = [
            *("ingest", "--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint),
            *("--to", self.url, "--format", format, "--state", str(self.state)),
            *(("--spool", spool) if spool else ()),
            *("--available-now", "--json"),
            *_options("--option", QUICK),
            *_options("--storage", s3),
            *_options("--catalog", self._catalog if format == "iceberg" else {}),
        ]

    def run(self) -> Result:
        return pullstream(*self._words)

    def add(self, *words: str) -> None:
        self._words += words

    def status(self) -> dict[str, Any]:
        """Return the output of `pullstream ingest status`."""
        words = ("ingest", "status", str(self.state), "--json", *_options("--storage", self._s3))
        [found] = pullstream(*words).objects
        return found

    def die_after_commit(self) -> None:
        """Commit a batch to the table, of which Spark does not learn."""
        kind = TABLES[self.format]
        commit = kind.commit

        def commit_and_die(table: Any, *arguments: Any) -> bool:
            commit(table, *arguments)
            raise OSError("killed")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "commit", commit_and_die)
            result = self.run()
        assert "killed" in result.objects[-1]["error"]

    def found(self) -> list[str]:
        """Return the message ids that another reader finds."""
        rows = {"parquet": self._parquet, "delta": self._delta, "iceberg": self._iceberg}
        return sorted(rows[self.format]().column("message_id").to_pylist())

    def _parquet(self) -> pa.Table:
        files = S3FileSystem(
            access_key=self._s3["aws_access_key_id"],
            secret_key=self._s3["aws_secret_access_key"],
            endpoint_override=self._s3["aws_endpoint"],
            region=self._s3["aws_region"],
        )
        return pq.read_table(self.url.removeprefix("s3://"), filesystem=files)

    def _delta(self) -> pa.Table:
        return DeltaTable(self.url, storage_options=self._s3).to_pyarrow_dataset().to_table()

    def _iceberg(self) -> pa.Table:
        properties = {
            "s3.endpoint": self._s3["aws_endpoint"],
            "s3.region": self._s3["aws_region"],
            "s3.access-key-id": self._s3["aws_access_key_id"],
            "s3.secret-access-key": self._s3["aws_secret_access_key"],
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        }
        catalog = load_catalog(**self._catalog, **properties)
        return catalog.load_table("default.orders").scan().to_arrow()


def _options(name: str, values: dict[str, str]) -> Sequence[str]:
    return [word for key, value in values.items() for word in (name, f"{key}={value}")]


@pytest.mark.parametrize("format", TABLES)
def test_a_job_into_a_bucket_writes_every_message_once_across_a_kill_and_a_lost_checkpoint(
    spark: SparkSession, broker: Emulator, s3: dict[str, str], tmp_path: Path, format: str
) -> None:
    """The table in the bucket proves that it has the batch, which is delivered again."""
    subscribed(broker)
    job = Job(format, broker, s3, tmp_path)
    ids = publish(broker, 4)
    job.die_after_commit()
    assert job.found() == sorted(ids)
    shutil.rmtree(job.checkpoint)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        client.seek(subscription=SUBSCRIPTION, time=datetime(2020, 1, 1, tzinfo=timezone.utc))
    ids += publish(broker, 6)
    result = job.run()
    assert result.code == 0, result.stderr
    last = result.objects[-1]
    assert (last["messages"], last["duplicates"]) == (6, 4)
    assert job.found() == sorted(ids)
    assert broker.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize("acknowledge", ["committed", "stored"])
@pytest.mark.parametrize("format", TABLES)
def test_a_job_with_its_spool_in_a_bucket_goes_on_with_an_empty_disk(
    spark: SparkSession,
    broker: Emulator,
    s3: dict[str, str],
    tmp_path: Path,
    format: str,
    acknowledge: str,
) -> None:
    """The driver's machine is lost: the table proves which batches it has, the spool has the rest.

    With `stored`, the spool has the only copy of messages that are not in the table.
    """
    subscribed(broker)
    spool = f"s3://lake/{uuid.uuid4().hex}/spool"
    job = Job(format, broker, s3, tmp_path, spool)
    job.add("--option", f"acknowledge={acknowledge}")
    ids = publish(broker, 4)
    job.die_after_commit()
    assert job.found() == sorted(ids)
    shutil.rmtree(job.state)
    ids += publish(broker, 6)
    result = job.run()
    assert result.code == 0, result.stderr
    assert job.found() == sorted(ids)
    shutil.rmtree(job.state)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        client.seek(subscription=SUBSCRIPTION, time=datetime(2020, 1, 1, tzinfo=timezone.utc))
    ids += publish(broker, 2)
    result = job.run()
    assert result.code == 0, result.stderr
    assert job.found() == sorted(ids)
    assert broker.backlog(SUBSCRIPTION) == 0
    status = job.status()
    assert status["job"]["spool_place"] == spool
    assert (status["messages"], status["planned"]) == (0, status["committed"])
    assert not (job.state / "spool").exists()


def test_a_job_into_a_bucket_needs_no_connector_of_hadoop(
    spark: SparkSession, s3: dict[str, str]
) -> None:
    """Spark cannot read the bucket by itself in the session of the jobs above."""
    with pytest.raises(Py4JJavaError, match='No FileSystem for scheme "s3"'):
        spark.read.parquet("s3://lake/orders")
