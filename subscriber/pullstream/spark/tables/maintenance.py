"""Maintenance of tables: few large files instead of many small ones, and no files without use.

Both work on a table of any writer, beside readers. Delta and Iceberg also allow a running job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pullstream.spark.errors import IngestError
from pullstream.spark.stores import LocalFolder, store_of

from .cleaning import Cleaned
from .compaction import TARGET_SIZE, Compacted
from .folder_formats import formats_in

FORMATS = ("delta", "iceberg", "parquet", "json")


class Maintained(Protocol):
    """A table that can be maintained."""

    def compact(self, target_size: int = TARGET_SIZE) -> Compacted:
        """Rewrite small files as large ones, each partition for itself.

        Rows, their order in an ordering key, and the newest batch of each source stay. A second
        call changes nothing.

        Args:
            target_size: Size of the new files in bytes, approximately.

        Raises:
            IngestError: The table cannot be rewritten, or other writers were faster each time.
        """

    def drop_deleted(self, age: float, target_size: int = TARGET_SIZE) -> Compacted:
        """Leave out rows of deleted keys, and write the files again that have such rows.

        Other rows, their order in a file, and the newest batch of each source stay. A second call
        changes nothing.

        Args:
            age: Least time in seconds since the deletion was published, by the clock of the store.
                At least LEAST_AGE. A change that is older than the deletion and comes after this
                call revives the key.
            target_size: Size of the new files in bytes, at most and approximately.

        Raises:
            IngestError: The table does not take changes of rows, or cannot be rewritten, or other
                writers were faster each time.
            ValueError: `age` is too short.
        """

    def clean(self, older_than: float, *, apply: bool) -> Cleaned:
        """Remove old versions, and files that no other version names.

        Among the files are those of batches that were never committed. The newest batch of each
        source stays.

        Args:
            older_than: Least age in seconds, by the clock of the store. At least LEAST_AGE.
            apply: Whether to remove them. False: return what would be removed.

        Raises:
            IngestError: The table cannot be read, or changed meanwhile.
            ValueError: `older_than` is too short.
        """


@dataclass(frozen=True, kw_only=True)
class TableLocation:
    """A table that exists.

    Attributes:
        folder: Path or URL of its folder.
        format: "delta", "iceberg", "parquet" or "json". Default: that of the files in the folder.
        storage: Settings of the object store; see obstore's documentation.
        catalog: Properties of the Iceberg catalog. Default: the file `catalog.db` beside the
            folder.
        table: Name of the table in the Iceberg catalog. Default: the last part of `folder`, in the
            namespace `default`.
    """

    folder: str
    format: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog: Mapping[str, str] | None = field(default=None, repr=False)
    table: str | None = None

    def opened(self) -> Maintained:
        """Return the table.

        Raises:
            IngestError: There is no table, or its format is not clear.
        """
        kind = self.format or _format_of(self.folder, self.storage, self.catalog)
        if kind != "iceberg" and (self.catalog is not None or self.table is not None):
            raise IngestError(
                f"{self.folder} has the format {kind}, but a catalog or a table's name is given; "
                "only Iceberg has these. Leave them out, or give the format iceberg"
            )
        match kind:
            case "delta":
                from .delta_maintenance import MaintainedDelta

                return MaintainedDelta(self.folder, self.storage)
            case "iceberg":
                from .iceberg import IcebergTable
                from .iceberg_maintenance import MaintainedIceberg

                table = IcebergTable(self.folder, (), self.storage, self.catalog, self.table)
                return MaintainedIceberg(table, self.storage)
            case _:
                from .file_maintenance import MaintainedFiles

                return MaintainedFiles(self.folder, self.storage, is_json=kind == "json")


def _format_of(folder: str, storage: Mapping[str, str], catalog: Mapping[str, str] | None) -> str:
    """Return the format of a table.

    Raises:
        IngestError: There is no table, or there are traces of several formats.
    """
    store = store_of(folder, storage)
    if catalog is not None:
        return "iceberg"
    if not isinstance(store, LocalFolder):
        raise IngestError(
            f"the format of {folder} is not known; name it: it is one of {', '.join(FORMATS)}"
        )
    found = formats_in(store)
    if not found and not Path(folder.removeprefix("file://")).exists():
        raise IngestError(f"{folder} does not exist; give the folder or URL of a table")
    if len(found) != 1:
        what = " and ".join(sorted(found)) if found else "no table that a job has written"
        raise IngestError(
            f"{folder} has {what}, so its format is not clear; name it: it is one of "
            f"{', '.join(FORMATS)}"
        )
    return found.pop()
