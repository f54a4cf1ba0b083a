"""The uncommitted segments of a spool, as seen by a process that does not own the spool."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from .segment import SegmentFile
from .spool import segment_number


class WaitingSegment(NamedTuple):
    """A segment that is not committed.

    Attributes:
        seq: Number of the segment.
        rows: Number of its messages.
        size: Size of its file in bytes.
        oldest: The earliest publish time, in seconds since the epoch; None without messages.
    """

    seq: int
    rows: int
    size: int
    oldest: float | None


class WaitingSegments:
    """Looks at a spool's folder again and again. A segment is read once.

    Args:
        folder: Folder of the spool, which need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By file and time of its last change: a number may get another content before it is used.
        self._known: dict[tuple[Path, int], WaitingSegment] = {}

    def after(self, committed: int) -> list[WaitingSegment]:
        """Return the present segments with larger numbers than `committed`, in order.

        Raises:
            OSError: The folder cannot be read.
        """
        found = {}
        for path in self._folder.glob("*") if self._folder.exists() else ():
            seq = segment_number(path)
            if seq is None or seq <= committed:
                continue
            try:
                key = (path, path.stat().st_mtime_ns)
                found[key] = self._known.get(key) or _read(path, seq)
            except (FileNotFoundError, pa.ArrowInvalid):
                # Committed or put back meanwhile, or damaged, which the spool's owner reports.
                continue
        self._known = found
        return sorted(found.values())


def _read(path: Path, seq: int) -> WaitingSegment:
    segment = SegmentFile.open(path, seq)
    return WaitingSegment(seq, segment.rows, segment.size, segment.oldest_publish_time)
