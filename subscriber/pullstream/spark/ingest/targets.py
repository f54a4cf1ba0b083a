"""Targets of an ingestion, which store each batch exactly once.

Spark passes a batch again, with the same rows, if it cannot know whether all of the batch was
written. The target must then look as if the batch had been written once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.data_files import PartitionField, WrittenFile
from pullstream.spark.tables.table import Table, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("pullstream.spark")

FILE_FORMATS = ("parquet", "json")
LAKE_FORMATS = ("delta", "iceberg")
FORMATS = (*FILE_FORMATS, *LAKE_FORMATS, "jdbc")


class Written(Protocol):
    """Rows that are stored, and not in the target yet."""

    @property
    def rows(self) -> int:
        """Number of the rows."""

    def commit(self) -> bool:
        """Put all rows and the batch's name into the target; return False if it had the batch."""


class Target(Protocol):
    """A table to which batches are written."""

    @property
    def place(self) -> str:
        """Description of the target for users: a path or a table."""

    @property
    def reserved(self) -> tuple[str, ...]:
        """Lower-case names of the columns that the target adds; rows must not have them."""

    @property
    def needs_spark(self) -> bool:
        """Whether `open` and `newest` need a session."""

    def open(self, spark: SparkSession | None, schema: pa.Schema) -> None:
        """Open the target, and create it if it does not exist.

        Args:
            spark: The session.
            schema: The columns of the rows.

        Raises:
            IngestError: The target cannot take such rows.
        """

    def newest(self, spark: SparkSession | None, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""

    def write(self, rows: DataFrame, batch: BatchName) -> Written:
        """Store the rows of a batch, so that `commit` puts them into the target."""


class TableTarget:
    """A table of files that executors write: Parquet, JSON lines, Delta or Iceberg.

    Args:
        table: The table.
        json_partitions: For JSON lines, the values by which the rows are divided. None: not JSON
            lines.
    """

    def __init__(
        self, table: Table, json_partitions: Sequence[PartitionField] | None = None
    ) -> None:
        self._table = table
        self._is_json = json_partitions is not None
        self._is_warned = False
        self._json_columns = list(dict.fromkeys(one.column for one in json_partitions or ()))
        self._json_folders = {one.name for one in json_partitions or ()}

    @property
    def place(self) -> str:
        """The table's description."""
        return self._table.place

    @property
    def reserved(self) -> tuple[str, ...]:
        """Empty: the names that partitioning adds are checked with the expressions."""
        return ()

    @property
    def needs_spark(self) -> bool:
        """False: the driver itself reaches the files."""
        return False

    def open(self, spark: SparkSession | None, schema: pa.Schema) -> None:
        """Open the table; see Target."""
        if self._is_json:
            columns = [schema.field(name) for name in self._json_columns]
            schema = pa.schema([*columns, pa.field(_LINE, pa.string())])
        self._table.open(schema)

    def newest(self, spark: SparkSession | None, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""
        return self._table.newest(source)

    def write(self, rows: DataFrame, batch: BatchName) -> Written:
        """Let the executors write the files of the batch."""
        if self._is_json:
            # Readers take a column from its folder's name.
            own = [name for name in rows.columns if name not in self._json_folders]
            line = F.to_json(F.struct(*own)).alias(_LINE)
            rows = rows.select(*self._json_columns, line)
        files = write_files(self._table, rows, batch)
        partitions = len({file.partition for file in files})
        if partitions > _MANY_PARTITIONS and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "a batch of %s has %d partitions, and each is a file or more; many small files "
                "make readers slow. Partition by fewer values, or take more messages in a batch",
                self.place,
                partitions,
            )
        return _WrittenFiles(self._table, files, batch)


# A batch with more partitions than this makes the job warn, once.
_MANY_PARTITIONS = 100

# The column with the JSON object of a row.
_LINE = "_line"


class _WrittenFiles:
    def __init__(self, table: Table, files: list[WrittenFile], batch: BatchName) -> None:
        self._table = table
        self._files = files
        self._batch = batch
        self.rows = sum(file.rows for file in files)

    def commit(self) -> bool:
        return self._table.commit(self._files, self._batch)
