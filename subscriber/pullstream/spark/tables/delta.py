"""Delta tables, by `deltalake`: without Java, on a disk or in a bucket."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from pullstream.spark.errors import IngestError
from pullstream.spark.store_errors import store_cause
from pullstream_protocol.clock import SYSTEM_CLOCK

from .batch import BatchName
from .columns import ColumnCheck
from .data_files import FilesToWrite, PartitionField, WrittenFile, text_of
from .delta_files import KnownFiles, added_action, removed_action
from .delta_log import DeltaLog
from .partitions import with_values
from .table import until_committed
from .touched_files import KeyRanges, KnownFile, TouchedFiles

# Features with which our files are right as they are. Any other one may need more of a writer than
# to add files.
_WRITER_FEATURES = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_LARGEST_WRITER_VERSION = 2

# After this time the table is loaded again, in seconds. `pullstream clean` deletes parts of the log
# after a day at the earliest.
STATE_AGE = 3600.0


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
                raise IngestError(
                    f"cannot create a Delta table in {self.place}: {store_cause(error)}"
                ) from None
        except (DeltaError, OSError) as error:
            raise IngestError(
                f"cannot open the Delta table {self.place}: {store_cause(error)}"
            ) from None
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
        check_removable(self._table, self.place)

    def touched(self, keys: KeyRanges) -> TouchedFiles:
        """Load the table and find files; see MergingTable."""
        # This checks the table again: another writer may have switched on deletion vectors, with
        # which files have deleted rows.
        table = self._load()
        actions = pa.table(table.get_add_actions())
        known = KnownFiles(actions, keys.names, self._partition_by, self.place)
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
        actions = [removed_action(file, now) for file in removed]
        actions += [self._action(file, now) for file in added]
        # The batch depends on the rows that it has read, also if it only adds files.
        return self._append(actions, batch, "MERGE")

    def _try(self, actions: list[dict[str, Any]], batch: BatchName) -> bool | None:
        # One state for the look and the commit, which fails if there is a newer one.
        self._follow()
        if self._number(batch.source) >= batch.number:
            return False
        return self._append(actions, batch, "WRITE")

    def _append(
        self, actions: list[dict[str, Any]], batch: BatchName, operation: Literal["WRITE", "MERGE"]
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
        if not self._log.append([{"txn": transaction}, *actions], operation):
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
        is_old = SYSTEM_CLOCK.now() - self._loaded > STATE_AGE
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
        return added_action(file, values, now)

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
        """Raise IngestError if the table needs more of a writer, or has other partitions."""
        check_features(table, self.place)
        found = table.metadata().partition_columns
        if found != columns:
            raise IngestError(
                f"the Delta table {self.place} is partitioned by "
                f"{', '.join(found) or 'nothing'}, and the job by "
                f"{', '.join(columns) or 'nothing'}; partition the job in the same way"
            )


def check_features(table: DeltaTable, place: str) -> None:
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
            f"the Delta table {place} has {', '.join(sorted(features))}, which "
            "pullstream does not support; write to a table without it"
        )


def check_removable(table: DeltaTable, place: str) -> None:
    """Raise IngestError if files may not be removed from the table."""
    if table.metadata().configuration.get("delta.appendOnly") == "true":
        raise IngestError(
            f"the Delta table {place} has the property delta.appendOnly, so its rows may not be "
            "replaced; remove the property, or write to another table"
        )


def _application(source: str) -> str:
    return f"pullstream-{source}"
