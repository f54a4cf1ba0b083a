"""Commits to Iceberg tables, each tried once, and the entries of their files.

pyiceberg's own commits become slower with each snapshot and each manifest of a table.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import Record

from .data_files import WrittenFile

_RETRIES = "commit.retry.num-retries"


class _OnceTransaction(Transaction):
    """A transaction that is tried once, and that computes the new state once after each change.

    pyiceberg's own one copies all metadata each time that something is asked of it: 15 times in a
    commit, which takes longer for each snapshot of the table.
    """

    _state: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the changes so far."""
        base = self._table.metadata
        known = self._state
        if known is None or known[0] is not base or known[1] is not self._updates:
            self._state = known = base, self._updates, update_table_metadata(base, self._updates)
        return known[2]


def once(table: Table) -> Transaction:
    """Return a transaction on the loaded state of a table, which fails if there is a newer one.

    pyiceberg's retries would not check again what the caller has checked in the loaded state.
    """
    # The retries read this property, which is changed only here in memory.
    metadata = table.metadata
    table.metadata = metadata.model_copy(
        update={"properties": {**metadata.properties, _RETRIES: "0"}}
    )
    return _OnceTransaction(table)


def data_file(table: Table, file: WrittenFile) -> DataFile:
    """Return the entry of a file for the manifests of a table."""
    metadata = table.metadata
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=file.metadata,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/{file.path}",
        file_format=FileFormat.PARQUET,
        # The values by which the writer divided the rows. Those of the statistics would be wrong
        # for a file with nulls.
        partition=Record(*file.partition),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


class ReplacedFiles(_OverwriteFiles):
    """A snapshot with files removed and added, which merges manifests as appends do.

    pyiceberg's own keeps the manifests whose files are all removed, so that each commit has one
    more of them to read.
    """

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = super()._existing_manifests()
        return [one for one in manifests if one.has_added_files() or one.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        manager: _ManifestMergeManager[Any] = _ManifestMergeManager(
            target_size_bytes=TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            min_count_to_merge=TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT,
            merge_enabled=True,
            snapshot_producer=self,
        )
        return manager.merge_manifests(manifests)
