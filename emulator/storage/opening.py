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


def open_storage(directory: str | Path | None, default: Durability) -> Storage | None:
    """The storage in a directory; None for a broker that keeps everything in memory.

    Raises:
        StorageError: it is in use, damaged, of another version, or cannot be written.
    """
    if directory is None:
        return None
    from .storage import Storage

    return Storage(directory, default)
