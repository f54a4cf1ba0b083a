"""Checkpoint stores: save a follower's position in a file, on the broker, or in user code."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pullstream.rpc.rpcs import Rpcs
from pullstream.runtime.callback_kinds import refuse_awaitable
from pullstream_protocol.errors import FailedPrecondition, NotFound, PullstreamError
from pullstream_protocol.file_lock import FileLock
from pullstream_protocol.messages import feeds_pb2 as feeds

from .events import Checkpoint

# The timeout of one cursor call, in seconds.
_CALL_TIMEOUT = 10.0

# The time that a follower waits for another follower's write to the same file, in seconds.
_WRITE_TIMEOUT = 30.0

# The epoch is stored as text: it is an unsigned 64-bit number, and SQLite's integers are signed.
_TABLE = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, seq INTEGER, epoch TEXT
)
"""


class CheckpointError(PullstreamError):
    """A position could not be saved or read, or another follower uses it."""


@runtime_checkable
class CheckpointStore(Protocol):
    """Saves the position of one follower. The follower's thread makes all calls.

    If a call raises an error that a retry may fix (such as
    `pullstream_protocol.errors.Unavailable`), the error is logged and the call is retried. Any
    other error ends the follower.
    """

    def open(self, topic: str) -> Checkpoint | None:
        """Open the store for the position in `topic` (full name); return the saved position."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the saved position. It must be durable when this returns."""

    def close(self) -> None:
        """Close the store. Also called when `open` has failed."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """Saves positions in an SQLite file. The file may hold many followers, each under its name.

    The file is created if it does not exist. A position is replaced atomically. While a follower
    uses a name, no other follower can use it, in this process or another. The lock ends with the
    process, also when the process is killed. For each name, there is a lock file next to the SQLite
    file; its name ends in `.lock`.

    Attributes:
        path: The path of the file. Its folder must exist.
        name: The name of the follower. Default: the name of its topic.
    """

    path: str | os.PathLike[str]
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse the paths that SQLite takes for a database without a file.

        Raises:
            ValueError: The path is empty or `:memory:`.
        """
        if os.fspath(self.path) in ("", ":memory:"):
            raise ValueError(
                f"the checkpoint {os.fspath(self.path)!r} would save nothing: SQLite keeps such a "
                "database in memory. Give the path of a file, or checkpoint=None to save nothing"
            )


@dataclass(frozen=True, slots=True)
class ServerCursor:
    """Saves the position on the broker, as a cursor.

    The broker does not lock cursors: two followers with the same cursor overwrite each other's
    position.

    Attributes:
        name: The full name of the cursor, `projects/P/cursors/C`.
    """

    name: str


Callback: TypeAlias = Callable[[Checkpoint], Any]
Checkpoints: TypeAlias = (
    "str | os.PathLike[str] | CheckpointFile | ServerCursor | CheckpointStore | Callback | None"
)


class NoStore:
    """Saves nothing."""

    def open(self, topic: str) -> Checkpoint | None:
        """Return no position."""
        return None

    def save(self, checkpoint: Checkpoint) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class CallbackStore(NoStore):
    """Passes positions to a user's function. The user also gives the start position."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def save(self, checkpoint: Checkpoint) -> None:
        """Call the user's function with the position."""
        refuse_awaitable(self._callback(checkpoint), self._callback)


