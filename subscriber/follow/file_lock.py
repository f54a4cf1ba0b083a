"""A lock between processes that ends with whoever holds it, however that ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, "the file is locked") from error

else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _let_go_in_child() -> None:
        """A lock is shared with a forked child, and would outlive its holder there."""
        for descriptor in _held:
            os.close(descriptor)
        _held.clear()

    os.register_at_fork(after_in_child=_let_go_in_child)

_held: set[int] = set()


class FileLock:
    """Holds a lock on a file of its own, from its creation until `release`.

    Raises:
        BlockingIOError: somebody else has it.
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        # The file stays: to remove it would let two have a lock each, on two files of one name.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(self._descriptor)
        except OSError:
            os.close(self._descriptor)
            raise
        _held.add(self._descriptor)

    def release(self) -> None:
        """Let others have it. To be called once, in the process that has it."""
        _held.discard(self._descriptor)
        os.close(self._descriptor)
