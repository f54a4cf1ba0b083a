"""Iceberg tables, by `pyiceberg`: without Java, on a disk or in a bucket, in any catalog."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.types import PrimitiveType

from pullstream.spark.errors import IngestError

from .batch import BatchName
from .columns import ColumnCheck
from .data_files import FilesToWrite, PartitionField, WrittenFile, text_of
from .iceberg_catalog import CatalogEntry, transform_of
from .iceberg_commits import ReplacedFiles, data_file, once
from .table import until_committed
from .touched_files import KeyRanges, KnownFile, TouchedFiles

# The table's property with the number of a source's newest batch.
_MARKER = "pullstream.batch."

# The job's own snapshots: after _EXPIRE_AT of them, all but the newest _KEEP are expired. Each
# commit writes the list of all snapshots, so without a bound commits become slower and slower.
_EXPIRE_AT = 60
_KEEP = 50
_MADE_BY = "pullstream-batch"

# Snapshots of compactions stay longer, because they name the files that they have replaced, which
# `pullstream clean` then keeps. In milliseconds.
COMPACTED_BY = "pullstream-compaction"
_KEEP_COMPACTIONS = 7 * 24 * 3_600_000

_NEWEST_FORMAT = 2


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False if pyiceberg tells that another writer has deleted an old metadata file first.

    Both were to delete it, so nothing is wrong. pyiceberg logs inside its `except`.
    """
    is_gone = isinstance(sys.exc_info()[1], FileNotFoundError)
    return not (is_gone and record.getMessage().startswith("Failed to delete metadata file"))


logging.getLogger("pyiceberg.catalog").addFilter(_is_worth_a_line)


