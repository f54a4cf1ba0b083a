"""A file is there as a whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from subscriber.spark.disk import Disk


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is found to be full when what was written is to be made safe."""

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)


def test_writing_replaces_the_whole_file(tmp_path: Path) -> None:
    """And leaves nothing else behind."""
    disk, path = Disk(), tmp_path / "file"
    disk.write(path, b"a longer first content")
    disk.write(path, memoryview(b"second"))
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_changes_nothing(tmp_path: Path, full: None) -> None:
    """The file is as it was, and there is no other."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        Disk().write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_appending_adds_to_the_end(tmp_path: Path) -> None:
    """The file begins with the first time."""
    disk, path = Disk(), tmp_path / "file"
    disk.append(path, b"a")
    disk.append(path, b"bc")
    assert path.read_bytes() == b"abc"


def test_an_append_that_fails_changes_nothing(tmp_path: Path, full: None) -> None:
    """What it had written of it is cut off again."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        Disk().append(path, b"new")
    assert path.read_bytes() == b"old"


def test_deleting_what_is_gone_is_no_error(tmp_path: Path) -> None:
    """A crash may have come after it the last time."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    Disk().delete(path)
    Disk().delete(path)
    assert not path.exists()
