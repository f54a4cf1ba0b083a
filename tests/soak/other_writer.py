"""A second writer of the table to which a job writes."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow

from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream.spark.tables.table import Table

from .ingestion import Place
from .table_counts import iceberg_table

# Ids and keys of this writer begin here.
FIRST = 1_000_000_000


class OtherWriter(threading.Thread):
    """Writes a row in each second: batches of another source, or transactions of a database.

    Its keys are its own, so it may also write to a table of upserts.

    Args:
        place: The table.
        pause: Entered for each commit. A folder of files is compacted while nobody writes.

    Attributes:
        rows: The number of rows that it has written.
    """

    def __init__(self, place: Place, pause: AbstractContextManager[Any]) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._pause = pause
        self._ended = threading.Event()
        self.rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(1.0):
                with self._pause:
                    self.rows += self._insert() if self._place.server else self._commit()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """End the thread, and raise its error."""
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _row(self) -> dict[str, Any]:
        return {
            "id": FIRST + self.rows,
            "key": FIRST + self.rows,
            "country": "XX",
            "pubsub_message_id": "other",
            "pubsub_batch": "other",
            "pubsub_publish_time": datetime(2026, 1, 1, tzinfo=timezone.utc),
            "_deleted": False,
        }

    def _insert(self) -> bool:
        """Insert a row; return False before the job has made the table."""
        server, table = self._place.database, self._place.name
        if server.query(f"SELECT to_regclass('{table}')") == [""]:
            return False
        row = json.dumps(self._row(), default=str)
        server.query(
            f"INSERT INTO {table} SELECT (jsonb_populate_record(NULL::{table}, '{row}')).*"
        )
        return True

    def _commit(self) -> bool:
        """Commit a batch; return False before the job has made the table."""
        schema = self._columns()
        if schema is None:
            return False
        fields = partition_fields([PartitionExpression.parse("country")], schema)
        kinds = {"delta": DeltaLakeTable, "iceberg": IcebergTable, "parquet": FileTable}
        table: Table = kinds[self._place.format](str(self._place.table), fields)
        table.open(schema)
        batch = BatchName("e" * 32, self.rows)
        rows = pa.Table.from_pylist([self._row()], schema=schema)
        files = table.files_to_write(str(batch)).write(rows.to_batches(), "0-0")
        return table.commit(files, batch)

    def _columns(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""
        match self._place.format:
            case "delta":
                try:
                    return pa.schema(DeltaTable(str(self._place.table)).schema().to_arrow())
                except TableNotFoundError:
                    return None
            case "iceberg":
                try:
                    table = iceberg_table(self._place.table)
                except NoSuchTableError:
                    return None
                return schema_to_pyarrow(table.schema(), include_field_ids=False)
            case _:
                file = next(self._place.table.rglob("part-*.parquet"), None)
                if file is None:
                    return None
                # The column of the partition is only in the names of the folders.
                return (
                    pq.read_schema(file).remove_metadata().append(pa.field("country", pa.string()))
                )
