"""Marks: their encoding, their file, and the times of its flushes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pullstream_emulator.storage import marks
from pullstream_emulator.storage.marks import (
    MARK_BYTES,
    MARK_NAME,
    SYNC_INTERVAL,
    Mark,
    MarkFile,
    Total,
)
from pullstream_emulator.storage.writer import Writer
from pullstream_protocol.clock import ManualClock
from tests.emulator.wire import TIMEOUT


def mark(commit: int) -> Mark:
    return Mark(3, 1234, 2, commit, 1_700_000_000.5, (Total(1, 2), Total(3, 4)))


def write(file: MarkFile, commit: int) -> None:
    file.write(commit, mark(commit).encode())


def test_a_storage_commit_mark_survives_encoding_and_decoding() -> None:
    data = mark(7).encode()
    assert len(data) == MARK_BYTES
    assert Mark.decode(data) == mark(7)


@pytest.mark.parametrize("bit", range(0, MARK_BYTES * 8, 61))
def test_a_storage_commit_mark_with_a_changed_bit_is_read_as_invalid(bit: int) -> None:
    data = bytearray(mark(7).encode())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="checksum"):
        Mark.decode(bytes(data))


def test_reading_a_mark_file_returns_the_newest_valid_storage_commit_mark(tmp_path: Path) -> None:
    """If a power cut has damaged it, the previous one counts."""
    MarkFile.create(tmp_path, mark(4))
    file = MarkFile(tmp_path)
    for commit in (5, 6, 7):
        write(file, commit)
        assert MarkFile.read(tmp_path) == mark(commit)
    file.close()
    path = tmp_path / MARK_NAME
    data = path.read_bytes()
    path.write_bytes(data.replace(mark(7).encode(), bytes(MARK_BYTES)))
    assert MarkFile.read(tmp_path) == mark(6)
    path.write_bytes(bytes(len(data)))
    with pytest.raises(ValueError, match="checksum"):
        MarkFile.read(tmp_path)


def test_storage_commit_marks_are_flushed_to_disk_at_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark is flushed with a commit if the last flush is old enough.

    Otherwise it is flushed in a pause or at the end.
    """
    flushes: list[int] = []
    monkeypatch.setattr(marks, "_sync", flushes.append)
    clock = ManualClock()
    MarkFile.create(tmp_path, mark(1))
    file = MarkFile(tmp_path, clock=clock)
    write(file, 2)
    assert len(flushes) == 1
    write(file, 3)
    assert len(flushes) == 1
    clock.advance(SYNC_INTERVAL)
    write(file, 4)
    assert len(flushes) == 2
    write(file, 5)
    file.sync()
    file.sync()
    assert len(flushes) == 3
    write(file, 6)
    file.close()
    assert len(flushes) == 4


def test_flushes_of_commit_marks_to_a_slow_disk_take_at_most_a_twentieth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval between the flushes grows."""
    clock = ManualClock()
    monkeypatch.setattr(marks, "_sync", lambda descriptor: clock.advance(0.1))
    MarkFile.create(tmp_path, mark(1))
    file = MarkFile(tmp_path, clock=clock)
    begun = clock.monotonic()
    for commit in range(2, 1002):
        write(file, commit)
        clock.advance(0.01)
    busy = clock.monotonic() - begun - 10
    assert 0.2 < busy <= 0.61
    file.close()


def test_an_idle_storage_writer_flushes_the_last_commit_mark() -> None:
    """The writer calls its function for idle times."""
    rested = threading.Event()
    writer = Writer(lambda changes: None, lambda: None, rested.set, "the database", 0.5)
    writer.flush()
    assert rested.wait(TIMEOUT)
    writer.close()


def test_the_storage_mark_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    MarkFile.create(tmp_path, mark(1))
    assert os.stat(tmp_path / MARK_NAME).st_mode & 0o777 == 0o600
