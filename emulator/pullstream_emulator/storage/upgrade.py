"""Conversion of a database from the earlier format to the present one."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from .inspection import Reader
from .marks import Mark
from .rebuilding import rebuild
from .tables import (
    ATTEMPTS,
    CHUNKS,
    MESSAGES,
    NOTES,
    RESOURCES,
    SUBSCRIPTIONS,
    TOPICS,
    Table,
)

_CHECKSUM_BYTES = 4

# For each table: the column with a checksum, and the other columns that the checksum includes.
SEALED: dict[Table, tuple[int, tuple[int, ...]]] = {
    TOPICS: (2, ()),
    SUBSCRIPTIONS: (3, ()),
    CHUNKS: (2, (0, 1)),
    MESSAGES: (3, (0, 1, 2)),
    RESOURCES: (2, ()),
    NOTES: (2, ()),
}


def upgrade(directory: Path) -> Mark:
    """Replace a database of format 2 by one of the present format. Return its mark.

    Raises:
        ValueError: The database is damaged.
        sqlite3.DatabaseError: The database is damaged.
    """
    with closing(Reader(directory)) as reader:
        starts: int = reader.value("SELECT starts FROM broker")
        rows: dict[Table, Iterable[Any]] = {
            table: _unsealed(reader, table, *place) for table, place in SEALED.items()
        }
        rows[ATTEMPTS] = _rows(reader, ATTEMPTS)
        return rebuild(directory, rows, starts=starts)


def _unsealed(
    reader: Reader, table: Table, column: int, key: tuple[int, ...]
) -> Iterator[tuple[Any, ...]]:
    for row in _rows(reader, table):
        blob = row[column]
        if blob is None:
            yield row
            continue
        data, place = blob[_CHECKSUM_BYTES:], tuple(row[i] for i in key)
        checksum = zlib.crc32(data, zlib.crc32(repr(place).encode()))
        if checksum.to_bytes(_CHECKSUM_BYTES, "little") != blob[:_CHECKSUM_BYTES]:
            raise ValueError(f"a row of the table {table.name} has a wrong checksum")
        yield (*row[:column], data, *row[column + 1 :])


def _rows(reader: Reader, table: Table) -> Iterator[tuple[Any, ...]]:
    return reader.execute(f"SELECT {', '.join(table.names)} FROM {table.name}")
