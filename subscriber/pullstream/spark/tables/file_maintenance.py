"""Maintenance of folders of Parquet files or JSON lines.

A plain reader sees all files of the folder, so a compaction is not one step for it: it sees rows
twice for a moment, or after a kill until the next compaction. Job and readers stop meanwhile.

A compaction of a partition writes new files, and then a list, which is created once. The list names
the new files and those that they replace. So rows count once whenever the compaction is killed: the
next one deletes new files without a list, and replaced files.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pullstream.spark.errors import IngestError
from pullstream.spark.stores import LocalFolder, StoredFile, store_of
from pullstream_protocol.file_lock import FileLock

from .cleaning import LEAST_AGE, Cleaned, check_age, delete, is_data, is_temporary, time_of
from .compaction import TARGET_SIZE, Compacted, bins, is_small, replaced, write_rows
from .file_table import LISTS

# The lock of a job, if its state is in the folder (see ingest/state.py), and that of compactions.
_JOB_LOCK = "_state/LOCK"
_LOCK = f"{LISTS}/LOCK"

_COMPACTION = re.compile(r"compaction-(\d{12})\.files\.json")
_BATCH = re.compile(r"(?P<source>.+)-(?P<number>\d{12,})\.json")
_NEW = "part-compacted-"

# Names that only jobs and compactions give; other files are not touched.
_OWN = re.compile(r"part-(compacted-[0-9a-f]{32}|[0-9a-f]{32}-\d{12,}-[0-9a-f]{8})-.+")


@dataclass(frozen=True)
class _Lists:
    """The contents of the lists of a folder.

    Attributes:
        named: Paths of all files that a list names.
        replaced: Paths of the files that compactions have replaced.
        compactions: Number of the newest compaction; -1 if there was none.
        batches: For each list of a batch, its path and the paths of its files, by source.
    """

    named: set[str]
    replaced: set[str]
    compactions: int
    batches: dict[str, list[tuple[int, str, list[str]]]]

    @property
    def live(self) -> set[str]:
        return self.named - self.replaced


class MaintainedFiles:
    """A folder of Parquet files or JSON lines; see Maintained.

    Args:
        folder: Path or URL of the folder.
        options: Settings of the object store.
        is_json: Whether files have a JSON object in each line, instead of Parquet.
    """

    def __init__(self, folder: str, options: Mapping[str, str], *, is_json: bool) -> None:
        self._folder = folder
        self._store = store_of(folder, options)
        self._is_json = is_json
        self._suffix = ".json" if is_json else ".parquet"

    def compact(self, target_size: int = TARGET_SIZE) -> Compacted:
        """Rewrite small files as large ones, while no job runs; see Maintained."""
        done = Compacted()
        with self._alone(), tempfile.TemporaryDirectory() as scratch:
            lists = self._lists()
            number = lists.compactions + 1
            for files in self._partitions(self._finished(lists), target_size):
                while some := bins(files, lambda file: file.size, target_size):
                    added = self._rewritten(some[0], Path(scratch))
                    self._commit(number, added, some[0])
                    number += 1
                    delete(self._store, some[0])
                    done += Compacted(len(some[0]), 1, 1)
                    files = replaced(files, some[0], added)
        return done

    def drop_deleted(self, age: float, target_size: int = TARGET_SIZE) -> Compacted:
        """Refuse it: jobs only append to such a folder; see Maintained."""
        raise IngestError(
            f"{self._folder} is a folder of {'JSON lines' if self._is_json else 'Parquet files'}, "
            "which takes no upserts, so it has no rows of deleted keys; only Delta and Iceberg "
            "tables have. Compact it without an age of deletions"
        )

    def clean(self, older_than: float, *, apply: bool) -> Cleaned:
        """Delete files without a list, and lists without files; see Maintained."""
        check_age(older_than)
        until = time_of(self._store) - older_than
        old = [file for file in self._store.files() if file.modified < until]
        # After the files, so that a batch that was committed meanwhile is known.
        lists = self._lists()
        if not lists.batches:
            raise IngestError(
                f"{self._folder} has no lists of batches in {LISTS}, so no file in it is known to "
                "be without use; name the folder of a table that a job has written"
            )
        unlisted = [
            file
            for file in old
            if is_temporary(file) or (self._is_own(file) and file.path not in lists.live)
        ]
        ages = {file.path: file for file in old}
        empty = [
            ages[path]
            for batches in lists.batches.values()
            # The newest one tells which batches the table has.
            for _, path, files in sorted(batches)[:-1]
            if path in ages and lists.live.isdisjoint(files)
        ]
        if apply:
            delete(self._store, [*unlisted, *empty])
        files = sorted([*unlisted, *empty])
        return Cleaned(0, tuple(file.path for file in files), sum(file.size for file in files))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the locks of the job's state and of compactions during the block, on a disk."""
        with ExitStack() as locks:
            if isinstance(self._store, LocalFolder):
                for path, user in ((_JOB_LOCK, "the job"), (_LOCK, "another compaction")):
                    lock = self._store.folder / path
                    # A job may have its state elsewhere.
                    if lock.parent.exists():
                        locks.callback(self._locked(lock, user).release)
            yield

    def _locked(self, lock: Path, user: str) -> FileLock:
        try:
            return FileLock(lock)
        except BlockingIOError:
            raise IngestError(
                f"{user} is writing to {self._folder}; stop it first. Folders of files are "
                "compacted while no job runs; Delta and Iceberg need no pause"
            ) from None

    def _lists(self) -> _Lists:
        named, gone, compactions = set[str](), set[str](), -1
        batches: dict[str, list[tuple[int, str, list[str]]]] = defaultdict(list)
        for path in self._store.list(LISTS):
            name = path.rpartition("/")[2]
            batch, compaction = _BATCH.fullmatch(name), _COMPACTION.fullmatch(name)
            if batch is None and compaction is None:
                continue
            content = self._store.get(path)
            # A list may be deleted meanwhile, by another `clean`.
            known = {"files": []} if content is None else json.loads(content)
            named.update(known["files"])
            gone.update(known.get("replaces", ()))
            if batch is not None:
                batches[batch["source"]].append((int(batch["number"]), path, known["files"]))
            if compaction is not None:
                compactions = max(compactions, int(compaction[1]))
        return _Lists(named, gone, compactions, batches)

    def _finished(self, lists: _Lists) -> list[StoredFile]:
        """Finish a compaction that was killed, and return the files of the table."""
        found = list(self._store.files())
        delete(self._store, [file for file in found if file.path in lists.replaced])
        delete(self._store, self._left_over(found, lists))
        return [file for file in found if file.path in lists.live]

    def _left_over(self, found: list[StoredFile], lists: _Lists) -> list[StoredFile]:
        """Return new files of compactions that have ended before their list was created."""
        # Where no lock tells that a compaction has ended, its age does.
        until = math.inf
        if not isinstance(self._store, LocalFolder):
            until = time_of(self._store) - LEAST_AGE
        return [
            file
            for file in found
            if file.name.startswith(_NEW) and file.path not in lists.named and file.modified < until
        ]

    def _partitions(self, files: list[StoredFile], target_size: int) -> list[list[StoredFile]]:
        """Return the small files that may become one, from the oldest to the newest.

        They are in one folder, and have the same columns.
        """
        found: dict[tuple[str, bytes], list[StoredFile]] = defaultdict(list)
        for file in sorted(files, key=lambda one: (one.modified, one.path)):
            if file.name.endswith(self._suffix) and is_small(file.size, target_size):
                columns = b"" if self._is_json else self._schema(file).serialize().to_pybytes()
                found[file.path.rpartition("/")[0], columns].append(file)
        return list(found.values())

    def _rewritten(self, files: list[StoredFile], scratch: Path) -> StoredFile:
        """Write the rows of files to a new one."""
        folder = files[0].path.rpartition("/")[0]
        name = f"{_NEW}{uuid.uuid4().hex}-0{self._suffix}"
        target = scratch / name
        if self._is_json:
            with target.open("wb") as joined:
                for file in files:
                    joined.write(self._content(file))
        else:
            write_rows(self._rows(files), self._schema(files[0]), target)
        path = f"{folder}/{name}" if folder else name
        size = target.stat().st_size
        self._store.upload(path, target)
        target.unlink()
        return StoredFile(path, size, 0)

    def _commit(self, number: int, added: StoredFile, old: list[StoredFile]) -> None:
        content = {"files": [added.path], "replaces": [file.path for file in old]}
        path = f"{LISTS}/compaction-{number:012}.files.json"
        if not self._store.create(path, json.dumps(content).encode()):
            delete(self._store, [added])
            raise IngestError(
                f"{self._folder} is being compacted by another process; wait for its end"
            )

    def _rows(self, files: list[StoredFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from self._parquet(file).iter_batches()

    def _schema(self, file: StoredFile) -> pa.Schema:
        return self._parquet(file).schema_arrow

    def _parquet(self, file: StoredFile) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(self._content(file)))

    def _content(self, file: StoredFile) -> bytes:
        content = self._store.get(file.path)
        if content is None:
            raise IngestError(
                f"{file.path} in {self._folder} has disappeared; stop all programs that change the "
                "folder, and try again"
            )
        return content

    def _is_own(self, file: StoredFile) -> bool:
        return is_data(file, (self._suffix,)) and _OWN.fullmatch(file.name) is not None
