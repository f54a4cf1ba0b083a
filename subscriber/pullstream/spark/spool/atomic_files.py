"""Atomic file operations: after a crash, a file is complete or absent."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY = ".tmp"


class AtomicFiles:
    """The three operations with which the spool changes its folder.

    Each change is durable when the method returns.
    """

    def write(self, path: Path, data: memoryview | bytes) -> None:
        """Create or replace a file atomically: readers see the old content or all of the new."""
        temporary = path.with_name(path.name + TEMPORARY)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file; create it if it does not exist.

        After a crash, a prefix of `data` may be in the file. After an error, nothing of it is.
        """
        is_new = not path.exists()
        with path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise
        if is_new:
            _sync_folder(path.parent)

    def delete(self, path: Path) -> None:
        """Delete a file, if it exists."""
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Sync a folder: a new file name is durable only after its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
