"""Unix domain sockets between Java and its Python workers, on systems that have them."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
import uuid
from functools import cache

# Short, because the path of a socket has at most 104 bytes on macOS and 108 on Linux.
_PREFIX = "ps-"


def unix_sockets() -> dict[str, str]:
    """Return the Spark settings for Unix sockets; empty if they cannot be used.

    Over TCP each task stalls for 40 ms, which is half of its time with 10,000 rows: Java writes the
    task in small pieces. Nagle's algorithm holds the second piece until the worker's system has
    acknowledged the first, and delayed acknowledgements take 40 ms.
    """
    folder = _folder(os.getpid())
    if folder is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


@cache
def _folder(process: int) -> str | None:
    """Return the folder for the sockets of this process, or None if it cannot have one.

    The folder is deleted at exit, because Spark deletes the files only when it is stopped.
    """
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
    except OSError:
        return None
    if not _takes_sockets(folder):
        os.rmdir(folder)
        return None
    atexit.register(_remove, folder, process)
    return folder


def _takes_sockets(folder: str) -> bool:
    """Return whether Spark can create sockets in a folder.

    Tested by creating a socket with a name like Spark's.
    """
    if not hasattr(socket, "AF_UNIX") or not folder.isascii():
        return False
    path = os.path.join(folder, f".{uuid.uuid4()}.sock")
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.bind(path)
        except OSError:
            return False
    os.unlink(path)
    return True


def _remove(folder: str, process: int) -> None:
    # A forked child also runs exit handlers, possibly while its parent still uses the folder.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
