"""Maintenance of Iceberg tables, beside a running job and readers.

A compaction commits an `overwrite` for each partition, because pyiceberg has no `replace`: a reader
of changes sees the rows of the partition as removed and added.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
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

from .cleaning import Cleaned, check_age, delete, is_data, is_temporary, name_of, time_of
from .compaction import TARGET_SIZE, TRIES, Compacted, bins, footer_of, replaced, write_rows
from .data_files import StoredFile, WrittenFile, store_of
from .iceberg import COMPACTED_BY, IcebergTable, data_file, once

# How often a commit is tried while the job is faster. Rows are not written again for that.
_COMMITS = 20

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
        done = Compacted()
        for partition, files in self._partitions().items():
            failed = 0
            while some := bins(files, lambda file: file.file_size_in_bytes, target_size):
                try:
                    new, tries = self._replace(some[0])
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
                    done = done.plus(len(some[0]), tries)
                    files = replaced(files, some[0], new)
        return done

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

    def _partitions(self) -> dict[str, list[DataFile]]:
        """Return the data files of each partition, from the oldest to the newest."""
        table = self._table
        found: dict[str, list[ManifestEntry]] = defaultdict(list)
        for entry in self._entries():
            file = entry.data_file
            # Only the present division can be written.
            if (
                file.spec_id == table.metadata.default_spec_id
                and file.file_format == FileFormat.PARQUET
            ):
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

    def _replace(self, old: list[DataFile]) -> tuple[DataFile, int]:
        """Write the rows of files of a partition to a new file, and commit.

        Returns:
            The new file, and the number of the try that was committed.

        Raises:
            ValidationException: The files have changed meanwhile.
        """
        with tempfile.TemporaryDirectory() as scratch:
            written = self._rewritten(old, Path(scratch))
        new = data_file(self._table, written)
        new.spec_id = old[0].spec_id
        try:
            for number in range(1, _COMMITS + 1):
                if self._try(old, new):
                    return new, number
        except (IngestError, ValidationException):
            self._store.delete(written.path)
            raise
        self._store.delete(written.path)
        raise IngestError(
            f"{_COMMITS} commits of a compaction of {self._place} have failed, because other "
            "writers were faster each time; run it again when they are idle"
        )

    def _try(self, old: list[DataFile], new: DataFile) -> bool:
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
                overwrite.append_data_file(new)
        except CommitFailedException:
            return False
        return True

    def _rewritten(self, files: list[DataFile], scratch: Path) -> WrittenFile:
        """Write the rows of files of a partition to a new one."""
        name = f"part-compacted-{uuid.uuid4().hex}-0.parquet"
        target = scratch / name
        schema = schema_to_pyarrow(self._table.schema(), include_field_ids=True)
        rows = write_rows(self._rows(files), schema, target)
        path = f"{self._folder_of(files[0])}/{name}"
        size, footer = target.stat().st_size, footer_of(target)
        self._store.upload(path, target)
        target.unlink()
        partition = files[0].partition
        values = tuple(partition[index] for index in range(len(partition)))
        return WrittenFile(path, rows, size, values, footer)

    def _folder_of(self, file: DataFile) -> str:
        """Return the folder of a file, relative to the table's."""
        folder = file.file_path.rpartition("/")[0]
        inside = folder.removeprefix(f"{self._table.location()}/")
        # The table may have files elsewhere.
        return "data" if inside == folder else inside

    def _rows(self, files: list[DataFile]) -> Iterator[pa.RecordBatch]:
        table = self._table
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        for file in files:
            # The public method keeps all rows of several files in memory.
            yield from scan._record_batches_from_scan_tasks_and_deletes([FileScanTask(file)], {})

    # ---- clean-up ------------------------------------------------------------------------------

    def _expire(self, ids: set[int]) -> None:
        for _ in range(_COMMITS):
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
            f"{_COMMITS} commits to {self._place} have failed, because other writers were faster "
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
