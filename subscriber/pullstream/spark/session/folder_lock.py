"""The lock of a spool on this machine, for one query at a time."""

from __future__ import annotations

import threading
from pathlib import Path

from pullstream.spark.errors import SpoolError
from pullstream_protocol.clock import Clock
from pullstream_protocol.file_lock import FileLock, holder_of

LOCK = "LOCK"

# Time that a new process waits for an ending one, and the polling interval, in seconds.
LOCK_WAIT = 10.0
_LOCK_LOOK = 0.05

# The file and the segments of a spool of versions that had another format.
_OLD_FILE, _OLD_SEGMENTS = "meta.json", "seg-*.arrow"


class FolderLock:
    """A lock that is taken when the object is created, and belongs to this process.

    The format needs no lock. The lock says at once, and in clear words, that two queries have the
    same folder, and lets a new process wait for the end of an earlier one.

    Args:
        folder: The folder, which is created if it does not exist.
        clock: Source of time.

    Raises:
        SpoolError: Another process uses the folder, or it has the format of an earlier version.
        OSError: The folder cannot be used.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_old_format(folder)
        path = folder / LOCK
        end = clock.monotonic() + LOCK_WAIT
        pause = threading.Event()
        while True:
            try:
                self._lock = FileLock(path)
            except BlockingIOError:
                if clock.monotonic() >= end:
                    raise SpoolError(
                        f"the spool {folder} is in use by another process (process id in the file "
                        f"{LOCK}: {holder_of(path) or 'unknown'}). Stop that query, or use a "
                        "separate spool for each query"
                    ) from None
                pause.wait(_LOCK_LOOK)
            else:
                return

    def release(self) -> None:
        """Release the folder for another process."""
        self._lock.release()


def refuse_old_format(folder: Path) -> None:
    """Raise SpoolError if a folder is a spool of an earlier version."""
    if (folder / _OLD_FILE).exists() or next(folder.glob(_OLD_SEGMENTS), None) is not None:
        raise SpoolError(
            f"the spool {folder} has the format of an earlier version, which was never released. "
            "Finish its batches with that version, then use an empty folder and an empty checkpoint"
        )
