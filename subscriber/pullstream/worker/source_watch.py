"""Detects changes of source files since the last check."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

# Modification time in nanoseconds, and size.
_Stamp = tuple[int, int]


class SourceWatch:
    """Watches .py files, single ones or all below a folder. For development: it checks each file.

    Folders whose names begin with a dot and virtual environments are ignored.

    Args:
        roots: Files and folders.
    """

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots: set[str] = set()
        self._stamps: dict[str, _Stamp] = {}
        self.add(roots)

    def add(self, roots: Iterable[str]) -> None:
        """Watch these files and folders, too, from now on."""
        for root in {os.path.abspath(root) for root in roots} - self._roots:
            self._roots.add(root)
            self._stamps = {**_stamps(root), **self._stamps}

    def changed(self) -> str | None:
        """Return one file that was changed, added or removed since the last call, or None."""
        before = self._stamps
        self._stamps = {}
        for root in self._roots:
            self._stamps.update(_stamps(root))
        different = before.items() ^ self._stamps.items()
        return min((path for path, _ in different), default=None)


def _stamps(root: str) -> dict[str, _Stamp]:
    found = {}
    for path in _python_files(root):
        try:
            status = os.stat(path)
        except OSError:
            # The file was removed after the listing.
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _python_files(root: str) -> Iterator[str]:
    if os.path.isfile(root):
        yield root
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        ]
        for name in files:
            if name.endswith(".py"):
                yield os.path.join(folder, name)
