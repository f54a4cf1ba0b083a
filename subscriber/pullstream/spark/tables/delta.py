"""Delta tables, by `deltalake`: without Java, on a disk or in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from pullstream.spark.errors import IngestError
from pullstream_protocol.clock import SYSTEM_CLOCK

from .batch import BatchName
from .columns import ColumnCheck
from .data_files import FilesToWrite, PartitionField, WrittenFile, text_of
from .delta_log import DeltaLog
from .partitions import with_values
from .table import until_committed
from .touched_files import KeyRanges, KnownFile, TouchedFiles, comparable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Features with which our files are right as they are. Any other one may need more of a writer than
# to add files.
_WRITER_FEATURES = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_LARGEST_WRITER_VERSION = 2

# After this time the table is loaded again, in seconds. `pullstream clean` deletes parts of the log
# after a day at the earliest.
_STATE_AGE = 3600.0

# Columns with statistics, and the longest text in them, as Delta's own writers have it.
_STATISTICS_COLUMNS = 32
_STATISTICS_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"


class DeltaLakeTable:
    """A Delta table. The log has the number of the newest batch as a transaction of the source.

    Args:
        folder: Path or URL of the table.
        partition_by: The values by which rows are divided.
        options: Settings of the object store.
        may_add: Whether `open` may add columns to the table.
    """

    def __init__(
        self,
        folder: str,
        partition_by: Sequence[PartitionField] = (),
        options: Mapping[str, str] | None = None,
        *,
        may_add: bool = False,
    ) -> None:
        self._columns = ColumnCheck(folder, may_add=may_add)
        self._folder = folder
        self._partition_by = tuple(partition_by)
        self._options = dict(options or {}) or None
        self._schema = pa.schema([])
        # The state when the table was loaded, what is known of later versions, and the time.
        self._table: DeltaTable | None = None
        self._log: DeltaLog | None = None
        self._transactions: dict[str, int] = {}
        self._loaded = 0.0

    @property
    def place(self) -> str:
        """The path or URL of the table."""
        return self._folder

    def open(self, schema: pa.Schema) -> None:
        """Open the table, or create it; see Table."""
        self._schema = schema
        schema = with_values(schema, self._partition_by)
        columns = [field.name for field in self._partition_by]
        try:
            self._table = DeltaTable(self._folder, storage_options=self._options)
        except TableNotFoundError:
            try:
                self._table = DeltaTable.create(
                    self._folder, schema, partition_by=columns, storage_options=self._options
                )
            except (DeltaError, OSError) as error:
                raise IngestError(f"cannot create a Delta table in {self.place}: {error}") from None
        except (DeltaError, OSError) as error:
            raise IngestError(f"cannot open the Delta table {self.place}: {error}") from None
        self._use(self._table)
        until_committed(lambda: self._try_to_add(schema), self.place)

    def newest(self, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""
        self._follow()
        return self._number(source)

    def files_to_write(self, name: str) -> FilesToWrite:
        """Return how executors write the files of a batch; see Table."""
        return FilesToWrite(
            folder=self._folder,
            prefix="",
            name=name,
            schema=self._schema.serialize().to_pybytes(),
            partition_by=self._partition_by,
            options=self._options,
        )

    def commit(self, files: Sequence[WrittenFile], batch: BatchName) -> bool:
        """Add the files and the batch's name; see Table."""
        now = round(SYSTEM_CLOCK.now() * 1000)
        actions = [self._action(file, now) for file in files]
        return until_committed(lambda: self._try(actions, batch), self.place)

    def check_replaceable(self) -> None:
        """Check that files may be removed; see MergingTable."""
        assert self._table is not None, "call open first"
        if self._table.metadata().configuration.get("delta.appendOnly") == "true":
            raise IngestError(
                f"the Delta table {self.place} has the property delta.appendOnly, and upserts "
                "replace rows; remove the property, or write to another table"
            )

    def touched(self, keys: KeyRanges) -> TouchedFiles:
        """Load the table and find files; see MergingTable."""
        # This checks the table again: another writer may have switched on deletion vectors, with
        # which files have deleted rows.
        table = self._load()
        actions = pa.table(table.get_add_actions())
        known = _KnownFiles(actions, keys.names, self._partition_by, self.place)
        return TouchedFiles(table.version(), [one for one in known if keys.may_be_in(one)])

    def files_to_rewrite(self, name: str) -> FilesToWrite:
        """Return how executors write rows again; see MergingTable."""
        assert self._table is not None, "call open first"
        schema = self._schema
        added = {field.name for field in self._partition_by}
        # Columns that other writers have added.
        for field in pa.schema(self._table.schema().to_arrow()):
            if field.name not in schema.names and field.name not in added:
                schema = schema.append(field)
        return replace(self.files_to_write(name), schema=schema.serialize().to_pybytes())

    def replace(
        self,
        touched: TouchedFiles,
        removed: Sequence[KnownFile],
        added: Sequence[WrittenFile],
        batch: BatchName,
    ) -> bool | None:
        """Remove and add files; see MergingTable."""
        assert self._log is not None, "call open first"
        if self._log.version != touched.state:
            return None
        if self._number(batch.source) >= batch.number:
            return False
        now = round(SYSTEM_CLOCK.now() * 1000)
        actions: list[dict[str, Any]] = [
            {
                "remove": {
                    "path": file.own,
                    "deletionTimestamp": now,
                    "dataChange": True,
                    "extendedFileMetadata": True,
                    "partitionValues": dict(file.partition or {}),
                    "size": file.size,
                }
            }
            for file in removed
        ]
        actions += [self._action(file, now) for file in added]
        # The batch depends on the rows that it has read, also if it only adds files.
        return self._append(actions, batch, is_append=False)

    def _try(self, actions: list[dict[str, Any]], batch: BatchName) -> bool | None:
        # One state for the look and the commit, which fails if there is a newer one.
        self._follow()
        if self._number(batch.source) >= batch.number:
            return False
        return self._append(actions, batch, is_append=True)

    def _append(
        self, actions: list[dict[str, Any]], batch: BatchName, *, is_append: bool
    ) -> bool | None:
        """Commit actions to the state of the table that is known; see until_committed."""
        assert self._log is not None, "call open first"
        assert self._table is not None, "call open first"
        application = _application(batch.source)
        transaction = {
            "appId": application,
            "version": batch.number,
            "lastUpdated": round(SYSTEM_CLOCK.now() * 1000),
        }
        if not self._log.append([{"txn": transaction}, *actions], is_append=is_append):
            return None
        self._transactions[application] = batch.number
        self._log.add_checkpoint(self._table.metadata().configuration)
        return True

    def _number(self, source: str) -> int:
        application = _application(source)
        if application not in self._transactions:
            assert self._table is not None, "call open first"
            # None of the later versions has it.
            number = self._table.transaction_version(application)
            self._transactions[application] = -1 if number is None else number
        return self._transactions[application]

    def _use(self, table: DeltaTable) -> None:
        """Continue with the loaded state of the table.

        Raises:
            IngestError: The table needs more of a writer.
        """
        self._check(table, [field.name for field in self._partition_by])
        self._table = table
        self._log = DeltaLog(self._folder, self._options, table.version())
        self._transactions = {}
        self._loaded = SYSTEM_CLOCK.now()

    def _follow(self) -> None:
        """Read what other writers have committed."""
        assert self._log is not None, "call open first"
        # The machine may have slept for so long that later parts of the log are deleted already.
        is_old = SYSTEM_CLOCK.now() - self._loaded > _STATE_AGE
        for action in () if is_old else self._log.newer():
            if transaction := action.get("txn"):
                self._transactions[transaction["appId"]] = transaction["version"]
            is_old = is_old or "metaData" in action or "protocol" in action
        if is_old:
            self._load()

    def _load(self) -> DeltaTable:
        table = DeltaTable(self._folder, storage_options=self._options)
        self._use(table)
        return table

    def _action(self, file: WrittenFile, now: int) -> dict[str, Any]:
        values = {
            field.name: text_of(field, value)
            for field, value in zip(self._partition_by, file.partition, strict=True)
        }
        statistics = statistics_of(file.metadata) if file.footer else {}
        return {
            "add": {
                # The log has paths as URLs.
                "path": quote(file.path, safe="/="),
                "partitionValues": values,
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": json.dumps({"numRecords": file.rows, **statistics}),
            }
        }

    def _try_to_add(self, schema: pa.Schema) -> bool | None:
        """Add missing columns; return None if another writer was faster."""
        table = self._load()
        if not self._columns.must_change(pa.schema(table.schema().to_arrow()), schema):
            return False
        try:
            # Without rows: this changes the columns alone, nested ones too.
            write_deltalake(
                table,
                schema.empty_table(),
                mode="append",
                schema_mode="merge",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            return None
        self._load()
        return True

    def _check(self, table: DeltaTable, columns: list[str]) -> None:
        """Raise IngestError if the table needs more of a writer."""
        protocol, metadata = table.protocol(), table.metadata()
        features = set(protocol.writer_features or ()) - _WRITER_FEATURES
        if protocol.min_writer_version > _LARGEST_WRITER_VERSION and not protocol.writer_features:
            features.add(f"writer version {protocol.min_writer_version}")
        settings = metadata.configuration
        if settings.get("delta.columnMapping.mode", "none") != "none":
            features.add("columnMapping")
        for field in json.loads(table.schema().to_json())["fields"]:
            features.update(
                f"{name} of the column {field['name']!r}"
                for name in field["metadata"]
                if name.startswith(("delta.", "CURRENT_DEFAULT"))
            )
        features.update(name for name in settings if name.startswith("delta.constraints."))
        if features:
            raise IngestError(
                f"the Delta table {self.place} has {', '.join(sorted(features))}, which this job "
                "does not support; write to a table without it"
            )
        if metadata.partition_columns != columns:
            raise IngestError(
                f"the Delta table {self.place} is partitioned by "
                f"{', '.join(metadata.partition_columns) or 'nothing'}, and the job by "
                f"{', '.join(columns) or 'nothing'}; partition the job in the same way"
            )


def _application(source: str) -> str:
    return f"pullstream-{source}"


# ---- files of the log ---------------------------------------------------------------------------

# Types whose bounds have the order of the values.
_ORDERED = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)

