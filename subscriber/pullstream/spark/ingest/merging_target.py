"""Target whose rows are changes: it keeps the newest change of each key."""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.data_files import DESCRIPTION_DDL, WrittenFile
from pullstream.spark.tables.merge import (
    RESULT_DDL,
    FileToRead,
    MergeColumns,
    NewRows,
    RewrittenFiles,
    packed,
)
from pullstream.spark.tables.table import (
    MergingTable,
    column,
    map_in_arrow,
    until_committed,
    written_files,
)
from pullstream.spark.tables.touched_files import KeyRanges, TouchedFiles, tasks_of

from .targets import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# About as many rows of a batch are written to one file.
_FILE_ROWS = 250_000


class MergingTarget:
    """A Delta or Iceberg table with one row for each key: the newest change.

    Executors read the files that may have keys of the batch, and write them again without the rows
    that are replaced. The changes become rows in new files. One commit removes and adds the files.
    The driver holds the keys of the batch, but no rows of the table.

    Args:
        table: The table.
        columns: The columns by which changes are matched and compared.
    """

    def __init__(self, table: MergingTable, columns: MergeColumns) -> None:
        self._table = table
        self._columns = columns

    @property
    def place(self) -> str:
        """The table's description."""
        return self._table.place

    @property
    def reserved(self) -> tuple[str, ...]:
        """Empty: the column `_deleted` is in the rows that the target gets."""
        return ()

    @property
    def needs_spark(self) -> bool:
        """False: the driver itself reaches the files."""
        return False

    def open(self, spark: SparkSession | None, schema: pa.Schema) -> None:
        """Open the table; see Target."""
        self._table.open(schema)
        self._table.check_replaceable()

    def newest(self, spark: SparkSession | None, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""
        return self._table.newest(source)

    def write(self, rows: DataFrame, batch: BatchName) -> Written:
        """Let the executors write the files that the batch adds to the table's newest state."""
        return _MergedBatch(self._table, self._columns, rows, batch)


class _MergedBatch:
    def __init__(
        self, table: MergingTable, columns: MergeColumns, rows: DataFrame, batch: BatchName
    ) -> None:
        self._table = table
        self._columns = columns
        self._batch = batch
        # Used for the keys and for the rows, and again after a conflict.
        self._changes = newest_changes(rows, columns).persist()
        try:
            self._keys = self._changes.select(*map(column, columns.all)).toArrow()
            self.rows = self._keys.num_rows
            to_write = table.files_to_write("")
            self._ranges = KeyRanges(self._keys.select(columns.keys), to_write.partition_by)
            self._touched = table.touched(self._ranges)
            self._removed, self._added = self._join()
        except BaseException:
            self._changes.unpersist()
            raise

    def commit(self) -> bool:
        try:
            return until_committed(self._try, self._table.place)
        finally:
            self._changes.unpersist()

    def _try(self) -> bool | None:
        table, batch = self._table, self._batch
        removed = [file for file in self._touched.files if file.path in self._removed]
        committed = table.replace(self._touched, removed, self._added, batch)
        if committed is not None:
            return committed
        if table.newest(batch.source) >= batch.number:
            return False
        joined = {file.path for file in self._touched.files}
        self._touched = table.touched(self._ranges)
        if {file.path for file in self._touched.files} != joined:
            self._removed, self._added = self._join()
        return None

    def _join(self) -> tuple[set[str], list[WrittenFile]]:
        """Return the paths of the files to remove, and the files to add."""
        replaced, late, added = self._rewritten(self._touched)
        if len(late) < self._keys.num_rows:
            added += self._new_rows(late)
        return replaced, added

    def _rewritten(self, touched: TouchedFiles) -> tuple[set[str], set[int], list[WrittenFile]]:
        """Return the paths of replaced files, the changes that came late, and the new files."""
        replaced: set[str] = set()
        late: set[int] = set()
        added: list[WrittenFile] = []
        lists = [
            [FileToRead(file.path, file.values) for file in files]
            for files in tasks_of(touched.files, self._columns.keys)
        ]
        if not lists:
            return replaced, late, added
        to_write = self._table.files_to_rewrite(self._name())
        function = RewrittenFiles(to_write, lists, self._columns, packed(self._keys))
        numbers = self._changes.sparkSession.range(0, len(lists), 1, len(lists))
        for row in map_in_arrow(numbers, function, RESULT_DDL).collect():
            replaced.update(row.replaced)
            late.update(row.late)
            added += written_files(row.written, to_write)
        return replaced, late, added

    def _new_rows(self, late: set[int]) -> list[WrittenFile]:
        """Write the changes that are not late."""
        files = max(1, math.ceil(self._keys.num_rows / _FILE_ROWS))
        rows = self._changes.coalesce(files)
        keys = self._columns.keys
        left_out = self._keys.select(keys).take(pa.array(sorted(late), pa.int64()))
        to_write = self._table.files_to_write(self._name())
        function = NewRows(to_write, keys, packed(left_out))
        return written_files(map_in_arrow(rows, function, DESCRIPTION_DDL).collect(), to_write)

    def _name(self) -> str:
        return f"{self._batch}-{uuid.uuid4().hex[:8]}"


def newest_changes(rows: DataFrame, columns: MergeColumns) -> DataFrame:
    """Return the newest change of each key. Null in the order is older than any value."""
    *first, last = map(column, columns.order)
    # Message ids are digits, so the longer one is greater.
    order = F.struct(*first, F.length(last), last)
    newest = F.max_by(F.struct(*map(column, rows.columns)), order).alias("newest")
    return rows.groupBy(*map(column, columns.keys)).agg(newest).select("newest.*")
