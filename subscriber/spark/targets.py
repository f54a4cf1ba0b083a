"""Where an ingestion writes: each batch once, however often it is written.

Spark hands a batch over again, the same rows under the same id, when it cannot tell whether all of
it was written. A target must then end up as if it had been written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JJavaError

from .errors import IngestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_FORMATS = ("parquet", "json")
FORMATS = (*FILE_FORMATS, "delta", "jdbc")

# The partition column that tells the batches of a folder apart.
BATCH_COLUMN = "ingest_batch"


class Target(Protocol):
    """A table that batches are written to."""

    @property
    def place(self) -> str:
        """What people are told of it: a path, or a table."""

    @property
    def reserved(self) -> tuple[str, ...]:
        """The columns that it adds, in lower case: no row may bring such a one."""

    def check(self, spark: SparkSession) -> None:
        """Raise IngestError if this session can never write to it."""

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        """False if it is sure that no whole batch of this name is there. `check` comes before."""

    def write(self, rows: DataFrame, batch: str) -> bool:
        """Write a batch; False if all of it was there already. `batch` is unique for ever."""


@dataclass(frozen=True)
class FileTarget:
    """A folder of Parquet or JSON files, in which each batch has a folder of its own.

    The folder is overwritten. Killed at any moment, the next run finds it absent, in part or whole,
    and replaces it; the folders of other batches are never touched. A batch is complete when its
    folder has `_SUCCESS`: whoever reads the table while it is written may see one in part.
    """

    path: str
    format: str
    partition_by: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return self.path

    @property
    def reserved(self) -> tuple[str, ...]:
        return (BATCH_COLUMN,)

    def check(self, spark: SparkSession) -> None:
        """Spark can write files wherever it can write its own."""

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        jvm: Any = spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(self._folder(batch))
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        found: bool = folder.getFileSystem(settings).exists(folder)
        return found

    def write(self, rows: DataFrame, batch: str) -> bool:
        writer = rows.write.format(self.format).mode("overwrite")
        writer.partitionBy(*self.partition_by).save(self._folder(batch))
        return True

    def _folder(self, batch: str) -> str:
        return f"{self.path.rstrip('/')}/{BATCH_COLUMN}={batch}"


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table. Its log keeps the highest batch of each application, and leaves out those that
    come again: a batch is in the table as a whole and once, or not at all."""

    path: str
    partition_by: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return self.path

    @property
    def reserved(self) -> tuple[str, ...]:
        return ()

    def check(self, spark: SparkSession) -> None:
        java: Any = spark._jvm.java.lang  # type: ignore[union-attr]
        loader = java.Thread.currentThread().getContextClassLoader()
        try:
            java.Class.forName("org.apache.spark.sql.delta.sources.DeltaDataSource", False, loader)
        except Py4JJavaError:
            raise IngestError(
                "format is 'delta', but this Spark has no Delta Lake: pip install delta-spark and "
                "add its jars (--conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION), or "
                f"choose one of {', '.join(FORMATS)}"
            ) from None

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        """Only Delta's own classes could tell."""
        return True

    def write(self, rows: DataFrame, batch: str) -> bool:
        application, _, version = batch.rpartition("-")
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", application).option("txnVersion", version)
        writer.partitionBy(*self.partition_by).save(self.path)
        return True
