"""Batches of a spool that are committed, as somebody else than a running query knows."""

from __future__ import annotations

from pullstream.spark.protocol.coordinator import START, Coordinator, Offset
from pullstream.spark.protocol.elapsed import elapsed
from pullstream.spark.protocol.storage import run
from pullstream.spark.settings import IngestSettings
from pullstream.spark.stores import LocalFolder
from pullstream_protocol.clock import SYSTEM_CLOCK

from .folder_lock import FolderLock
from .source_session import coordinator_settings


def mark_committed(settings: IngestSettings, newest: int, offset: Offset = START) -> None:
    """Mark the batches up to `newest` as committed.

    Receivers that hold their messages acknowledge them. Otherwise they are acknowledged when they
    come again, and are left out of later batches. No query may use the spool meanwhile.

    Args:
        settings: The settings of the query.
        newest: Number of the last batch that is committed.
        offset: The checkpoint's newest offset. Default: the checkpoint has none, and the table
            proves that it has the batches.

    Raises:
        SpoolError: The spool cannot be used, or does not have the batch.
    """
    storage = settings.spool()
    lock = FolderLock(storage.folder, SYSTEM_CLOCK) if isinstance(storage, LocalFolder) else None
    try:
        coordinator = Coordinator(coordinator_settings(settings), elapsed=elapsed)
        state = run(coordinator.open(offset), storage)
        if newest > state.mark:
            run(coordinator.commit(newest), storage)
    finally:
        if lock is not None:
            lock.release()
