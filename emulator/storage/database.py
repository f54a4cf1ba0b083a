"""The file in the data directory: opening it for one broker only, its tables, its transactions."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .opening import StorageError

FILE_NAME = "pullstream.db"

# The tables' form. A database that says another number is another version's.
FORMAT = 2

# Says whose file it is: "pull" in ASCII.
_APPLICATION_ID = 0x70756C6C

# A batch of 100 messages of 100 bytes is about two pages long.
_PAGE_BYTES = 8192

# A checkpoint copies what was written twice in between only once.
_PAGES_BETWEEN_CHECKPOINTS = 4000

_CHECKSUM_BYTES = 4

# topics: one row for each that still has messages to keep or a name. Of a deleted one `config` is
#   NULL. No message of it has a number above `reserved`.
# subscriptions: `since` is the head of their topic when they were made; `base` is that of their
#   Progress, and `chunks` are its chunks.
# attempts: failed deliveries, where there are any.
# messages: up to a chunk of consecutive ones of a topic in each row, `count` of them from `first`.
# resources: all other kinds, by name; of a snapshot or feed the topic that it is of, otherwise 0.
# notes: what changes all the time about some of these.
# broker: how often one was started on this database.
_TABLES = """
CREATE TABLE topics (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, config BLOB, reserved INTEGER NOT NULL
);
CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic INTEGER NOT NULL,
    config BLOB NOT NULL, since INTEGER NOT NULL, base INTEGER NOT NULL
);
CREATE TABLE chunks (
    subscription INTEGER, chunk INTEGER, bits BLOB NOT NULL, PRIMARY KEY (subscription, chunk)
) WITHOUT ROWID;
CREATE TABLE attempts (
    subscription INTEGER, seq INTEGER, attempts INTEGER NOT NULL, PRIMARY KEY (subscription, seq)
) WITHOUT ROWID;
CREATE TABLE messages (
    topic INTEGER, first INTEGER, count INTEGER NOT NULL, encoded BLOB NOT NULL,
    PRIMARY KEY (topic, first)
) WITHOUT ROWID;
CREATE TABLE resources (
    kind TEXT, name TEXT, value BLOB NOT NULL, topic INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE notes (
    kind TEXT, name TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE broker (starts INTEGER NOT NULL);
INSERT INTO broker VALUES (0);
"""


class Database:
    """An open database that no other process can open. One thread at a time may use it.

    Raises:
        StorageError: it cannot be used. Nothing in it was changed.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # A transaction begins where `transaction` says so, and nowhere else.
            self._connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"cannot open {self.path}: {error}") from error
        self.execute = self._connection.execute
        self.executemany = self._connection.executemany
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> None:
        with self.reading():
            # Set before the first access, so that it holds from then on, and for one process only.
            self.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            self._check_format()
            self.execute("PRAGMA journal_mode = WAL")
            # A commit is on disk when it returns.
            self.execute("PRAGMA synchronous = FULL")
            self.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_BETWEEN_CHECKPOINTS}")
            with self.transaction():
                if not self._value("PRAGMA application_id"):
                    self._create()

    def _check_format(self) -> None:
        """Refuse a database that is not ours; a new one is empty."""
        owner, written = self._value("PRAGMA application_id"), self._value("PRAGMA user_version")
        if owner == 0 and self._value("SELECT count(*) FROM sqlite_master") == 0:
            return
        if owner != _APPLICATION_ID:
            raise StorageError(f"{self.path} is not a database of pullstream's")
        if written != FORMAT:
            age = "a newer" if written > FORMAT else "an older"
            raise StorageError(
                f"{self.path} was written by {age} version of pullstream: it has format {written}, "
                f"and this version has format {FORMAT}"
            )

    def _create(self) -> None:
        for statement in _TABLES.split(";")[:-1]:
            self.execute(statement)
        self.execute(f"PRAGMA user_version = {FORMAT}")
        self.execute(f"PRAGMA application_id = {_APPLICATION_ID}")

    def _value(self, query: str) -> int:
        value: int = self.execute(query).fetchone()[0]
        return value

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block's changes, or none; they are on disk when it ends."""
        self.execute("BEGIN EXCLUSIVE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # After some errors SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self.execute("ROLLBACK")
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turns what goes wrong while the database is opened and read into a StorageError."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StorageError(f"{self.path} is in use by another broker") from error
            raise StorageError(f"cannot read {self.path}: {error}") from error
        except (sqlite3.DatabaseError, LookupError, TypeError, ValueError) as error:
            raise StorageError(f"{self.path} is damaged: {error}") from error

    def close(self) -> None:
        self._connection.close()


def sealed(data: bytes, *key: int) -> bytes:
    """`data` with its checksum, as every blob is stored: SQLite does not see a flipped bit.

    `key` tells where it belongs, and must be the same when it is read.
    """
    return _checksum(data, key) + data


def unsealed(blob: bytes, *key: int) -> bytes:
    """What was sealed.

    Raises:
        ValueError: it is not as it was.
    """
    data = blob[_CHECKSUM_BYTES:]
    if _checksum(data, key) != blob[:_CHECKSUM_BYTES]:
        raise ValueError("a checksum does not fit what it stands for")
    return data


def _checksum(data: bytes, key: tuple[int, ...]) -> bytes:
    return zlib.crc32(data, zlib.crc32(repr(key).encode())).to_bytes(_CHECKSUM_BYTES, "little")
