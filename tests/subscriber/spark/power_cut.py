"""A disk after a power failure: it has the files and names that were synced, and no others."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from unittest import mock


class PowerCut:
    """Records which files and entries of folders are synced during its block.

    Attributes:
        fail_folders: Whether syncing a folder fails.
    """

    def __init__(self) -> None:
        self.fail_folders = False
        self._contents: set[int] = set()
        self._entries: set[Path] = set()

    def __enter__(self) -> PowerCut:
        self._patch = mock.patch("os.fsync", self._sync)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            self._contents.add(status.st_ino)
        elif self.fail_folders:
            raise OSError("the disk does not answer")
        else:
            folder = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self._entries.update(folder.iterdir())

    def left(self, folder: Path) -> set[str]:
        """Return the files below a folder that are complete after a power failure."""
        found = set()
        for path in folder.rglob("*"):
            between = [path, *path.parents]
            entries = between[: between.index(folder)]
            is_complete = path.is_file() and path.stat().st_ino in self._contents
            if is_complete and self._entries.issuperset(entries):
                found.add(path.relative_to(folder).as_posix())
        return found