class CursorStore:
    """Saves the position in a cursor of the broker."""

    def __init__(self, rpcs: Rpcs, name: str) -> None:
        self._rpcs = rpcs
        self._name = name
        self._topic = ""

    def open(self, topic: str) -> Checkpoint | None:
        """Return the cursor's position; None if the cursor does not exist."""
        self._topic = topic
        request = feeds.GetCursorRequest(name=self._name)
        try:
            cursor = self._rpcs.call("GetCursor", request, retry=None, timeout=_CALL_TIMEOUT)
        except NotFound:
            return None
        if cursor.topic != topic:
            raise CheckpointError(
                f"{self._name} is a cursor of the topic {cursor.topic}, not of {topic}; "
                "use another cursor"
            )
        return Checkpoint(cursor.seq, cursor.epoch)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the cursor; ignore the error if the topic was deleted or created again."""
        cursor = feeds.Cursor(
            name=self._name, topic=self._topic, seq=checkpoint.seq, epoch=checkpoint.epoch
        )
        request = feeds.PutCursorRequest(cursor=cursor)
        try:
            self._rpcs.call("PutCursor", request, retry=None, timeout=_CALL_TIMEOUT)
        except (NotFound, FailedPrecondition) as error:
            # The topic was deleted, or created again: ignore the error, because the next read
            # reports it. But if the cursor now belongs to another topic, raise the error, because
            # nothing else would report it.
            if error.reason == "CURSOR_OF_OTHER_TOPIC":
                raise

    def close(self) -> None:
        """Do nothing: the cursor stays on the broker."""


class FileStore:
    """One position in a `CheckpointFile`. The position is on disk when `save` returns."""

    def __init__(self, file: CheckpointFile) -> None:
        self._path = Path(file.path)
        self._name = file.name
        self._id = 0
        self._lock: FileLock | None = None
        self._database: sqlite3.Connection | None = None

    def open(self, topic: str) -> Checkpoint | None:
        """Lock the follower's name in the file, and return its position; None if it is new."""
        try:
            return self._open(topic)
        except (sqlite3.Error, OSError) as error:
            raise CheckpointError(
                f"cannot open the checkpoint file {self._path}: {error}"
            ) from error

    def _open(self, topic: str) -> Checkpoint | None:
        name = self._name or topic
        # Autocommit: each statement is a separate transaction.
        database = sqlite3.connect(self._path, timeout=_WRITE_TIMEOUT, isolation_level=None)
        self._database = database
        # EXTRA also syncs the folder after the journal is deleted; the deletion is the commit.
        database.execute("PRAGMA synchronous = EXTRA")
        database.execute(_TABLE)
        database.execute(
            "INSERT INTO checkpoints (name, topic) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (name, topic),
        )
        row = database.execute(
            "SELECT id, topic, seq, epoch FROM checkpoints WHERE name = ?", (name,)
        )
        self._id, known, _, _ = row.fetchone()
        if known != topic:
            raise CheckpointError(
                f"the name {name!r} in the checkpoint file {self._path} belongs to the topic "
                f"{known}, not to {topic}; use another name or another file"
            )
        self._take_lock(name)
        return self._read()

    def _take_lock(self, name: str) -> None:
        # The lock file is in the folder of the real file, also if the path is a symbolic link.
        path = self._path.resolve()
        try:
            self._lock = FileLock(path.with_name(f"{path.name}.{self._id}.lock"))
        except BlockingIOError as error:
            raise CheckpointError(
                f"another follower uses the name {name!r} in the checkpoint file {self._path}; "
                "stop it, or use another name"
            ) from error

    def _read(self) -> Checkpoint | None:
        """Read the position while holding the lock; an earlier read may be out of date."""
        assert self._database is not None
        query = "SELECT seq, epoch FROM checkpoints WHERE id = ?"
        seq, epoch = self._database.execute(query, (self._id,)).fetchone()
        return None if seq is None else Checkpoint(seq, int(epoch))

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the position; it is on disk when this returns."""
        assert self._database is not None
        values = (checkpoint.seq, str(checkpoint.epoch), self._id)
        try:
            self._database.execute("UPDATE checkpoints SET seq = ?, epoch = ? WHERE id = ?", values)
        except sqlite3.Error as error:
            raise CheckpointError(
                f"cannot save a position in the checkpoint file {self._path}: {error}"
            ) from error

    def close(self) -> None:
        """Close the file, and release the follower's name."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
