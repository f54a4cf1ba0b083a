"""Creation of the database file: empty, or with the rows of another database."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pullstream_protocol.clock import SystemClock

from .marks import Mark, MarkFile, Total, sync_directory
from .tables import APPLICATION_ID, DEFINITIONS, FORMAT, PAGE_BYTES, TABLES, Table

FILE_NAME = "pullstream.db"
LOG_NAME = f"{FILE_NAME}-wal"
INDEX_NAME = f"{FILE_NAME}-shm"

# A complete database that does not replace the present one yet.
_REBUILT_NAME = f"{FILE_NAME}.rebuilt"
_UNFINISHED_NAME = f"{FILE_NAME}.new"

Rows = Iterable[Sequence[Any]]


def rebuild(
    directory: Path, rows: Mapping[Table, Rows] | None = None, *, starts: int = 0, commit: int = 0
) -> Mark:
    """Replace the database, if there is one, by a new one. Return its mark.

    A crash in between leaves the present database, or a complete new one that `finish` installs.

    Args:
        directory: The data directory.
        rows: The rows of the new database, by table; None: no rows.
        starts: Number of starts of a broker on the present database.
        commit: Number of the newest known commit of the present database.

    Raises:
        OSError: The files cannot be written.
        sqlite3.Error: The files cannot be written.
    """
    path = directory / _UNFINISHED_NAME
    path.unlink(missing_ok=True)
    # SQLite creates its other files with the mode of this file.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # Fast settings are safe: nothing uses this file before it is complete and flushed.
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"page_size = {PAGE_BYTES}"):
            database.execute(f"PRAGMA {setting}")
        database.execute("BEGIN")
        for *_, definition in DEFINITIONS:
            database.execute(definition)
        totals = [_fill(database, table, (rows or {}).get(table, ())) for table in TABLES]
        now = SystemClock().now()
        mark = Mark(FORMAT, secrets.randbits(63), starts, commit + 1, now, tuple(totals))
        database.execute("INSERT INTO mark VALUES (?)", (mark.encode(),))
        database.execute("COMMIT")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    path.replace(directory / _REBUILT_NAME)
    sync_directory(directory)
    finish(directory)
    return mark


def _fill(database: sqlite3.Connection, table: Table, rows: Rows) -> Total:
    amount = seals = 0

    def counted() -> Iterator[Sequence[Any]]:
        nonlocal amount, seals
        for row in rows:
            amount += table.amount_of(row)
            seals += table.seal(row)
            yield (*row, table.seal(row))

    database.executemany(table.replace, counted())
    return Total(amount, seals % (1 << 64))


def finish(directory: Path) -> None:
    """Install a complete rebuilt database, if there is one."""
    rebuilt = directory / _REBUILT_NAME
    if not rebuilt.exists():
        return
    with closing(sqlite3.connect(rebuilt, isolation_level=None)) as database:
        ((value,),) = database.execute("SELECT value FROM mark")
    # Otherwise SQLite would apply the log of the old database to the new one.
    for name in (LOG_NAME, INDEX_NAME):
        (directory / name).unlink(missing_ok=True)
    MarkFile.create(directory, Mark.decode(value))
    rebuilt.replace(directory / FILE_NAME)
    sync_directory(directory)
