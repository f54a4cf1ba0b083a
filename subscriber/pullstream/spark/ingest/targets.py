"""Targets of an ingestion, which store each batch exactly once.

Spark passes a batch again, with the same rows and the same id, if it cannot know whether all of the
batch was written. The target must then look as if the batch had been written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JJavaError

from pullstream.spark.errors import IngestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_FORMATS = ("parquet", "json")
FORMATS = (*FILE_FORMATS, "delta", "jdbc")

# Partition column with the name of the batch.
BATCH_COLUMN = "ingest_batch"


class Target(Protocol):
    """A table to which batches are written."""

    @property
    def place(self) -> str:
        """Description of the target for users: a path or a table."""

    @property
    def reserved(self) -> tuple[str, ...]:
        """Lower-case names of the columns that the target adds; rows must not have them."""

    def check(self, spark: SparkSession) -> None:
        """Raise IngestError if this session can never write to the target."""

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        """Return False if the target certainly has no complete batch of this name.

        Call `check` first.
        """

    def write(self, rows: DataFrame, batch: str) -> bool:
        """Write a batch; return False if the target already had all of it.

        Args:
            rows: The rows of the batch.
            batch: Name of the batch, which is never used for other rows.
        """


@dataclass(frozen=True)
class FileTarget:
    """A folder of Parquet or JSON files, with a subfolder for each batch.

    A batch overwrites its subfolder. After a kill at any moment, the next run finds the subfolder
    absent, partial or complete, and replaces it. The subfolders of other batches are never changed.
    A batch is complete when its subfolder has `_SUCCESS`; until then, readers may see part of it.

    Attributes:
        path: The folder.
        format: "parquet" or "json".
        partition_by: Columns whose values become subfolders.
    """

    path: str
    format: str
    partition_by: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The path of the folder, as the user gave it."""
        return self.path

    @property
    def reserved(self) -> tuple[str, ...]:
        """The partition column that Spark derives from the names of the subfolders."""
        return (BATCH_COLUMN,)

    def check(self, spark: SparkSession) -> None:
        """Do nothing: Spark can write files wherever it can write its own."""

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        """Return whether the subfolder of the batch exists, complete or partial."""
        jvm: Any = spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(self._folder(batch))
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        found: bool = folder.getFileSystem(settings).exists(folder)
        return found

    def write(self, rows: DataFrame, batch: str) -> bool:
        """Replace the subfolder of the batch, and return True."""
        writer = rows.write.format(self.format).mode("overwrite")
        writer.partitionBy(*self.partition_by).save(self._folder(batch))
        return True

    def _folder(self, batch: str) -> str:
        return f"{self.path.rstrip('/')}/{BATCH_COLUMN}={batch}"


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table.

    The table's log stores the highest batch number of each application and skips repeated batches:
    a batch is in the table completely and once, or not at all.

    Attributes:
        path: The folder of the table.
        partition_by: Columns whose values become subfolders.
    """

    path: str
    partition_by: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The path of the table's folder, as the user gave it."""
        return self.path

    @property
    def reserved(self) -> tuple[str, ...]:
        """Empty, because Delta stores the batch number in its log."""
        return ()

    def check(self, spark: SparkSession) -> None:
        """Raise IngestError if Delta's classes are missing in this Spark session."""
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
        """Return True, because only Delta's classes could answer this."""
        return True

    def write(self, rows: DataFrame, batch: str) -> bool:
        """Append the rows unless Delta's log has the batch; return True in both cases."""
        application, _, version = batch.rpartition("-")
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", application).option("txnVersion", version)
        writer.partitionBy(*self.partition_by).save(self.path)
        return True
