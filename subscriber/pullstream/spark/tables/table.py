"""What a job needs of a table format, and how a batch is written to it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from pullstream.spark.errors import IngestError

from .batch import BatchName
from .data_files import DESCRIPTION_DDL, FilesToWrite, LocalFolder, WrittenFile, store_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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


def write_files(table: Table, rows: DataFrame, batch: BatchName) -> list[WrittenFile]:
    """Write the rows of a batch on the executors, and return the files, which `commit` takes."""
    # A replay writes files of other names, so the files of a killed attempt never get in its way.
    to_write = table.files_to_write(f"{batch}-{uuid.uuid4().hex[:8]}")
    # Each attempt of a task returns its own files, and Spark reports one attempt of each task.
    files = [
        WrittenFile(
            row.path,
            row.rows,
            row.size,
            tuple(json.loads(row.partition)),
            bytes(row.footer),
            row.attempt,
        )
        for row in _map_in_arrow(rows, to_write).collect()
    ]
    _check_that_driver_sees(files, to_write)
    return files


def _check_that_driver_sees(files: Sequence[WrittenFile], written: FilesToWrite) -> None:
    """Raise IngestError if executors have written files to disks of their own."""
    store = store_of(written.folder, written.options)
    if isinstance(store, LocalFolder):
        for file in files:
            if store.size(file.path) != file.size:
                raise IngestError(
                    f"an executor has written {file.path} to {written.folder}, but the driver does "
                    "not see it there. Nothing of the batch is in the table. Use a folder that all "
                    "machines share, or an object store (s3://, gs://, az://)"
                )


def _map_in_arrow(rows: DataFrame, to_write: FilesToWrite) -> DataFrame:
    """Return the result of `mapInArrow`, which asks for pandas, although it does not use it."""
    if find_spec("pandas") is not None:
        return rows.mapInArrow(to_write, DESCRIPTION_DDL)
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(
        to_write, DESCRIPTION_DDL, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column: Any = function(*(rows[name] for name in rows.columns))
    java: Any = rows._jdf
    return DataFrame(java.mapInArrow(column._jc, False, None), rows.sparkSession)


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
