"""Check that the files in a data directory are complete and unchanged."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .errors import StorageError
from .marks import MARK_NAME, Mark, MarkFile, Total
from .rebuilding import FILE_NAME, INDEX_NAME, LOG_NAME
from .tables import (
    APPLICATION_ID,
    ATTEMPTS,
    CHUNKS,
    DEFINITIONS,
    FORMAT,
    MESSAGES,
    NOTES,
    RESOURCES,
    SUBSCRIPTIONS,
    TABLES,
    TOPICS,
    Table,
)

# The name of a table's rows in messages to the user.
_LABELS = {
    TOPICS: "topics",
    SUBSCRIPTIONS: "subscriptions",
    CHUNKS: "records of acknowledgements",
    ATTEMPTS: "counts of delivery attempts",
    MESSAGES: "messages",
    RESOURCES: "schemas, policies, snapshots, feeds, routers and cursors",
    NOTES: "positions of feeds and routers",
}

_SUM = 1 << 64

# Errors of a damaged database. UnicodeDecodeError occurs if an error text quotes damaged data.
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)


@dataclass
class Findings:
    """The result of an inspection of a directory.

    Attributes:
        is_new: Whether there is no database yet.
        mark: The mark in the database; None if it cannot be read.
        expected: The newest mark of all files.
        damage: One text for each damaged part.
        intact: The totals of the rows with a correct checksum.
    """

    is_new: bool = False
    mark: Mark | None = None
    expected: Mark | None = None
    damage: list[str] = field(default_factory=list)
    intact: dict[Table, Total] = field(default_factory=dict)

    def text(self, directory: Path) -> str:
        """Return the damage, the loss and the remedy in one line."""
        return (
            f"{directory} is damaged: {'; '.join([*self.damage, *self.losses()])}. Restore it from "
            "a backup, or start with --recover (in a program: recover=True) to continue with the "
            "remaining data"
        )

    def losses(self) -> Iterator[str]:
        """Yield one text for each table with lost rows."""
        if self.expected is None:
            yield "the extent of the loss is unknown"
            return
        for table, total in zip(TABLES, self.expected.totals, strict=True):
            lost = total.amount - self.intact.get(table, Total()).amount
            if lost > 0:
                yield f"{lost} of {total.amount} {_LABELS[table]} are lost"

    def is_short_of(self, table: Table) -> bool:
        """Return whether rows of a table may be lost."""
        if self.expected is None or self.expected != self.mark:
            return True
        return self.intact.get(table) != self.expected.totals[TABLES.index(table)]


class Reader:
    """Reads a database without changing any file.

    Attributes:
        damaged: The number of rows with a wrong checksum, by table.
        errors: The texts of errors.
    """

    def __init__(self, directory: Path) -> None:
        self._index = directory / INDEX_NAME
        log = directory / LOG_NAME
        has_log = log.exists() and log.stat().st_size > 0
        # A connection that cannot write does not change the log when it is closed. It leaves its
        # index of the log behind, which `close` removes.
        self._leaves_index = has_log and not self._index.exists()
        uri = (directory / FILE_NAME).absolute().as_uri()
        self._connection = sqlite3.connect(
            f"{uri}?{'mode=ro' if has_log else 'immutable=1'}",
            uri=True,
            timeout=0,
            isolation_level=None,
        )
        # A text that is not valid UTF-8 any more also has a wrong checksum.
        self._connection.text_factory = lambda data: data.decode(errors="replace")
        self.execute = self._connection.execute
        # A damaged definition of a table must not hide the other tables.
        self.execute("PRAGMA writable_schema = ON")
        self.damaged: Counter[Table] = Counter()
        self.errors: list[str] = []

    def value(self, query: str) -> Any:
        """Return the first column of the first row of a query's result."""
        return self.execute(query).fetchone()[0]

    def rows(self, table: Table) -> Iterator[tuple[Any, ...]]:
        """Yield the rows with a correct checksum, as far as SQLite can reach them."""
        last: tuple[Any, ...] | None = None
        try:
            for row in self._intact(table, table.order):
                last = row[: table.keys]
                yield row
            return
        except UNREADABLE as error:
            self.errors.append(str(error))
        # Rows after a page that cannot be read are reached in descending order.
        backward = ", ".join([f"{name} DESC" for name in table.names[: table.keys]])
        try:
            for row in self._intact(table, backward):
                if last is not None and row[: table.keys] <= last:
                    return
                yield row
        except UNREADABLE:
            pass

    def _intact(self, table: Table, order: str) -> Iterator[tuple[Any, ...]]:
        query = f"SELECT {', '.join(table.names)}, seal FROM {table.name} ORDER BY {order}"
        for row in self.execute(query):
            content = row[:-1]
            if table.seal(content) == row[-1]:
                yield content
            else:
                self.damaged[table] += 1

    def close(self) -> None:
        """Close the connection, and remove the index of the log if this connection created it."""
        self._connection.close()
        if self._leaves_index:
            self._index.unlink(missing_ok=True)


