"""The spool: a folder with the segments that are not committed, for one process at a time."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import threading
import uuid
from pathlib import Path

import pyarrow as pa

from protocol.clock import Clock

from .disk import TEMPORARY, Disk
from .errors import MissingSegment, SpoolError
from .segment import SegmentFile
from .settings import IngestSettings

_log = logging.getLogger("pullstream.spark")

_SEGMENT = re.compile(r"seg-(\d{20})\.arrow")
META = "meta.json"
# What a write leaves that was cut short. Other files of such a name are not ours.
_HALF = re.compile(rf"({_SEGMENT.pattern}|{re.escape(META)}){re.escape(TEMPORARY)}")
_LOCK = "LOCK"
_FORMAT = 1

# How long a new process waits for one that is about to end, and how often it looks, in seconds.
LOCK_WAIT = 10.0
_LOCK_LOOK = 0.05


class Spool:
    """Owner of the folder, from `open` to `close`.

    One thread at a time changes it; meanwhile another may `get` segments and ask for the `size`.
    """

    def __init__(self, settings: IngestSettings, disk: Disk, clock: Clock) -> None:
        self._folder = settings.spool_dir
        self._subscription = settings.subscription
        self._capacity = settings.max_spool_bytes
        self._disk = disk
        self._clock = clock
        self._lock: int | None = None
        self._segments: dict[int, SegmentFile] = {}

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def size(self) -> int:
        """Bytes of the segments."""
        # A copy, as another thread may be at work; made in one step.
        return sum(segment.size for segment in list(self._segments.values()))

    @property
    def numbers(self) -> list[int]:
        """The numbers of the segments, in order."""
        return sorted(self._segments)

    def open(self) -> None:
        """Take the folder, which is made if need be, and see what is in it.

        Raises:
            SpoolError: another process has it, or it belongs to another subscription.
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
        """Let another process have the folder. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def get(self, seq: int) -> SegmentFile:
        """A segment.

        Raises:
            MissingSegment: it is not there.
        """
        segment = self._segments.get(seq)
        if segment is None or not segment.path.exists():
            raise MissingSegment(
                f"segment {seq} is not in the spool {self._folder}, which has "
                f"{self.numbers or 'none'}"
            )
        return segment

    def discard_after(self, seq: int) -> None:
        """Delete the segments beyond a number.

        Raises:
            SpoolError: that is not possible.
        """
        for number in [number for number in self.numbers if number > seq]:
            try:
                self._disk.delete(self._segments[number].path)
            except OSError as error:
                raise SpoolError(
                    f"cannot remove segment {number} from the spool {self._folder}: {error}. It "
                    "was never committed, and must not be taken for it: mend the folder, or give "
                    "the query an empty one"
                ) from error
            del self._segments[number]

    def write(self, seq: int, rows: int, batches: int, data: memoryview) -> None:
        """Keep a segment. Durable when it returns.

        Raises:
            SpoolError: there is no room for it; then it is not there.
        """
        size = len(data)
        if self.size + size > self._capacity:
            raise SpoolError(
                f"a batch of {rows} messages takes {size} bytes, but of the spool's "
                f"{self._capacity} bytes {self.size} are in use by batches that are not committed: "
                "raise its limit, or lower the number of messages a trigger. Nothing is lost: "
                "these messages are not acknowledged"
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
        """Forget a segment, if it is there."""
        segment = self._segments.pop(seq, None)
        if segment is not None:
            try:
                self._disk.delete(segment.path)
            except OSError as error:
                # It is looked at again after the next start.
                _log.warning("cannot delete %s: %s", segment.path, error)

    def _path(self, seq: int) -> Path:
        return self._folder / f"seg-{seq:020}.arrow"

    def _take_lock(self) -> None:
        """One process a spool. The predecessor of this one may still be on its way out."""
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._lock = lock
        end = self._clock.monotonic() + LOCK_WAIT
        pause = threading.Event()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._clock.monotonic() >= end:
                    raise SpoolError(
                        f"the spool {self._folder} is in use by another process (its number is in "
                        f"the file {_LOCK}: {_text(lock) or 'unknown'}). Stop that query, or give "
                        "each query a spool of its own"
                    ) from None
                pause.wait(_LOCK_LOOK)
            else:
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
                return

    def _check_owner(self) -> None:
        """A spool used for another subscription would suppress what only looks like a duplicate."""
        path = self._folder / META
        if not path.exists():
            meta = {"format": _FORMAT, "id": str(uuid.uuid4()), "subscription": self._subscription}
            self._disk.write(path, json.dumps(meta).encode())
            return
        try:
            meta = json.loads(path.read_bytes())
            if (written := meta["format"]) != _FORMAT:
                raise SpoolError(
                    f"{path}: format {written!r} is unknown; this version has {_FORMAT}"
                )
            owner = meta["subscription"]
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolError(f"{path} is damaged: {error!r}") from error
        if owner != self._subscription:
            raise SpoolError(
                f"the spool {self._folder} belongs to {owner}, not to {self._subscription}: give "
                "each subscription a spool of its own"
            )

    def _look_around(self) -> None:
        for path in self._folder.iterdir():
            if _HALF.fullmatch(path.name):
                self._disk.delete(path)
            elif match := _SEGMENT.fullmatch(path.name):
                seq = int(match[1])
                try:
                    self._segments[seq] = SegmentFile.open(path, seq)
                except pa.ArrowInvalid as error:
                    # Left where it is, for whoever wants to know why.
                    _log.error("segment %s is damaged, and treated as missing: %s", path, error)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 100, 0).decode(errors="replace")