class IcebergTable:
    """An Iceberg table. A property has the number of the newest batch of each source.

    Args:
        folder: Path or URL of the table.
        partition_by: The values by which rows are divided.
        options: Settings of the object store, with the names of obstore.
        catalog: Properties of the catalog. None: a SQLite file beside the folder, which must be on
            this machine.
        name: Name of the table in the catalog. Default: the folder's name, in `default`.
        may_add: Whether `open` may add columns to the table, and widen types.
    """

    def __init__(
        self,
        folder: str,
        partition_by: Sequence[PartitionField] = (),
        options: Mapping[str, str] | None = None,
        catalog: Mapping[str, str] | None = None,
        name: str | None = None,
        *,
        may_add: bool = False,
    ) -> None:
        self._entry = CatalogEntry(folder, options, catalog, name)
        self._partition_by = tuple(partition_by)
        self._options = dict(options or {})
        self._columns = ColumnCheck(self.place, may_add=may_add, may_widen=True)
        # The columns of the rows. The table may have more.
        self._names: Collection[str] = ()
        self._table: PyIcebergTable | None = None

    @property
    def place(self) -> str:
        """The name of the table in its catalog, and its path or URL."""
        return self._entry.place

    def open(self, schema: pa.Schema) -> None:
        """Open the table, or create it; see Table."""
        self._table = self._entry.opened(schema, self._partition_by)
        self._check(self._table)
        self._names = frozenset(schema.names)
        until_committed(lambda: self._try_to_add(_as_iceberg(schema)), self.place)

    def existing(self) -> PyIcebergTable:
        """Return the table as it is in its catalog; see CatalogEntry."""
        return self._entry.existing()

    def newest(self, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""
        return self._number(self._refreshed(), source)

    def files_to_write(self, name: str) -> FilesToWrite:
        """Return how executors write the files of a batch; see Table."""
        table = self._refreshed()
        # Field ids are in the files, because a column may be renamed.
        columns = schema_to_pyarrow(table.schema(), include_field_ids=True)
        schema = pa.schema([field for field in columns if field.name in self._names])
        return FilesToWrite(
            folder=table.location(),
            prefix="data/",
            name=name,
            schema=schema.serialize().to_pybytes(),
            partition_by=self._partition_by,
            keeps_columns=True,
            options=self._options,
        )

    def commit(self, files: Sequence[WrittenFile], batch: BatchName) -> bool:
        """Add the files and the batch's name; see Table."""
        assert self._table is not None, "call open first"
        table = self._table
        data_files = [data_file(table, file) for file in files]
        committed = until_committed(lambda: self._try(table, data_files, batch), self.place)
        self._expire(table)
        return committed

    def check_replaceable(self) -> None:
        """Check that files may be removed: each writer may do that. See MergingTable."""

    def touched(self, keys: KeyRanges) -> TouchedFiles:
        """Load the table and find files; see MergingTable."""
        table = self._refreshed()
        snapshot = table.current_snapshot()
        if snapshot is None:
            return TouchedFiles(None, [])
        manifests = snapshot.manifests(table.io)
        if any(one.content != ManifestContent.DATA for one in manifests):
            raise IngestError(
                f"the Iceberg table {self.place} has files of deleted rows, by a writer with "
                "merge-on-read, which upserts do not support; rewrite its data files, and let "
                "other writers use copy-on-write"
            )
        known = (
            self._known(table, entry.data_file, keys.names)
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        )
        return TouchedFiles(snapshot.snapshot_id, [one for one in known if keys.may_be_in(one)])

    def files_to_rewrite(self, name: str) -> FilesToWrite:
        """Return how executors write rows again; see MergingTable."""
        table = self._refreshed()
        schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
        return replace(self.files_to_write(name), schema=schema.serialize().to_pybytes())

    def replace(
        self,
        touched: TouchedFiles,
        removed: Sequence[KnownFile],
        added: Sequence[WrittenFile],
        batch: BatchName,
    ) -> bool | None:
        """Remove and add files; see MergingTable."""
        table = self._table
        assert table is not None, "call open first"
        if table.metadata.current_snapshot_id != touched.state:
            return None
        if self._number(table, batch.source) >= batch.number:
            return False
        data_files = [data_file(table, file) for file in added]
        committed = self._write(table, data_files, batch, [file.own for file in removed])
        if committed:
            self._expire(table)
        return committed

    def _known(self, table: PyIcebergTable, file: DataFile, names: Sequence[str]) -> KnownFile:
        fields = [table.schema().find_field(name) for name in names]
        least, greatest = (
            {
                field.name: from_bytes(field.field_type, bounds[field.field_id])
                for field in fields
                if isinstance(field.field_type, PrimitiveType) and field.field_id in (bounds or {})
            }
            for bounds in (file.lower_bounds, file.upper_bounds)
        )
        path = file.file_path.removeprefix(f"{table.location()}/")
        return KnownFile(
            path=path,
            rows=file.record_count,
            size=file.file_size_in_bytes,
            partition={
                field.name: text_of(field, file.partition[index])
                for index, field in enumerate(self._partition_by)
            }
            if file.spec_id == table.metadata.default_spec_id
            else None,
            least=least,
            greatest=greatest,
            own=file,
        )

    def _try(
        self, table: PyIcebergTable, files: Sequence[DataFile], batch: BatchName
    ) -> bool | None:
        # Not loaded again for the first attempt: if the state is old, the commit fails.
        if self._number(table, batch.source) >= batch.number:
            return False
        return self._write(table, files, batch)

    def _write(
        self,
        table: PyIcebergTable,
        files: Sequence[DataFile],
        batch: BatchName,
        removed: Sequence[DataFile] = (),
    ) -> bool | None:
        """Commit files to the state of the table that is loaded; see until_committed."""
        try:
            with once(table) as transaction:
                transaction.set_properties({f"{_MARKER}{batch.source}": str(batch.number)})
                # Also without files: the new snapshot makes the commit fail if another one came
                # after this state was loaded.
                made_by = {_MADE_BY: str(batch)}
                update: Any = (
                    ReplacedFiles(Operation.OVERWRITE, transaction, table.io, None, made_by)
                    if removed
                    else transaction.update_snapshot(made_by).merge_append()
                )
                with update:
                    for file in files:
                        update.append_data_file(file)
                    for file in removed:
                        update.delete_data_file(file)
        except CommitFailedException:
            table.refresh()
            return None
        return True

    def _refreshed(self) -> PyIcebergTable:
        assert self._table is not None, "call open first"
        return self._table.refresh()

    def _number(self, table: PyIcebergTable, source: str) -> int:
        return int(table.properties.get(f"{_MARKER}{source}", "-1"))

    def _expire(self, table: PyIcebergTable) -> None:
        """Expire old snapshots of this job, so that commits do not become slower."""
        own = _made_by(table.metadata, _MADE_BY)
        if len(own) < _EXPIRE_AT:
            return
        newest = own[-1].timestamp_ms
        old = own[:-_KEEP] + [
            one
            for one in _made_by(table.metadata, COMPACTED_BY)
            if one.timestamp_ms < newest - _KEEP_COMPACTIONS
        ]
        kept = {reference.snapshot_id for reference in table.metadata.refs.values()}
        ids = [one.snapshot_id for one in old if one.snapshot_id not in kept]
        try:
            with once(table) as transaction:
                ExpireSnapshots(transaction).by_ids(ids).commit()
        except (CommitFailedException, ValueError):
            # Another writer was faster, or has expired them. The next batch tries again.
            table.refresh()

    def _try_to_add(self, schema: pa.Schema) -> bool | None:
        """Add missing columns; return None if another writer was faster."""
        table = self._refreshed()
        known = schema_to_pyarrow(table.schema(), include_field_ids=False)
        if not self._columns.must_change(known, schema):
            return False
        try:
            with table.update_schema() as update:
                update.union_by_name(schema)
        except CommitFailedException:
            return None
        return True

    def _check(self, table: PyIcebergTable) -> None:
        """Raise IngestError if the table needs more of a writer."""
        if table.metadata.format_version > _NEWEST_FORMAT:
            raise IngestError(
                f"the Iceberg table {self.place} has format version "
                f"{table.metadata.format_version}; this job supports up to {_NEWEST_FORMAT}"
            )
        spec: PartitionSpec = table.spec()
        has = [
            (table.schema().find_column_name(one.source_id), str(one.transform))
            for one in spec.fields
        ]
        wants = [(one.column, str(transform_of(one))) for one in self._partition_by]
        if has != wants:
            raise IngestError(
                f"the Iceberg table {self.place} is partitioned by {_listed(has)}, and the job by "
                f"{_listed(wants)}; partition the job in the same way"
            )


def _made_by(metadata: TableMetadata, writer: str) -> list[Snapshot]:
    """Return the snapshots with a property in their summary, from the oldest to the newest."""
    return [
        one
        for one in metadata.snapshots
        if one.summary is not None and writer in one.summary.additional_properties
    ]


def _as_iceberg(schema: pa.Schema) -> pa.Schema:
    """Return the columns with the types that Iceberg has for them: it has no short integers."""
    wider = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
    return pa.schema([field.with_type(wider.get(field.type, field.type)) for field in schema])


def _listed(fields: Sequence[tuple[str | None, str]]) -> str:
    return ", ".join(f"{transform}({column})" for column, transform in fields) or "nothing"
