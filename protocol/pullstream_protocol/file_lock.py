"""File lock between processes. It ends with its holder, also if the holder is killed."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
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
        self._path = path
        while True:
            self._descriptor = _opened(path)
            try:
                _take(self._descriptor, wait=wait)
                # The last holder may have removed the file meanwhile. Then another process may
                # lock a new file of this name.
                if _is_at(path, self._descriptor):
                    os.ftruncate(self._descriptor, 0)
                    os.write(self._descriptor, str(os.getpid()).encode())
                    break
            except OSError:
                os.close(self._descriptor)
                raise
            os.close(self._descriptor)
        _held.add(self._descriptor)

    def release(self) -> None:
        """Release the lock. Call it once, in the process that holds the lock."""
        _held.discard(self._descriptor)
        os.close(self._descriptor)

    def remove(self) -> None:
        """Like `release`, and remove the file if the system allows that for an open file."""
        # Before the release: afterwards another process may hold it.
        with suppress(OSError):
            self._path.unlink()
        self.release()


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


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
