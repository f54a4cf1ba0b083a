"""A small file system in memory, which can be filled. The machine's own disk is never filled."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

SIZE = "64m"


class SmallDisk:
    """A tmpfs at a folder. `is_mounted` is False where mounting is not permitted."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "jepsen", str(folder)]
        try:
            self.is_mounted = subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            self.is_mounted = False
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Take all free space."""
        assert self.is_mounted
        # Not even the file can be made if the broker has filled the disk.
        with suppress(OSError), self._ballast.open("ab") as file:
            while True:
                file.write(bytes(65536))
                file.flush()
        # The last bytes.
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount the file system."""
        if self.is_mounted and os.path.ismount(self.folder):
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)
            self.is_mounted = False
