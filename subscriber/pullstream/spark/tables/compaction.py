"""Small files become large ones: which files, and how their rows are written again.

Memory is bounded by one small file and one row group, whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

# Size of the new files in bytes, approximately.
TARGET_SIZE = 128 << 20

# Files of at least this part of the target are large enough.
_LARGE = 0.5

# Bytes of rows in memory that become a row group.
_GROUP_SIZE = 64 << 20

# Most files that one commit replaces. The time of a commit grows with their number, and a job that
# commits twice in a second must leave room for it.
MOST_FILES = 500

# How often a commit is tried while a job is faster. Rows are not written again for that.
COMMITS = 20

# How often files are tried when other writers change the files that are being rewritten.
TRIES = 3

_File = TypeVar("_File")


@dataclass(frozen=True)
class Compacted:
    """What `compact` has done.

    Attributes:
        removed: Number of files that were replaced.
        added: Number of new files. A file that was replaced in turn counts twice.
        tries: How many tries a commit took at most; 0 without a commit.
        dropped: Number of rows of deleted keys that are in no new file.
    """

    removed: int = 0
    added: int = 0
    tries: int = 0
    dropped: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.removed + other.removed,
            self.added + other.added,
            max(self.tries, other.tries),
            self.dropped + other.dropped,
        )


def is_small(size: int, target_size: int) -> bool:
    """Return whether a file of this size is to become part of a larger one."""
    return size < target_size * _LARGE


def bins(
    files: Sequence[_File], size_of: Callable[[_File], int], target_size: int
) -> list[list[_File]]:
    """Return the small files that become one file each; their order stays.

    After very many files have become several small ones, these may become one in turn.

    Args:
        files: Files of a partition, from the oldest to the newest.
        size_of: Returns the size of a file in bytes.
        target_size: Size of the new files in bytes.
    """
    small = [file for file in files if is_small(size_of(file), target_size)]
    return [some for some in groups(small, size_of, target_size) if len(some) > 1]


def groups(
    files: Sequence[_File], size_of: Callable[[_File], int], target_size: int
) -> list[list[_File]]:
    """Return the files that become one file each; their order stays. See `bins`."""
    found: list[list[_File]] = []
    room = 0
    for file in files:
        size = size_of(file)
        if not found or size > room or len(found[-1]) == MOST_FILES:
            found.append([])
            room = target_size
        found[-1].append(file)
        room -= size
    return found


def replaced(files: Sequence[_File], old: Sequence[_File], new: _File | None) -> list[_File]:
    """Return the files with a new one in place of others, where the first of these was.

    None: there is no new one.
    """
    gone = set(old)
    kept = [new if file == old[0] else file for file in files if file == old[0] or file not in gone]
    return [file for file in kept if file is not None]


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, target: Path) -> int:
    """Write rows to a Parquet file on this machine, and return their number."""
    rows = 0
    # As the executors write it; see data_files.py.
    with pq.ParquetWriter(target, schema, compression="snappy", store_schema=False) as writer:
        group: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            group.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size >= _GROUP_SIZE:
                _write_group(writer, group, schema)
                group, size = [], 0
        if group:
            _write_group(writer, group, schema)
    return rows


def _write_group(writer: pq.ParquetWriter, group: list[pa.RecordBatch], schema: pa.Schema) -> None:
    # Batches differ in Arrow's layouts of the same values, and in the notes on their columns.
    table = pa.concat_tables(pa.Table.from_batches([batch]).cast(schema) for batch in group)
    writer.write_table(table, row_group_size=max(1, table.num_rows))


def footer_of(path: Path) -> bytes:
    """Return the footer of a Parquet file on this machine."""
    footer = pa.BufferOutputStream()
    pq.read_metadata(path).write_metadata_file(footer)
    content: bytes = footer.getvalue().to_pybytes()
    return content