def inspect(directory: Path) -> Findings:
    """Inspect the files of a directory that no broker uses, without changing them.

    Raises:
        StorageError: The database belongs to another program, or to a version of pullstream that
            this version cannot read.
        OSError: The files cannot be read.
        sqlite3.Error: The files cannot be read.
    """
    found = Findings()
    confirmed = _confirmed_mark(directory, found)
    found.expected = confirmed
    file = directory / FILE_NAME
    if not file.exists():
        others = [name for name in (MARK_NAME, LOG_NAME) if (directory / name).exists()]
        if not others:
            found.is_new = True
            return found
        found.damage.insert(0, f"{FILE_NAME} is missing")
    elif file.stat().st_size == 0:
        # SQLite would treat it as a new database, and delete the log.
        found.damage.insert(0, f"{FILE_NAME} is empty")
    else:
        try:
            with closing(Reader(directory)) as reader:
                _inspect_database(reader, found, confirmed, file)
        except UNREADABLE as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            found.damage.append(f"{FILE_NAME} cannot be read ({error})")
    return found


def _confirmed_mark(directory: Path, found: Findings) -> Mark | None:
    """Return the mark of the newest commit that was confirmed to a client."""
    try:
        mark = MarkFile.read(directory)
    except ValueError as error:
        found.damage.append(f"{MARK_NAME} is damaged ({error})")
        return None
    if mark is not None and mark.format != FORMAT:
        raise StorageError(_of_another_version(directory / FILE_NAME, mark.format))
    return mark


def _inspect_database(reader: Reader, found: Findings, confirmed: Mark | None, file: Path) -> None:
    owner, version = reader.value("PRAGMA application_id"), reader.value("PRAGMA user_version")
    if confirmed is None and not found.damage:
        # A database without a mark may belong to another program.
        if owner != APPLICATION_ID:
            raise StorageError(f"{file} is not a pullstream database")
        if version != FORMAT:
            raise StorageError(_of_another_version(file, version))
        found.damage.append(f"{MARK_NAME} is missing")
    if (owner, version) != (APPLICATION_ID, FORMAT):
        found.damage.append(f"the header of {FILE_NAME} is damaged")
    try:
        # SQLite's reports have several lines.
        problem = " ".join(reader.value("PRAGMA integrity_check").split())
    except UNREADABLE as error:
        problem = str(error)
    if problem != "ok":
        found.damage.append(f"{FILE_NAME} is damaged ({problem})")
    definitions = reader.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    if sorted(definitions, key=repr) != sorted(DEFINITIONS, key=repr):
        found.damage.append(f"the definitions of the tables in {FILE_NAME} are damaged")
    try:
        ((value,),) = reader.execute("SELECT value FROM mark")
        found.mark = Mark.decode(value)
    except (*UNREADABLE, ValueError, TypeError):
        found.damage.append(f"the mark in {FILE_NAME} is damaged")
    found.intact = {table: _total(table, reader) for table in TABLES}
    if reader.errors and problem == "ok":
        found.damage.append(f"{FILE_NAME} cannot be read ({reader.errors[0]})")
    _compare(reader, found, confirmed)


def _total(table: Table, reader: Reader) -> Total:
    amount = seals = 0
    for row in reader.rows(table):
        amount += table.amount_of(row)
        seals += table.seal(row)
    return Total(amount, seals % _SUM)


def _compare(reader: Reader, found: Findings, confirmed: Mark | None) -> None:
    """Compare the rows with the mark in the database, and this mark with the confirmed mark."""
    mark = found.mark
    if mark is None:
        return
    for table, total in zip(TABLES, mark.totals, strict=True):
        if reader.damaged[table] or found.intact[table] != total:
            found.damage.append(f"the table {table.name} is damaged")
    if confirmed is None:
        found.expected = mark
    elif mark.directory != confirmed.directory:
        found.damage.append(f"{FILE_NAME} and {MARK_NAME} are from different directories")
    elif mark.commit < confirmed.commit:
        count = confirmed.commit - mark.commit
        found.damage.append(
            f"{LOG_NAME} is damaged or missing, and the last {count} of {confirmed.commit} commits "
            f"are lost, made between {_date(mark.time)} and {_date(confirmed.time)}"
        )
    elif mark.commit == confirmed.commit and mark != confirmed:
        found.damage.append(f"{FILE_NAME} and {MARK_NAME} contradict each other")
    else:
        found.expected = mark


def remains(totals: Mapping[Table, Total]) -> str:
    """Return the amounts of the remaining rows, in words."""
    amounts = [(totals.get(table, Total()).amount, _LABELS[table]) for table in TABLES]
    return ", ".join([f"{amount} {label}" for amount, label in amounts if amount]) or "nothing"


def _of_another_version(file: Path, format: int) -> str:
    age = "a newer" if format > FORMAT else "an older"
    return (
        f"{file} was written by {age} version of pullstream: it has format {format}, "
        f"and this version has format {FORMAT}"
    )


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
