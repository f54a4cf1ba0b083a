"""Maintenance of Iceberg tables, beside a running job and readers.

A compaction commits an `overwrite` for each partition, because pyiceberg has no `replace`: a reader
of changes sees the rows of the partition as removed and added.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots, _OverwriteFiles

from pullstream.spark.errors import IngestError
from pullstream.spark.stores import StoredFile, store_of

from .cleaning import Cleaned, check_age, delete, is_data, is_temporary, name_of, time_of
from .compaction import (
    COMMITS,
    TARGET_SIZE,
    TRIES,
    Compacted,
    bins,
    footer_of,
    groups,
    replaced,
    write_rows,
)
from .data_files import WrittenFile
from .deleted_keys import check_columns, limit_of, without_deleted
from .iceberg import COMPACTED_BY, IcebergTable
from .iceberg_commits import data_file, once
from .merge import DELETED, PUBLISHED

# Files that may be without use. Other files, such as `version-hint.text`, are those of a catalog.
_DATA = (".parquet", ".orc", ".avro", ".puffin")
_METADATA = (".avro", ".metadata.json", ".stats", ".puffin")

_Entries = dict[str, list[ManifestEntry]]


class MaintainedIceberg:
    """An Iceberg table; see Maintained.

    Args:
        table: The table.
        options: Settings of the object store.
    """

    def __init__(self, table: IcebergTable, options: Mapping[str, str]) -> None:
        self._table = table.existing()
        self._place = table.place
        self._store = store_of(self._table.location(), options)
        # The entries of manifests, which never change.
        self._known: _Entries = {}

    def compact(self, target_size: int = TARGET_SIZE) -> Compacted:
        """Rewrite small files as large ones, one partition in each commit; see Maintained."""
        return self._rewrite(lambda files: bins(files, _size, target_size))

    def drop_deleted(self, age: float, target_size: int = TARGET_SIZE) -> Compacted:
        """Leave out rows of deleted keys, at most a partition in a commit; see Maintained."""
        before = limit_of(self._store, age)
        check_columns(schema_to_pyarrow(self._table.schema()), self._place)
        # Files never change, so each one is read once.
        has_deleted = cache(lambda file: self._has_deleted(file, before))
        for entry in self._entries():
            file = entry.data_file
            if not self._is_writable(file) and has_deleted(file):
                raise IngestError(
                    f"the Iceberg table {self._place} has rows of deleted keys in {file.file_path},"
                    " which is no Parquet file of the table's present partitioning; let Spark's "
                    "rewrite_data_files write such files again, and then run this command again"
                )
        return self._rewrite(
            lambda files: groups([one for one in files if has_deleted(one)], _size, target_size),
            before,
        )

    def clean(self, older_than: float, *, apply: bool) -> Cleaned:
        """Expire snapshots, and delete files that no other one names; see Maintained."""
        check_age(older_than)
        until = time_of(self._store) - older_than
        # Before the state of the table, so that a batch that was committed meanwhile is known.
        old = [
            file
            for file in self._store.files()
            if file.modified < until and (_can_be_removed(file) or is_temporary(file))
        ]
        self._table.refresh()
        expired = {one.snapshot_id for one in _expirable(self._table.metadata, until)}
        if apply and expired:
            self._expire(expired)
        kept = self._names(expired)
        files = sorted(file for file in old if file.name not in kept)
        if apply:
            delete(self._store, files)
        return Cleaned(
            len(expired), tuple(file.path for file in files), sum(file.size for file in files)
        )

    # ---- compaction ----------------------------------------------------------------------------

    def _rewrite(
        self,
        choose: Callable[[list[DataFile]], list[list[DataFile]]],
        before: datetime | None = None,
    ) -> Compacted:
        """Write the files of each partition again that are chosen.

        Args:
            choose: Returns the files of a partition that become one file each.
            before: Rows of keys that were deleted before this time are left out.
        """
        done = Compacted()
        for partition, files in self._partitions().items():
            failed = 0
            while some := choose(files):
                try:
                    new, one = self._replace(some[0], before)
                except ValidationException:
                    failed += 1
                    if failed == TRIES:
                        raise IngestError(
                            f"the compaction of {self._place} has failed {TRIES} times, because "
                            "another writer rewrites the same files; run it again when that is "
                            "idle. What is already compacted stays so"
                        ) from None
                    files = self._partitions().get(partition, [])
                else:
                    failed = 0
                    done += one
                    files = replaced(files, some[0], new)
        return done

    def _has_deleted(self, file: DataFile, before: datetime) -> bool:
        """Return whether a file has rows of keys that were deleted before a time."""
        table = self._table
        is_old = parse(f"{DELETED} = true AND {PUBLISHED} < '{before.isoformat()}'")
        if not _InclusiveMetricsEvaluator(table.schema(), is_old).eval(file):
            return False
        scan = ArrowScan(table.metadata, table.io, table.schema().select(DELETED), is_old)
        return any(batch.num_rows for batch in _rows(scan, [file]))

    def _partitions(self) -> dict[str, list[DataFile]]:
        """Return the data files of each partition, from the oldest to the newest."""
        found: dict[str, list[ManifestEntry]] = defaultdict(list)
        for entry in self._entries():
            file = entry.data_file
            if self._is_writable(file):
                found[repr(file.partition)].append(entry)
        return {
            partition: [
                entry.data_file
                for entry in sorted(
                    entries, key=lambda one: (one.sequence_number or 0, one.data_file.file_path)
                )
            ]
            for partition, entries in found.items()
        }

    def _is_writable(self, file: DataFile) -> bool:
        # Only the present division can be written.
        is_present = file.spec_id == self._table.metadata.default_spec_id
        return is_present and file.file_format == FileFormat.PARQUET

    def _entries(self) -> Iterator[ManifestEntry]:
        """Return the entries of the table's data files."""
        manifests = self._manifests()
        paths = {manifest.manifest_path for manifest in manifests}
        for path in self._known.keys() - paths:
            del self._known[path]
        for manifest in manifests:
            yield from _read(manifest, self._table.io, self._known)

    def _manifests(self) -> list[ManifestFile]:
        snapshot = self._table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(self._table.io)
        if any(one.content != ManifestContent.DATA for one in manifests):
            raise IngestError(
                f"the Iceberg table {self._place} has delete files, which this command does not "
                "support; compact it with the engine that has written them"
            )
        return manifests

    def _replace(
        self, old: list[DataFile], before: datetime | None
    ) -> tuple[DataFile | None, Compacted]:
        """Write the rows of files of a partition to a new file, and commit.

        Returns:
            The new file, if there are rows, and what was done.

        Raises:
            ValidationException: The files have changed meanwhile.
        """
        with tempfile.TemporaryDirectory() as scratch:
            written = self._rewritten(old, before, Path(scratch))
        new = None
        if written.rows:
            new = data_file(self._table, written)
            new.spec_id = old[0].spec_id
        dropped = sum(file.record_count for file in old) - written.rows
        try:
            for number in range(1, COMMITS + 1):
                if self._try(old, new):
                    return new, Compacted(len(old), int(new is not None), number, dropped)
        except (IngestError, ValidationException):
            self._store.delete(written.path)
            raise
        self._store.delete(written.path)
        raise IngestError(
            f"{COMMITS} commits of a compaction of {self._place} have failed, because other "
            "writers were faster each time; run it again when they are idle"
        )

    def _try(self, old: list[DataFile], new: DataFile | None) -> bool:
        # A job appends meanwhile. That is no conflict, but its state must be the base.
        table = self._table.refresh()
        self._manifests()
        if table.metadata.default_spec_id != old[0].spec_id:
            raise ValidationException("the table is partitioned in another way now")
        try:
            # Raises ValidationException if one of the old files is gone.
            with (
                once(table) as transaction,
                _Rewrite(transaction, table.io, self._known) as overwrite,
            ):
                for file in old:
                    overwrite.delete_data_file(file)
                if new is not None:
                    overwrite.append_data_file(new)
        except CommitFailedException:
            return False
        return True

    def _rewritten(
        self, files: list[DataFile], before: datetime | None, scratch: Path
    ) -> WrittenFile:
        """Write the rows of files of a partition to a new one, unless there are none."""
        name = f"part-compacted-{uuid.uuid4().hex}-0.parquet"
        target = scratch / name
        table = self._table
        schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
        rows = _rows(ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()), files)
        if before is not None:
            rows = (without_deleted(batch, before) for batch in rows)
        number = write_rows(rows, schema, target)
        path = f"{self._folder_of(files[0])}/{name}"
        size, footer = target.stat().st_size, footer_of(target)
        if number:
            self._store.upload(path, target)
        partition = files[0].partition
        values = tuple(partition[index] for index in range(len(partition)))
        return WrittenFile(path, number, size, values, footer)

    def _folder_of(self, file: DataFile) -> str:
        """Return the folder of a file, relative to the table's."""
        folder = file.file_path.rpartition("/")[0]
        inside = folder.removeprefix(f"{self._table.location()}/")
        # The table may have files elsewhere.
        return "data" if inside == folder else inside

    # ---- clean-up ------------------------------------------------------------------------------

    def _expire(self, ids: set[int]) -> None:
        for _ in range(COMMITS):
            try:
                with once(self._table) as transaction:
                    ExpireSnapshots(transaction).by_ids(sorted(ids)).commit()
            except (CommitFailedException, ValueError):
                self._table.refresh()
                # The job has expired some of them.
                ids &= {one.snapshot_id for one in self._table.metadata.snapshots}
            else:
                self._table.refresh()
                return
        raise IngestError(
            f"{COMMITS} commits to {self._place} have failed, because other writers were faster "
            "each time. Nothing was removed; run the command again when they are idle"
        )

    def _names(self, expired: set[int]) -> set[str]:
        """Return the names of all files that the table needs, without expired snapshots."""
        table = self._table
        metadata = table.metadata
        names = {name_of(table.metadata_location)}
        names.update(name_of(one.metadata_file) for one in metadata.metadata_log)
        names.update(name_of(one.statistics_path) for one in metadata.statistics)
        names.update(name_of(one.statistics_path) for one in metadata.partition_statistics)
        seen = set()
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id in expired:
                continue
            names.add(name_of(snapshot.manifest_list))
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path in seen:
                    continue
                seen.add(manifest.manifest_path)
                names.add(name_of(manifest.manifest_path))
                # Also the entries of removed files: the job expires its own snapshots early, and
                # queries that have begun with one of them still read these files.
                names.update(
                    name_of(entry.data_file.file_path)
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                )
        return names