# Some writers cut times in bounds to milliseconds.
_CUT = 1000


class _KnownFiles:
    """The files of a table's state, from deltalake's description of them."""

    def __init__(
        self,
        actions: pa.Table,
        keys: Sequence[str],
        partition_by: Sequence[PartitionField],
        place: str,
    ) -> None:
        self._actions = actions
        self._keys = keys
        self._in_path = [one for one in partition_by if one.transform in ("identity", "date")]
        self._place = place

    def __iter__(self) -> Iterator[KnownFile]:
        actions = self._actions
        paths, sizes, rows = (
            actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")
        )
        partition = {name: _texts(one) for name, one in self._children("partition")}
        least, greatest = (
            {name: comparable(one).to_pylist() for name, one in self._bounds(side)}
            for side in ("min", "max")
        )
        cut = {name for name, one in self._bounds("max") if pa.types.is_timestamp(one.type)}
        for number, path in enumerate(paths):
            values = {name: texts[number] for name, texts in partition.items()}
            yield KnownFile(
                path=self._checked(path),
                rows=rows[number] or 0,
                size=sizes[number],
                partition=values,
                least={name: bounds[number] for name, bounds in least.items()},
                greatest={
                    name: bounds[number] + _CUT
                    if name in cut and bounds[number] is not None
                    else bounds[number]
                    for name, bounds in greatest.items()
                },
                values={one.name: values[one.name] for one in self._in_path},
                own=path,
            )

    def _checked(self, path: str) -> str:
        """Return the file's path in the folder."""
        if ":" in path.partition("/")[0]:
            raise IngestError(
                f"the Delta table {self._place} has the file {path!r}, which is outside of its "
                "folder; upserts rewrite files, and do not support shallow clones"
            )
        return unquote(path)

    def _children(self, name: str) -> Iterator[tuple[str, pa.ChunkedArray]]:
        if name not in self._actions.column_names:
            return
        column = self._actions.column(name)
        for field, child in zip(column.type, column.flatten(), strict=True):
            yield field.name, child

    def _bounds(self, name: str) -> Iterator[tuple[str, pa.ChunkedArray]]:
        for one, bounds in self._children(name):
            if one in self._keys and any(test(bounds.type) for test in (*_ORDERED, *_TEXTS)):
                yield one, bounds


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    """Return partition values as the texts of `text_of`."""
    return [
        value
        if value is None or isinstance(value, str)
        else value.isoformat()
        if hasattr(value, "isoformat")
        else str(value).lower()
        for value in values.to_pylist()
    ]


