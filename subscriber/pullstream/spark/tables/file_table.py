"""Folders of Parquet files or JSON lines, with a list of files for each batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from pullstream.spark.errors import IngestError
from pullstream.spark.store_errors import is_of_store, store_cause
from pullstream.spark.stores import store_of

from .batch import BatchName
from .data_files import FilesToWrite, PartitionField, WrittenFile

# The folder with the list of each batch. Readers of tables skip names that begin with `_`.
LISTS = "_batches"
_LIST = re.compile(r"(?P<source>.+)-(?P<number>\d{12,})\.json")

# Where the rights to write are tried.
_PROBE = f"{LISTS}/_probe"


class FileTable:
    """A folder of Parquet files or JSON lines.

    The files of a batch count when its list exists, which is created once: the second of two
    drivers with the same batch stops there. A reader that looks at the folder alone sees the files
    a moment earlier, and after a kill files of an attempt that never counted. They are deleted when
    the batch is written again, or when the table is opened if its list exists.

    Args:
        folder: Path or URL of the folder.
        partition_by: The values by which rows are divided.
        options: Settings of the object store.
        is_json: Whether files have a JSON object in each line, instead of Parquet.
    """

    def __init__(
        self,
        folder: str,
        partition_by: Sequence[PartitionField] = (),
        options: Mapping[str, str] | None = None,
        *,
        is_json: bool = False,
    ) -> None:
        self._folder = folder
        self._partition_by = tuple(partition_by)
        self._options = dict(options or {})
        self._is_json = is_json
        self._store = store_of(folder, self._options)
        self._schema = pa.schema([])
        # The newest list of each source. Lists are only added, and by commits of this object, or
        # of a second driver, which `create` finds.
        self._newest: dict[str, int] = {}
        # Whether a batch has been committed by this object.
        self._has_committed = False

    @property
    def place(self) -> str:
        """The path or URL of the folder."""
        return self._folder

    def open(self, schema: pa.Schema) -> None:
        """Read which batches the folder has, and try the right to write; see Table."""
        self._schema = schema
        try:
            self._store.put(_PROBE, b"")
            self._store.delete(_PROBE)
            for path in self._store.list(LISTS):
                if match := _LIST.fullmatch(path.rpartition("/")[2]):
                    self._note(match["source"], int(match["number"]))
            # A run may have been killed after it created a list, and before it deleted the files of
            # an earlier attempt.
            self.delete_unlisted(*(BatchName(*one) for one in self._newest.items()))
        except Exception as error:
            # Each object store has errors of its own.
            text = f"cannot write to {self.place}: {store_cause(error)}"
            if not is_of_store(error):
                text += "; the job needs the rights to list, create and delete files there"
            raise IngestError(text) from error

    def newest(self, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""
        return self._newest.get(source, -1)

    def files_to_write(self, name: str) -> FilesToWrite:
        """Return how executors write the files of a batch; see Table."""
        return FilesToWrite(
            folder=self._folder,
            prefix="",
            name=name,
            schema=self._schema.serialize().to_pybytes(),
            partition_by=self._partition_by,
            is_json=self._is_json,
            options=self._options,
        )

    def commit(self, files: Sequence[WrittenFile], batch: BatchName) -> bool:
        """Create the list of the batch; see Table."""
        paths = sorted(file.path for file in files)
        content = json.dumps(
            {"batch": str(batch), "rows": sum(file.rows for file in files), "files": paths}
        )
        created = self._store.create(f"{LISTS}/{batch}.json", content.encode())
        self._note(batch.source, batch.number)
        # Only the first batch of a run may be one that a killed run has begun. To look for files of
        # other attempts after each batch would cost more and more.
        if not self._has_committed or any(file.attempt for file in files):
            self.delete_unlisted(batch)
        self._has_committed = True
        return created

    def delete_unlisted(self, *batches: BatchName) -> None:
        """Delete the files of attempts that are not in the lists of batches that have a list."""
        prefixes: list[str] = []
        kept = set[str]()
        for batch in batches:
            listed = self._store.get(f"{LISTS}/{batch}.json")
            if listed is not None:
                prefixes.append(f"part-{batch}-")
                kept.update(json.loads(listed)["files"])
        for path in list(self._store.list()) if prefixes else ():
            if path.rpartition("/")[2].startswith(tuple(prefixes)) and path not in kept:
                self._store.delete(path)

    def _note(self, source: str, number: int) -> None:
        self._newest[source] = max(number, self.newest(source))
