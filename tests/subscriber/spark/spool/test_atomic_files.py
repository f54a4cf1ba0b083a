"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pullstream.spark.spool.atomic_files import AtomicFiles


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full when written data is synced."""

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)


def test_an_atomic_file_write_replaces_the_whole_file_and_leaves_no_temporary_file(
    tmp_path: Path,
) -> None:
    """No other file remains."""
    disk, path = AtomicFiles(), tmp_path / "file"
    disk.write(path, b"a longer first content")
    disk.write(path, memoryview(b"second"))
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_atomic_file_write_keeps_the_old_file_unchanged(
    tmp_path: Path, full: None
) -> None:
    """The old file is unchanged, and there is no other."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        AtomicFiles().write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_atomic_file_append_adds_the_data_to_the_end_of_the_file(tmp_path: Path) -> None:
    """The first call creates the file."""
    disk, path = AtomicFiles(), tmp_path / "file"
    disk.append(path, b"a")
    disk.append(path, b"bc")
    assert path.read_bytes() == b"abc"


def test_a_failed_atomic_file_append_leaves_no_partial_data_in_the_file(
    tmp_path: Path, full: None
) -> None:
    """The partial data is cut off again."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        AtomicFiles().append(path, b"new")
    assert path.read_bytes() == b"old"


def test_deleting_a_spool_file_that_does_not_exist_raises_no_error(tmp_path: Path) -> None:
    """A crash may have come after an earlier deletion."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    AtomicFiles().delete(path)
    AtomicFiles().delete(path)
    assert not path.exists()
