"""Marks: the number and the totals of a commit, written to the database and to the mark file."""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pullstream_protocol.clock import Clock, SystemClock
from pullstream_protocol.file_lock import NO_LINK

MARK_NAME = "pullstream.mark"

# A mark is one sector long, and the two slots of the file share no page: a write that a power cut
# interrupts can damage one mark only.
MARK_BYTES = 512
_SLOT_BYTES = 4096
_FILE_BYTES = 2 * _SLOT_BYTES

# The shortest time between two flushes of the file, in seconds. On a slow disk it is _SHARE times
# the duration of a flush.
SYNC_INTERVAL = 0.05
_SHARE = 20

_MAGIC = b"pullmark"
_HEAD = struct.Struct("<8sQQQQdQ")
_TOTAL = struct.Struct("<QQ")
_DIGEST_BYTES = 16


class Total(NamedTuple):
    """The total of a table.

    Attributes:
        amount: Number of its messages or rows.
        seals: The sum of its rows' checksums.
    """

    amount: int = 0
    seals: int = 0


class Mark(NamedTuple):
    """The state of a database after a commit.

    Attributes:
        format: The format of its tables.
        directory: A random number, which shows if the files of two directories are mixed up.
        starts: Number of starts of a broker on the database.
        commit: Number of transactions.
        time: The time of the commit, in seconds since 1970.
        totals: The totals of the tables, in the order of `TABLES`.
    """

    format: int
    directory: int
    starts: int
    commit: int
    time: float
    totals: tuple[Total, ...]

    def encode(self) -> bytes:
        """Return the mark as MARK_BYTES bytes that end with a checksum."""
        head = _HEAD.pack(_MAGIC, *self[:5], len(self.totals))
        data = head + struct.pack(f"<{2 * len(self.totals)}Q", *chain.from_iterable(self.totals))
        data = data.ljust(MARK_BYTES - _DIGEST_BYTES, b"\0")
        return data + blake2b(data, digest_size=_DIGEST_BYTES).digest()

    @staticmethod
    def decode(data: bytes) -> Mark:
        """Return the mark that `data` encodes.

        Raises:
            ValueError: The data was changed after it was written.
        """
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if (
            len(data) != MARK_BYTES
            or blake2b(content, digest_size=_DIGEST_BYTES).digest() != digest
        ):
            raise ValueError("the checksum of the mark is wrong")
        magic, format, directory, starts, commit, time, count = _HEAD.unpack_from(content)
        if magic != _MAGIC:
            raise ValueError("the data is not a mark")
        end = _HEAD.size + count * _TOTAL.size
        totals = tuple(Total(*each) for each in _TOTAL.iter_unpack(content[_HEAD.size : end]))
        return Mark(format, directory, starts, commit, time, totals)


class MarkFile:
    """An existing file with two slots, for the newest mark and the mark before it.

    Raises:
        OSError: The file cannot be opened for writing.
    """

    def __init__(self, directory: Path, *, clock: Clock | None = None) -> None:
        flags = os.O_RDWR | NO_LINK | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(directory / MARK_NAME, flags)
        self._clock = clock or SystemClock()
        self._is_synced = True
        self._next_sync = 0.0

    @staticmethod
    def create(directory: Path, mark: Mark) -> None:
        """Create or replace the file with one mark, and flush it to disk.

        Raises:
            OSError: The file cannot be written.
        """
        new = directory / f"{MARK_NAME}.new"
        slot = mark.encode().ljust(_SLOT_BYTES, b"\0")
        # A link in its place would make the broker write elsewhere.
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(slot * 2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, directory / MARK_NAME)
        sync_directory(directory)

    @staticmethod
    def read(directory: Path) -> Mark | None:
        """Return the newest undamaged mark; None if there is no file.

        Raises:
            ValueError: The file is damaged.
            OSError: The file cannot be read.
        """
        try:
            data = (directory / MARK_NAME).read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != _FILE_BYTES:
            raise ValueError(f"it has {len(data)} bytes instead of {_FILE_BYTES}")
        marks = []
        for start in range(0, _FILE_BYTES, _SLOT_BYTES):
            try:
                marks.append(Mark.decode(data[start : start + MARK_BYTES]))
            except ValueError as error:
                reason = error
        if not marks:
            raise reason
        return max(marks, key=lambda mark: mark.commit)

    def write(self, commit: int, encoded: bytes) -> None:
        """Replace the older mark by the encoded mark of a commit.

        Afterwards the operating system has the mark, so a killed process does not lose it. It is
        also flushed to disk if the last flush was long enough ago. A flush for each commit would
        take as long as the commit itself.

        Raises:
            OSError: The file cannot be written.
        """
        os.lseek(self._descriptor, commit % 2 * _SLOT_BYTES, os.SEEK_SET)
        os.write(self._descriptor, encoded)
        self._is_synced = False
        if self._clock.monotonic() >= self._next_sync:
            self.sync()

    def sync(self) -> None:
        """Flush the newest mark to disk.

        Raises:
            OSError: The file cannot be written.
        """
        if not self._is_synced:
            begun = self._clock.monotonic()
            _sync(self._descriptor)
            self._is_synced = True
            ended = self._clock.monotonic()
            self._next_sync = ended + max(SYNC_INTERVAL, _SHARE * (ended - begun))

    def close(self) -> None:
        """Flush the newest mark to disk, and close the file even if that fails."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)


# fdatasync is enough: the size of the file does not change, and its times do not matter.
_sync = getattr(os, "fdatasync", os.fsync)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to disk, on systems that can open a directory."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
