"""Opening a data directory, without SQLite where there is none to open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import PullstreamError

from .durability import Durability

if TYPE_CHECKING:
    from .storage import Storage


class StorageError(PullstreamError):
    """The data directory cannot be used; the text says which and why."""


def open_storage(directory: str | Path | None, durability: str | None) -> Storage | None:
    """The storage in a directory; None for a broker that keeps everything in memory.

    Args:
        durability: of the topics that name none; by default, they are on disk.

    Raises:
        StorageError: it is in use, damaged, of another version, or cannot be written; or what has
            no directory is to be on disk.
        ValueError: there is no such durability.
    """
    default = None if durability is None else Durability(durability)
    if directory is None:
        if default in (Durability.DISK, Durability.FSYNC):
            raise StorageError(
                f"durability {durability} needs a data directory; without one a broker keeps "
                "everything in memory"
            )
        return None
    from .storage import Storage

    return Storage(directory, default or Durability.DISK)
