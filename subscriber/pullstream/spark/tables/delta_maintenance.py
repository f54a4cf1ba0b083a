"""Maintenance of Delta tables, beside a running job and readers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from pullstream.spark.errors import IngestError
from pullstream.spark.store_errors import store_cause
from pullstream.spark.stores import StoredFile, store_of

from .cleaning import Cleaned, check_age, delete, is_data, is_temporary, name_of, time_of
from .compaction import TARGET_SIZE, TRIES, Compacted
from .deleted_keys import limit_of
from .delta_deletions import OldDeletions

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_LOG_FILE = re.compile(r"(\d{20})\.(json|crc|checkpoint(\..+)?\.parquet)")

# Parts of the log that are read at the same time.
_READERS = 16


class MaintainedDelta:
    """A Delta table; see Maintained.

    Args:
        folder: Path or URL of the table.
        options: Settings of the object store.
    """

    def __init__(self, folder: str, options: Mapping[str, str]) -> None:
        self._folder = folder
        self._options = dict(options) or None
        self._store = store_of(folder, options)

    def compact(self, target_size: int = TARGET_SIZE) -> Compacted:
        """Rewrite small files as large ones, one partition in each commit; see Maintained."""
        for number in range(1, TRIES + 1):
            table = self._table(None)
            try:
                result = table.optimize.compact(
                    target_size=target_size,
                    # One partition after the other, so that memory does not grow with their number.
                    max_concurrent_tasks=1,
                    min_commit_interval=0,
                )
            except CommitFailedError:
                # Another writer has removed a file that was being rewritten. What is committed
                # stays so, and the next try looks at the rest.
                continue
            except (DeltaError, OSError) as error:
                raise IngestError(f"cannot compact {self._folder}: {store_cause(error)}") from error
            removed, added = result["numFilesRemoved"], result["numFilesAdded"]
            return Compacted(removed, added, number if removed else 0)
        raise IngestError(
            f"the compaction of {self._folder} has failed {TRIES} times, because another writer "
            "rewrites the same files; run it again when that is idle. Partitions that are already "
            "compacted stay so"
        )

    def drop_deleted(self, age: float, target_size: int = TARGET_SIZE) -> Compacted:
        """Leave out rows of deleted keys, at most a partition in a commit; see Maintained."""
        before = limit_of(self._store, age)
        return OldDeletions(self._folder, self._options, before).drop(target_size)

    def clean(self, older_than: float, *, apply: bool) -> Cleaned:
        """Delete old parts of the log, and files that no other version names; see Maintained."""
        check_age(older_than)
        until = time_of(self._store) - older_than
        # Before the log, so that a batch that was committed meanwhile is known.
        old = [
            file
            for file in self._store.files()
            if file.modified < until and (is_data(file, (".parquet",)) or is_temporary(file))
        ]
        log = list(self._store.files(_LOG))
        first = self._first_kept(log, until)
        table = self._table(first)
        kept = {name_of(path) for path in table.file_uris()}
        kept |= self._added_since(first, log)
        files = [file for file in old if file.name not in kept]
        entries, versions = _removable(log, first, until)
        files += entries
        if apply:
            delete(self._store, files)
        return Cleaned(
            versions, tuple(sorted(one.path for one in files)), sum(one.size for one in files)
        )

    def _table(self, version: int | None) -> DeltaTable:
        try:
            return DeltaTable(self._folder, version=version, storage_options=self._options)
        except (DeltaError, OSError) as error:
            raise IngestError(
                f"cannot open the Delta table {self._folder}: {store_cause(error)}"
            ) from error

    def _first_kept(self, log: list[StoredFile], until: float) -> int:
        """Return the version that was the newest one at a time, or the oldest that is left."""
        commits = _versions(log, _COMMIT)
        if not commits:
            raise IngestError(
                f"there is no Delta table in {self._folder}: {_LOG} has no commits; name the "
                "folder of the table"
            )
        newest = max(commits)
        past = [number for number, file in commits.items() if file.modified < until]
        # A version can be read if all commits since a checkpoint, or since the first one, are left.
        complete = newest
        while complete - 1 in commits:
            complete -= 1
        readable = [one for one in _versions(log, _CHECKPOINT) if one >= complete - 1]
        oldest = 0 if complete == 0 else min(readable, default=newest)
        return max([oldest, *past]) if past else oldest

    def _added_since(self, version: int, log: list[StoredFile]) -> set[str]:
        """Return the names of the files that later versions have added."""
        paths = [file.path for number, file in _versions(log, _COMMIT).items() if number > version]
        with ThreadPoolExecutor(_READERS) as readers:
            return {name for names in readers.map(self._added, paths) for name in names}

    def _added(self, path: str) -> list[str]:
        content = self._store.get(path)
        if content is None:
            raise IngestError(
                f"{path} in {self._folder} has disappeared; another program is cleaning the table. "
                "Try again when it has ended"
            )
        actions = map(json.loads, content.splitlines())
        return [name_of(unquote(one["add"]["path"])) for one in actions if "add" in one]


def _versions(log: Iterable[StoredFile], kind: re.Pattern[str]) -> dict[int, StoredFile]:
    return {int(match[1]): file for file in log if (match := kind.fullmatch(file.name))}


def _removable(log: list[StoredFile], first: int, until: float) -> tuple[list[StoredFile], int]:
    """Return the files of the log that are not needed from a version on, and their commits."""
    start = max((one for one in _versions(log, _CHECKPOINT) if one <= first), default=0)
    files = [
        file
        for file in log
        if (match := _LOG_FILE.fullmatch(file.name))
        and int(match[1]) < start
        and file.modified < until
    ]
    return files, len(_versions(files, _COMMIT))
