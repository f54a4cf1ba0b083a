"""Files that survive a crash: there as a whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY = ".tmp"


class Disk:
    """The three ways in which the spool changes its folder. Each is durable when it returns."""

    def write(self, path: Path, data: memoryview | bytes) -> None:
        """Make or replace a file at once: whoever looks sees the old one or all of the new."""
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
        """Add to a file, which is made if it is not there.

        Cut short by a crash, some first part of `data` may be there; after an error nothing is.
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
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A new name is durable only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
