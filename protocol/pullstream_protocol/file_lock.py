"""File lock between processes. It ends with its holder, also if the holder is killed."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int, *, wait: bool) -> None:
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                return
            except OSError as error:
                # LK_LOCK fails after 10 s.
                if not wait:
                    raise BlockingIOError(error.errno, "the file is locked") from error

else:
    import fcntl

    def _take(descriptor: int, *, wait: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _let_go_in_child() -> None:
        """Close the locks in a forked child, which shares them and would keep them locked."""
        for descriptor in _held:
            os.close(descriptor)
        _held.clear()

    # Not by the hook of pullstream.runtime.process, because the broker uses this module, too.
    os.register_at_fork(after_in_child=_let_go_in_child)

_held: set[int] = set()

# A link in place of a file that a program writes could lead to any file of its user. Windows has no
# such flag.
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)


class FileLock:
    """Holds a lock on a file until `release`. The file is used for nothing else.

    The file contains the process ID of the holder. Only the file's owner may read and write it.

    Args:
        path: The file. It is created if it does not exist.
        wait: Whether to wait while another FileLock holds it, in this process or in another one.

    Raises:
        BlockingIOError: Another FileLock holds it, and `wait` is False.
        OSError: The file cannot be created, or is a symbolic link.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        # The file is never removed. Otherwise two processes could each hold a lock, on two files
        # that have had the same name.
        self._descriptor = _opened(path)
        try:
            _take(self._descriptor, wait=wait)
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, str(os.getpid()).encode())
        except OSError:
            os.close(self._descriptor)
            raise
        _held.add(self._descriptor)

    def release(self) -> None:
        """Release the lock. Call it once, in the process that holds the lock."""
        _held.discard(self._descriptor)
        os.close(self._descriptor)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(
                errno.ELOOP,
                f"the lock file {path.name} must not be a symbolic link; remove it",
                str(path),
            ) from error
        raise


def holder_of(path: Path) -> int | None:
    """Return the process ID of a lock's holder; None if it is not known."""
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return None