class _Rewrite(_OverwriteFiles):
    """The replacement of files by a new one, which reads each manifest once for all tries.

    While a job commits, a try must be short. pyiceberg's own class reads all manifests of a
    partition twice in each try.
    """

    def __init__(self, transaction: Transaction, io: FileIO, known: _Entries) -> None:
        super().__init__(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=io,
            snapshot_properties={COMPACTED_BY: "true"},
        )
        self._known = known

    def _deleted_entries(self) -> list[ManifestEntry]:
        entries = [
            _with_status(entry, ManifestEntryStatus.DELETED, self._snapshot_id)
            for _, some in self._parent_entries()
            for entry in some
            if entry.data_file in self._deleted_data_files
        ]
        self._validate_required_deletes(entries)
        return entries

    def _existing_manifests(self) -> list[ManifestFile]:
        found = []
        for manifest, entries in self._parent_entries():
            rest = [one for one in entries if one.data_file not in self._deleted_data_files]
            if len(rest) == len(entries):
                found.append(manifest)
            elif rest:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in rest:
                        writer.add_entry(
                            _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)
                        )
                found.append(writer.to_manifest_file())
        return found

    def _parent_entries(self) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
        parent = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        for manifest in parent.manifests(self._io) if parent is not None else ():
            yield manifest, _read(manifest, self._io, self._known)


