"""Batches of a spool that a table proves to be committed, although the checkpoint is lost."""

from __future__ import annotations

from pullstream.spark.session.settings import IngestSettings
from pullstream_protocol.clock import SYSTEM_CLOCK

from .atomic_files import AtomicFiles
from .message_keys import keys_of
from .segments import Segments


def mark_committed(settings: IngestSettings, newest: int) -> int:
    """Record the segments up to `newest` as committed, and delete them.

    Their messages are acknowledged when they come again, and are left out of later batches. No
    query may use the spool meanwhile.

    Args:
        settings: The settings of the query.
        newest: Number of the last committed segment.

    Returns:
        The number of segments that were not known to be committed.

    Raises:
        SpoolError: The spool cannot be used.
        OSError: The ids cannot be recorded. The segments stay.
    """
    segments = Segments(settings, AtomicFiles(), SYSTEM_CLOCK)
    segments.open()
    try:
        numbers = [number for number in segments.spool.numbers if number <= newest]
        for number in numbers:
            ids = list(segments.spool.get(number).leases())
            segments.done.add(number, keys_of(ids))
            segments.spool.remove(number)
        return len(numbers)
    finally:
        segments.close()
