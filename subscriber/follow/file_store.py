"""Positions of followers in an SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .events import Checkpoint
from .file_lock import FileLock
from .stores import CheckpointError, CheckpointFile

# How long a follower waits for another that writes to the same file, in seconds.
_PATIENCE = 30.0

# The epoch is a text: SQLite's integers have no room for the upper half of its values.
_TABLE = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, seq INTEGER, epoch TEXT
)
"""


class FileStore:
    """One position in a CheckpointFile; see there. A position is on disk when `save` returns."""

    def __init__(self, file: CheckpointFile) -> None:
        self._path = Path(file.path)
        self._name = file.name
        self._id = 0
        self._lock: FileLock | None = None
        self._database: sqlite3.Connection | None = None

    def open(self, topic: str) -> Checkpoint | None:
        try:
            return self._open(topic)
        except (sqlite3.Error, OSError) as error:
            raise CheckpointError(f"cannot keep positions in {self._path}: {error}") from error

    def _open(self, topic: str) -> Checkpoint | None:
        name = self._name or topic
        # Each statement is a transaction of its own.
        database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        self._database = database
        # Also the end of a transaction, which is that its journal is deleted.
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
                f"{name!r} in {self._path} is the position in {known}, not in {topic}"
            )
        self._take_lock(name)
        return self._read()

    def _take_lock(self, name: str) -> None:
        # Beside the file itself, by whatever link it was reached.
        path = self._path.resolve()
        try:
            self._lock = FileLock(path.with_name(f"{path.name}.{self._id}.lock"))
        except BlockingIOError as error:
            raise CheckpointError(
                f"somebody else follows as {name!r}, which {self._path} keeps the position of"
            ) from error

    def _read(self) -> Checkpoint | None:
        """Under the lock: what was read before may have been replaced since."""
        assert self._database is not None
        query = "SELECT seq, epoch FROM checkpoints WHERE id = ?"
        seq, epoch = self._database.execute(query, (self._id,)).fetchone()
        return None if seq is None else Checkpoint(seq, int(epoch))

    def save(self, checkpoint: Checkpoint) -> None:
        assert self._database is not None
        values = (checkpoint.seq, str(checkpoint.epoch), self._id)
        try:
            self._database.execute("UPDATE checkpoints SET seq = ?, epoch = ? WHERE id = ?", values)
        except sqlite3.Error as error:
            raise CheckpointError(f"cannot keep positions in {self._path}: {error}") from error

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
