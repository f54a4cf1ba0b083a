"""The spool: a folder with the uncommitted segments, for one process at a time."""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from pathlib import Path

import pyarrow as pa

from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.session.settings import IngestSettings
from pullstream_protocol.clock import Clock
from pullstream_protocol.file_lock import FileLock, holder_of

from .atomic_files import TEMPORARY, AtomicFiles
from .segment import SegmentFile

_log = logging.getLogger("pullstream.spark")

_SEGMENT = re.compile(r"seg-(\d{20})\.arrow")
META = "meta.json"
# Remains of an interrupted write. Files with other names are not ours.
_HALF = re.compile(rf"({_SEGMENT.pattern}|{re.escape(META)}){re.escape(TEMPORARY)}")
# The key in META of the highest discarded number. A spool that has discarded nothing lacks it.
_DISCARDED = "discarded"
_LOCK = "LOCK"
_FORMAT = 1

# Time that a new process waits for an ending one, and the polling interval, in seconds.
LOCK_WAIT = 10.0
_LOCK_LOOK = 0.05


def segment_number(path: Path) -> int | None:
    """Return the number of the segment that a file of a spool is; None: it is another file."""
    match = _SEGMENT.fullmatch(path.name)
    return None if match is None else int(match[1])


class Spool:
    """Owner of the folder, from `open` to `close`.

    Only one thread at a time changes it. Another thread may call `get` and `size` at the same time.
    """

    def __init__(self, settings: IngestSettings, disk: AtomicFiles, clock: Clock) -> None:
        self._folder = settings.spool_dir
        self._subscription = settings.subscription
        self._capacity = settings.max_spool_bytes
        self._disk = disk
        self._clock = clock
        self._lock: FileLock | None = None
        self._meta: dict[str, object] = {}
        self._newest_discarded = 0
        self._segments: dict[int, SegmentFile] = {}

    @property
    def newest_discarded(self) -> int:
        """The highest number of a discarded segment; 0 if there is none. Durable.

        A checkpoint may still refer to a discarded segment. If another segment got the same number,
        that checkpoint would acknowledge messages that its engine has never seen.
        """
        return self._newest_discarded

    @property
    def folder(self) -> Path:
        """Path of the folder with the segments."""
        return self._folder

    @property
    def size(self) -> int:
        """Total size of the segments in bytes."""
        # A copy, because another thread may change the dict. It is made in one step.
        return sum(segment.size for segment in list(self._segments.values()))

    @property
    def numbers(self) -> list[int]:
        """The numbers of the segments, in order."""
        return sorted(self._segments)

    def open(self) -> None:
        """Lock the folder and read its contents. The folder is created if it does not exist.

        Raises:
            SpoolError: Another process uses the folder, or it belongs to another subscription.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._check_owner()
            self._look_around()
        except OSError as error:
            self.close()
            raise SpoolError(f"cannot use {self._folder} as a spool: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder for another process. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def get(self, seq: int) -> SegmentFile:
        """Return a segment.

        Raises:
            MissingSegment: The segment does not exist.
        """
        segment = self._segments.get(seq)
        if segment is None or not segment.path.exists():
            raise MissingSegment(
                f"segment {seq} is not in the spool {self._folder}, which has "
                f"{self.numbers or 'none'}"
            )
        return segment

    def discard_after(self, seq: int) -> None:
        """Delete the segments after `seq` and record that their numbers are used.

        Raises:
            SpoolError: A file cannot be deleted, or the numbers cannot be recorded.
        """
        unwanted = [number for number in self.numbers if number > seq]
        if unwanted:
            self._record_discarded(unwanted[-1])
        for number in unwanted:
            try:
                self._disk.delete(self._segments[number].path)
            except OSError as error:
                raise SpoolError(
                    f"cannot delete segment {number} from the spool {self._folder}: {error}. The "
                    "segment was never committed and must not be replayed. Repair the folder, or "
                    "use an empty one for the query"
                ) from error
            del self._segments[number]

    def _record_discarded(self, seq: int) -> None:
        """Raise `newest_discarded` to at least `seq`."""
        newest = max(self._newest_discarded, seq)
        try:
            self._write_meta({**self._meta, _DISCARDED: newest})
        except OSError as error:
            raise SpoolError(
                f"cannot record in the spool {self._folder} that segment {seq} is discarded: "
                f"{error}. The segment was never committed and must not be replayed. Nothing is "
                "lost. Repair the folder, or use an empty one for the query"
            ) from error
        self._newest_discarded = newest

    def write(self, seq: int, rows: int, batches: int, data: memoryview) -> None:
        """Store a segment. It is durable when the method returns.

        Args:
            seq: Number of the segment.
            rows: Number of rows in `data`.
            batches: Number of Arrow batches in `data`.
            data: Content of the file.

        Raises:
            SpoolError: There is no room for the segment; nothing is stored.
        """
        size = len(data)
        if self.size + size > self._capacity:
            raise SpoolError(
                f"a batch of {rows} messages takes {size} bytes, but {self.size} of the spool's "
                f"{self._capacity} bytes are in use by batches that are not committed. Raise the "
                "limit of the spool, or lower the number of messages per trigger. Nothing is "
                "lost: these messages are not acknowledged"
            )
        path = self._path(seq)
        try:
            self._disk.write(path, data)
        except OSError as error:
            raise SpoolError(
                f"cannot write a batch of {rows} messages ({size} bytes) to {path}: {error}. "
                "Nothing is lost: these messages are not acknowledged"
            ) from error
        self._segments[seq] = SegmentFile(path, seq, rows, batches, size)

    def remove(self, seq: int) -> None:
        """Delete a segment, if it exists."""
        segment = self._segments.pop(seq, None)
        if segment is not None:
            try:
                self._disk.delete(segment.path)
            except OSError as error:
                # The file is read again at the next start.
                _log.warning("cannot delete %s: %s", segment.path, error)

    def _path(self, seq: int) -> Path:
        return self._folder / f"seg-{seq:020}.arrow"

    def _take_lock(self) -> None:
        """Lock the folder for this process; wait for an earlier process that is ending."""
        path = self._folder / _LOCK
        end = self._clock.monotonic() + LOCK_WAIT
        pause = threading.Event()
        while self._lock is None:
            try:
                self._lock = FileLock(path)
            except BlockingIOError:
                if self._clock.monotonic() >= end:
                    raise SpoolError(
                        f"the spool {self._folder} is in use by another process (process id "
                        f"in the file {_LOCK}: {holder_of(path) or 'unknown'}). Stop that query, "
                        "or use a separate spool for each query"
                    ) from None
                pause.wait(_LOCK_LOOK)

    def _check_owner(self) -> None:
        """Check the subscription: with another one, the spool would suppress unrelated messages."""
        path = self._folder / META
        if not path.exists():
            self._write_meta(
                {"format": _FORMAT, "id": str(uuid.uuid4()), "subscription": self._subscription}
            )
            return
        try:
            meta = json.loads(path.read_bytes())
            if (written := meta["format"]) != _FORMAT:
                raise SpoolError(
                    f"{path}: format {written!r} is unknown; this version supports {_FORMAT}"
                )
            owner = meta["subscription"]
            self._newest_discarded = int(meta.get(_DISCARDED, 0))
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolError(f"{path} is damaged: {error!r}") from error
        if owner != self._subscription:
            raise SpoolError(
                f"the spool {self._folder} belongs to {owner}, not to {self._subscription}; use a "
                "separate spool for each subscription"
            )
        self._meta = meta

    def _write_meta(self, meta: dict[str, object]) -> None:
        self._disk.write(self._folder / META, json.dumps(meta).encode())
        self._meta = meta

    def _look_around(self) -> None:
        for path in self._folder.iterdir():
            if _HALF.fullmatch(path.name):
                self._disk.delete(path)
            elif (seq := segment_number(path)) is not None:
                try:
                    self._segments[seq] = SegmentFile.open(path, seq)
                except pa.ArrowInvalid as error:
                    # The file is kept for an investigation.
                    _log.error("segment %s is damaged and treated as missing: %s", path, error)
