"""Opens a data directory. SQLite is loaded only if there is a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pullstream_emulator.engine.settings.durability import MAX_LOSS, Durability

from .errors import StorageError

if TYPE_CHECKING:
    from .storage import Storage


def open_storage(
    directory: str | Path | None,
    durability: str | None,
    *,
    recover: bool = False,
    max_loss: float | None = None,
) -> Storage | None:
    """Return the storage in a directory; None for a broker that keeps everything in memory.

    Args:
        directory: The data directory; None: everything is in memory.
        durability: The class of topics without the label; None: "disk" if there is a directory.
        recover: Whether to continue with the remaining data if the directory is damaged.
        max_loss: At class disk, a crash loses at most the changes of this many seconds; None:
            MAX_LOSS.

    Raises:
        StorageError: The directory is in use, damaged, from another version, or cannot be written;
            or another argument requires a directory and there is none.
        ValueError: There is no such durability class, or `max_loss` is not positive.
    """
    default = None if durability is None else Durability(durability)
    if max_loss is not None and not max_loss > 0:
        raise ValueError(f"max_loss is {max_loss}; it must be more than 0 seconds")
    if directory == "":
        raise StorageError("the data directory is empty text; give a path, such as ./broker-data")
    if directory is None:
        if recover or max_loss is not None:
            option = "recover" if recover else "max_loss"
            raise StorageError(f"{option} needs a data directory")
        if default in (Durability.DISK, Durability.FSYNC):
            raise StorageError(
                f"durability {durability} needs a data directory; without one a broker keeps "
                "everything in memory"
            )
        return None
    from .storage import Storage

    return Storage(
        directory,
        default or Durability.DISK,
        recover=recover,
        max_loss=MAX_LOSS if max_loss is None else max_loss,
    )
