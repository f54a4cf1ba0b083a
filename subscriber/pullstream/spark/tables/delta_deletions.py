"""Rows of deleted keys are dropped from a Delta table, while a job and readers run.

deltalake's own deletion fails after each commit that adds files, so it would never land while a
job is busy. This one depends on nothing but the files that it writes again.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import Fragment, ParquetReadOptions

from pullstream.spark.errors import IngestError
from pullstream.spark.stores import store_of
from pullstream_protocol.clock import SYSTEM_CLOCK

from .compaction import COMMITS, TRIES, Compacted, footer_of, groups, write_rows
from .data_files import WrittenFile
from .deleted_keys import check_columns, without_deleted
from .delta import STATE_AGE, check_features, check_removable
from .delta_files import KnownFiles, added_action, removed_action
from .delta_log import DeltaLog
from .merge import DELETED, PUBLISHED
from .touched_files import KnownFile

# Rows that are in memory at once. Files of other writers may have large row groups.
_ROWS_AT_ONCE = 16_384


class _OutdatedError(Exception):
    """The loaded state of the table is too old to go on with."""


class OldDeletions:
    """The rows of a Delta table whose keys were deleted before a time.

    Args:
        folder: Path or URL of the table.
        options: Settings of the object store.
        before: The time.
    """

    def __init__(self, folder: str, options: Mapping[str, str] | None, before: datetime) -> None:
        self._folder = folder
        self._options = dict(options or {}) or None
        self._store = store_of(folder, options)
        self._before = before
        # Files never change, so those without such rows are read once.
        self._without: set[str] = set()

    def drop(self, target_size: int) -> Compacted:
        """Write the files again that have such rows; see Maintained."""
        done, failed = Compacted(), 0
        while failed < TRIES:
            try:
                state = _State(self._folder, self._options, self._before)
                for files in self._groups(state, target_size):
                    done += self._replace(state, files)
                    failed = 0
            except _OutdatedError:
                failed += 1
            except (DeltaError, OSError) as error:
                raise IngestError(
                    f"cannot drop rows of deleted keys from {self._folder}: {error}"
                ) from error
            else:
                return done
        raise IngestError(
            f"the removal of rows of deleted keys from {self._folder} has failed {TRIES} times, "
            "because another writer rewrites the same files; run it again when that is idle. Rows "
            "that are already dropped stay so"
        )

    def _groups(self, state: _State, target_size: int) -> Iterator[list[KnownFile]]:
        """Return the files with such rows that become one file each."""
        for files in state.partitions():
            found = []
            for file in files:
                if file.path not in self._without and state.has_rows(file):
                    found.append(file)
                else:
                    self._without.add(file.path)
            yield from groups(found, lambda file: file.size, target_size)

    def _replace(self, state: _State, files: Sequence[KnownFile]) -> Compacted:
        """Write the other rows of files of a partition to a new file, and commit.

        Raises:
            _OutdatedError: The files have changed meanwhile.
        """
        state.check_age()
        with tempfile.TemporaryDirectory() as scratch:
            new, dropped = self._rewritten(state, files, Path(scratch))
        now = round(SYSTEM_CLOCK.now() * 1000)
        actions = [removed_action(file, now) for file in files]
        actions += [added_action(file, files[0].partition or {}, now) for file in new]
        try:
            for number in range(1, COMMITS + 1):
                if state.log.append(actions, "DELETE"):
                    state.log.add_checkpoint(state.settings)
                    return Compacted(len(files), len(new), number, dropped)
                state.follow(files)
        except _OutdatedError:
            self._delete(new)
            raise
        self._delete(new)
        raise IngestError(
            f"{COMMITS} commits to {self._folder} have failed, because other writers were faster "
            "each time; run the command again when they are idle"
        )

    def _rewritten(
        self, state: _State, files: Sequence[KnownFile], scratch: Path
    ) -> tuple[list[WrittenFile], int]:
        """Write the other rows of files to a new one, and return it and the number of the rest."""
        name = f"part-compacted-{uuid.uuid4().hex}-0.parquet"
        target = scratch / name
        kept = (without_deleted(one, self._before) for one in state.rows(files))
        rows = write_rows((one.select(state.names) for one in kept), state.schema, target)
        dropped = state.number(files) - rows
        if not rows:
            return [], dropped
        folder = files[0].path.rpartition("/")[0]
        path = f"{folder}/{name}" if folder else name
        size, footer = target.stat().st_size, footer_of(target)
        self._store.upload(path, target)
        return [WrittenFile(path, rows, size, (), footer)], dropped

    def _delete(self, files: Sequence[WrittenFile]) -> None:
        for file in files:
            self._store.delete(file.path)


class _State:
    """A state of the table, with the changes of later versions.

    Args:
        folder: Path or URL of the table.
        options: Settings of the object store.
        before: The time before which deletions are old.

    Raises:
        DeltaError: The table cannot be opened.
        IngestError: It needs more of a writer, or does not take changes of rows.
    """

    def __init__(self, folder: str, options: dict[str, str] | None, before: datetime) -> None:
        self._folder = folder
        self._table = DeltaTable(folder, storage_options=options)
        self._loaded = SYSTEM_CLOCK.now()
        check_features(self._table, folder)
        check_removable(self._table, folder)
        self.log = DeltaLog(folder, options, self._table.version())
        self.settings = self._table.metadata().configuration
        dataset = self._table.to_pyarrow_dataset(
            parquet_read_options=ParquetReadOptions(coerce_int96_timestamp_unit="us")
        )
        check_columns(dataset.schema, folder)
        self._schema = dataset.schema
        divided_by = self._table.metadata().partition_columns
        # Files lack the columns of the partition.
        self.schema = pa.schema([one for one in dataset.schema if one.name not in divided_by])
        self.names: list[str] = self.schema.names
        limit = pa.scalar(before, dataset.schema.field(PUBLISHED).type)
        self._is_old = pc.field(DELETED) & (pc.field(PUBLISHED) < limit)
        self._fragments: dict[str, Fragment] = {one.path: one for one in dataset.get_fragments()}

    def partitions(self) -> list[list[KnownFile]]:
        """Return the files of each partition."""
        found: dict[tuple[tuple[str, str | None], ...], list[KnownFile]] = defaultdict(list)
        for file in KnownFiles(pa.table(self._table.get_add_actions()), (), (), self._folder):
            found[tuple((file.partition or {}).items())].append(file)
        return list(found.values())

    def has_rows(self, file: KnownFile) -> bool:
        """Return whether a file has such rows.

        This reads two columns, and nothing if the bounds in the log exclude such rows.
        """
        scanner = self._fragments[file.path].scanner(self._schema, filter=self._is_old)
        number: int = scanner.count_rows()
        return number > 0

    def rows(self, files: Sequence[KnownFile]) -> Iterator[pa.RecordBatch]:
        """Return all rows of files in order, with the columns of the partition."""
        for file in files:
            # A scan keeps the fragment in memory.
            for group in self._fragments[file.path].split_by_row_group():
                yield from group.to_batches(
                    self._schema, batch_size=_ROWS_AT_ONCE, batch_readahead=1
                )

    def number(self, files: Sequence[KnownFile]) -> int:
        """Return how many rows files have."""
        return sum(self._fragments[file.path].count_rows() for file in files)

    def check_age(self) -> None:
        """Raise _OutdatedError if parts of the log after this state may be deleted already."""
        if SYSTEM_CLOCK.now() - self._loaded > STATE_AGE:
            raise _OutdatedError

    def follow(self, files: Sequence[KnownFile]) -> None:
        """Read the commits of other writers; raise _OutdatedError if one concerns the files."""
        own = {file.own for file in files}
        for action in self.log.newer():
            if "metaData" in action or "protocol" in action:
                raise _OutdatedError
            if action.get("remove", {}).get("path") in own:
                raise _OutdatedError
