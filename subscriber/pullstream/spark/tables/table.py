"""The interface of a table format, and how executors write the files of a batch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from pullstream.spark.errors import IngestError
from pullstream.spark.stores import LocalFolder, store_of

from .batch import BatchName
from .data_files import DESCRIPTION_DDL, FilesToWrite, WrittenFile
from .touched_files import KeyRanges, KnownFile, TouchedFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row

# How often a commit is tried while other writers are always faster.
MAX_COMMITS = 50


class Table(Protocol):
    """A table that takes each batch once. Used by one thread.

    A commit adds all files of a batch and the batch's name, or nothing. For each source folder the
    table remembers the number of the newest batch. Batches of a source are committed in the order
    of their numbers.
    """

    @property
    def place(self) -> str:
        """Description of the table for users."""

    def open(self, schema: pa.Schema) -> None:
        """Open the table, and create it if it does not exist.

        Args:
            schema: The columns of the rows, without those that partitioning adds.

        Raises:
            IngestError: The table cannot take such rows, now or ever.
        """

    def newest(self, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""

    def files_to_write(self, name: str) -> FilesToWrite:
        """Return how executors write the files of a batch, whose names begin with `name`."""

    def commit(self, files: Sequence[WrittenFile], batch: BatchName) -> bool:
        """Add the files and the batch's name; return False if the table had the batch.

        Raises:
            IngestError: Other writers were faster each time, or the table has changed.
        """


class MergingTable(Table, Protocol):
    """A table whose files can be replaced, so that it takes changes of rows."""

    def check_replaceable(self) -> None:
        """Check that files may be removed from the open table.

        Raises:
            IngestError: They may not.
        """

    def touched(self, keys: KeyRanges) -> TouchedFiles:
        """Load the newest state of the table, and return its files that may have some keys.

        Raises:
            IngestError: The state has something else than data files, such as deleted rows.
        """

    def files_to_rewrite(self, name: str) -> FilesToWrite:
        """Return how executors write rows of the table again, with all columns of the table."""

    def replace(
        self,
        touched: TouchedFiles,
        removed: Sequence[KnownFile],
        added: Sequence[WrittenFile],
        batch: BatchName,
    ) -> bool | None:
        """Remove files, add files and the batch's name, in one commit.

        Args:
            touched: The result of the last call of `touched`.
            removed: Those of its files to remove.
            added: The new files.
            batch: Name of the batch.

        Returns:
            False if the table had the batch, and None if the table has changed since `touched`.
        """


def write_files(table: Table, rows: DataFrame, batch: BatchName) -> list[WrittenFile]:
    """Write the rows of a batch on the executors, and return the files, which `commit` takes."""
    # A replay writes files of other names, so the files of a killed attempt never get in its way.
    to_write = table.files_to_write(f"{batch}-{uuid.uuid4().hex[:8]}")
    # Each attempt of a task returns its own files, and Spark reports one attempt of each task.
    return written_files(map_in_arrow(rows, to_write, DESCRIPTION_DDL).collect(), to_write)


def written_files(described: Iterable[Row], to_write: FilesToWrite) -> list[WrittenFile]:
    """Return the files that executors describe.

    Raises:
        IngestError: The driver does not see a file: executors have disks of their own.
    """
    files = [
        WrittenFile(
            row.path,
            row.rows,
            row.size,
            tuple(json.loads(row.partition)),
            bytes(row.footer),
            row.attempt,
        )
        for row in described
    ]
    store = store_of(to_write.folder, to_write.options)
    if isinstance(store, LocalFolder):
        for file in files:
            if store.size(file.path) != file.size:
                raise IngestError(
                    f"an executor has written {file.path} to {to_write.folder}, but the driver "
                    "does not see it there. Nothing of the batch is in the table. Use a folder "
                    "that all machines share, or an object store (s3://, gs://, az://)"
                )
    return files


def map_in_arrow(
    rows: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    columns: str,
) -> DataFrame:
    """Return the result of `mapInArrow`, which asks for pandas, although it does not use it.

    Args:
        rows: The rows.
        function: Called on the executors for each partition. Pickled.
        columns: The columns of the result, as DDL.
    """
    if find_spec("pandas") is not None:
        return rows.mapInArrow(function, columns)
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    mapping = UserDefinedFunction(function, columns, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    mapped: Any = mapping(*(column(name) for name in rows.columns))
    java: Any = rows._jdf
    return DataFrame(java.mapInArrow(mapped._jc, False, None), rows.sparkSession)


def column(name: str) -> Column:
    """Return a column by its name. A dot in it does not mean a field."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("`" + name.replace("`", "``") + "`")


def until_committed(attempt: Callable[[], bool | None], place: str) -> bool:
    """Try a commit until it is decided.

    Args:
        attempt: Loads the table, looks for the batch, and tries to commit. Returns whether the
            batch was committed, or None after a conflict with another writer.
        place: Description of the table.

    Raises:
        IngestError: There was a conflict each time.
    """
    for _ in range(MAX_COMMITS):
        committed = attempt()
        if committed is not None:
            return committed
    raise IngestError(
        f"{MAX_COMMITS} commits to {place} have failed, because other writers were faster each "
        "time. Nothing of the batch is in the table; run the job again when they are idle"
    )
