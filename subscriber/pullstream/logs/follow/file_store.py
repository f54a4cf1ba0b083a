"""Checkpoint store that keeps positions of followers in an SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pullstream_protocol.file_lock import FileLock

from .events import Checkpoint
from .stores import CheckpointError, CheckpointFile

# The time that a follower waits for another follower's write to the same file, in seconds.
_PATIENCE = 30.0

# The epoch is stored as text: it is an unsigned 64-bit number, and SQLite's integers are signed.
_TABLE = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, seq INTEGER, epoch TEXT
)
"""


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
        database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
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
