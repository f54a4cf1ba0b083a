"""The database in the data directory: locked by one broker, checked, written in transactions."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pullstream_protocol.clock import SystemClock
from pullstream_protocol.file_lock import FileLock, holder_of

from . import rebuilding, recovery
from .errors import StorageError
from .inspection import inspect
from .marks import Mark, MarkFile, Total
from .rebuilding import FILE_NAME
from .tables import TABLES, Table

LOCK_NAME = "pullstream.lock"

# A page that was written several times since the last checkpoint is copied only once, so
# checkpoints are rare.
BYTES_BETWEEN_CHECKPOINTS = 32_000_000

# The sum of checksums is kept modulo this number.
_SUM = 1 << 64


class Database:
    """An open, undamaged database that no other broker can open. One thread at a time may use it.

    Args:
        directory: The directory of its files. It is created if it does not exist.
        recover: Whether to continue with the intact rows if the database is damaged.

    Attributes:
        mark: The mark of the newest commit.

    Raises:
        StorageError: The database cannot be used. Nothing in it was changed.
    """

    def __init__(self, directory: Path, *, recover: bool = False) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self._lock = _lock(directory)
        try:
            with self.reading():
                self.mark = self._checked(recover)
                self._marks = MarkFile(directory)
                try:
                    self._open()
                except BaseException:
                    self._marks.close()
                    raise
        except BaseException:
            self._lock.release()
            raise
        self._encoded = self.mark.encode()
        self._totals = dict(zip(TABLES, self.mark.totals, strict=True))

    def _checked(self, recover: bool) -> Mark:
        """Create, check or recover the database, and return its mark."""
        rebuilding.finish(self.directory)
        found = inspect(self.directory)
        if found.is_new:
            return rebuilding.rebuild(self.directory)
        if found.damage:
            if not recover:
                raise StorageError(found.text(self.directory))
            return recovery.recover(self.directory, found)
        assert found.mark is not None
        return found.mark

    def _open(self) -> None:
        # Without an isolation level, only `transaction` begins a transaction.
        self._connection = sqlite3.connect(
            self.path, timeout=0, isolation_level=None, check_same_thread=False
        )
        self.execute = self._connection.execute
        self.executemany = self._connection.executemany
        try:
            # Set before the first access, so that it applies to all accesses.
            self.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.execute("PRAGMA journal_mode = WAL")
            # A commit is on disk when it returns.
            self.execute("PRAGMA synchronous = FULL")
            # An older database has smaller pages.
            (page,) = self.execute("PRAGMA page_size").fetchone()
            self.execute(f"PRAGMA wal_autocheckpoint = {BYTES_BETWEEN_CHECKPOINTS // page}")
        except BaseException:
            self._connection.close()
            raise

    # ---- rows ----------------------------------------------------------------------------------

    def rows(self, table: Table, *key: Any) -> sqlite3.Cursor:
        """Return the rows whose first columns equal `key`, in the order of the primary key."""
        names = ", ".join(table.names)
        return self.execute(
            f"SELECT {names} FROM {table.name}{table.where[len(key)]} ORDER BY {table.order}", key
        )

    def put(self, table: Table, rows: Iterable[Sequence[Any]], *, are_new: bool = False) -> None:
        """Insert rows with different primary keys, and replace existing rows with these keys.

        Args:
            table: The table.
            rows: The rows.
            are_new: Whether no row has one of these keys. It spares a query for each row, which
                takes a tenth of the time of a publish.
        """
        sealed = [(*row, table.seal(row)) for row in rows]
        if not sealed:
            return
        for row in () if are_new else sealed:
            self._discount(table, row[: table.keys])
        self.executemany(table.insert if are_new else table.replace, sealed)
        amount = sum([table.amount_of(row) for row in sealed])
        self._add(table, amount, sum([row[-1] for row in sealed]))

    def remove(self, table: Table, *key: Any) -> None:
        """Delete the rows whose first columns equal `key`."""
        if self._discount(table, key):
            self.execute(f"DELETE FROM {table.name}{table.where[len(key)]}", key)

    def _discount(self, table: Table, key: Sequence[Any]) -> bool:
        """Subtract rows from the totals before their deletion. Return whether there are any."""
        amount, seals = self.execute(
            f"SELECT sum({table.amount}), sum(seal) FROM {table.name}{table.where[len(key)]}", key
        ).fetchone()
        if amount is None:
            return False
        self._add(table, -amount, -seals)
        return True

    def _add(self, table: Table, amount: int, seals: int) -> None:
        total = self._totals[table]
        self._totals[table] = Total(total.amount + amount, (total.seals + seals) % _SUM)

    # ---- transactions --------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none if it raises.

        Clients must not get a reply before `confirm`.
        """
        totals = self._totals.copy()
        self.execute("BEGIN EXCLUSIVE")
        try:
            yield
            mark = self.mark._replace(
                commit=self.mark.commit + 1,
                time=SystemClock().now(),
                totals=tuple(self._totals.values()),
            )
            encoded = mark.encode()
            self.execute("UPDATE mark SET value = ?", (encoded,))
            self.execute("COMMIT")
        except BaseException:
            self._totals = totals
            # After some errors SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self.execute("ROLLBACK")
            raise
        self.mark, self._encoded = mark, encoded

    def confirm(self) -> None:
        """Write the mark of the newest commit to the mark file.

        Raises:
            OSError: The mark cannot be written.
        """
        self._marks.write(self.mark.commit, self._encoded)

    def sync(self) -> None:
        """Flush the newest mark to disk. Called when there is nothing else to write.

        Raises:
            OSError: The mark cannot be written.
        """
        self._marks.sync()

    def copy_to(self, directory: Path) -> None:
        """Copy the newest commit to a directory that does not exist, or is empty.

        Raises:
            StorageError: The copy cannot be written.
        """
        try:
            _make(directory)
            if any(directory.iterdir()):
                raise StorageError(f"{directory} is not empty")
            path = directory / FILE_NAME
            # SQLite would create a file that everybody may read.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(path)) as copy:
                self._connection.backup(copy)
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            # The last step: without it, the copy is refused as damaged.
            MarkFile.create(directory, self.mark)
        except OSError as error:
            raise StorageError(f"cannot write the copy {directory}: {_reason(error)}") from error
        except sqlite3.Error as error:
            raise StorageError(f"cannot write the copy {directory}: {error}") from error

    def count_start(self) -> int:
        """Count a start of a broker, and return the number of starts. Requires a transaction."""
        self.mark = self.mark._replace(starts=self.mark.starts + 1)
        return self.mark.starts

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of opening and reading the database into a StorageError."""
        try:
            yield
        except OSError as error:
            raise StorageError(f"cannot use {self.directory}: {_reason(error)}") from error
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StorageError(f"{self.directory} is in use by another broker") from error
            raise StorageError(f"cannot use {self.path}: {error}") from error
        except (sqlite3.Error, LookupError, TypeError, ValueError) as error:
            raise StorageError(f"{self.directory} is damaged: {error}") from error

    def close(self) -> None:
        """Close the database and the mark file, and unlock the directory even after an error."""
        try:
            self._connection.close()
            self._marks.close()
        finally:
            self._lock.release()


def _lock(directory: Path) -> FileLock:
    """Create the directory if it does not exist, and lock it against other brokers."""
    try:
        _make(directory)
        return FileLock(directory / LOCK_NAME)
    except BlockingIOError as error:
        pid = holder_of(directory / LOCK_NAME)
        process = "" if pid is None else f" (process {pid})"
        raise StorageError(f"{directory} is in use by another broker{process}") from error
    except OSError as error:
        raise StorageError(f"cannot use {directory}: {_reason(error)}") from error


def _make(directory: Path) -> None:
    """Create a directory and its parents with mode 700. An existing one keeps its mode."""
    if not directory.is_dir():
        if not directory.parent.is_dir():
            _make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def _reason(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"it cannot be written ({os.strerror(error.errno)})"
    return error.strerror or str(error)
