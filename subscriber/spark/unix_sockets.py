"""Java and its Python workers talk by sockets that are files, where there can be such."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
import uuid
from functools import cache

# Short, as the path of a socket's file is 104 bytes at most on macOS and 108 on Linux.
_PREFIX = "ps-"


def unix_sockets() -> dict[str, str]:
    """The settings for it; none where it cannot be.

    By TCP each task stands still for 40 ms, half of its time if it has 10,000 rows: Java writes it
    in small pieces, of which Nagle's algorithm holds the second until the worker's system has
    acknowledged the first, and that delays acknowledgements by as much.
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
    """The sockets' folder of this process, which is removed at its end: Spark leaves the files
    there unless it is stopped. None if it cannot have any."""
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
    """Whether Spark can have a socket there; it tells by making one with a name like Spark's."""
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
    # A child that was forked ends as well, and before those that use the folder.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