# ---- statistics ----------------------------------------------------------------------------------


def statistics_of(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return Delta's statistics of a file: least, greatest and null values of its columns."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, _STATISTICS_COLUMNS)):
        column = metadata.schema.column(index)
        groups = [
            metadata.row_group(number).column(index).statistics
            for number in range(metadata.num_row_groups)
        ]
        if "." in column.path or not groups or any(one is None for one in groups):
            continue
        name = column.name
        nulls[name] = sum(one.null_count for one in groups)
        if not all(one.has_min_max for one in groups):
            continue
        low = _bound(min(one.min for one in groups), is_upper=False)
        high = _bound(max(one.max for one in groups), is_upper=True)
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bound(value: Any, *, is_upper: bool) -> Any:
    """Return a bound as JSON has it; None if there is none."""
    match value:
        case bool() | bytes() | float() | Decimal():
            # Parquet leaves NaN out, and readers may compare it.
            return None
        case str():
            if len(value) <= _STATISTICS_TEXT:
                return value
            beginning, next_one = value[:_STATISTICS_TEXT], value[_STATISTICS_TEXT]
            if not is_upper:
                return beginning
            return None if next_one == _LAST_CHARACTER else beginning + _LAST_CHARACTER
        case datetime():
            # In milliseconds, rounded outwards.
            rest = timedelta(microseconds=value.microsecond % 1000)
            value -= rest
            if is_upper and rest:
                value += timedelta(milliseconds=1)
            text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return f"{text}Z" if value.tzinfo is not None else text
        case int():
            return value
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
        case _:
            return None