def _size(file: DataFile) -> int:
    return file.file_size_in_bytes


def _rows(scan: ArrowScan, files: list[DataFile]) -> Iterator[pa.RecordBatch]:
    """Return the rows of files in order."""
    for file in files:
        # The public method keeps all rows of several files in memory.
        yield from scan._record_batches_from_scan_tasks_and_deletes([FileScanTask(file)], {})


def _read(manifest: ManifestFile, io: FileIO, known: _Entries) -> list[ManifestEntry]:
    """Return the entries of a manifest, except for those of removed files."""
    path = manifest.manifest_path
    if path not in known:
        known[path] = manifest.fetch_manifest_entry(io, discard_deleted=True)
    return known[path]


def _with_status(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot: int | None
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _expirable(metadata: TableMetadata, until: float) -> list[Snapshot]:
    """Return the snapshots from before a time, without those that a branch or tag names."""
    kept = {reference.snapshot_id for reference in metadata.refs.values()}
    return [
        one
        for one in metadata.snapshots
        if one.timestamp_ms < until * 1000 and one.snapshot_id not in kept
    ]


def _can_be_removed(file: StoredFile) -> bool:
    folder = file.path.partition("/")[0]
    if folder == "metadata":
        return file.name.endswith(_METADATA)
    return folder == "data" and is_data(file, _DATA)
