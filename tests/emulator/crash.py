"""Copies the data directory of a running broker, as a crash would leave it."""

from __future__ import annotations

import shutil
from pathlib import Path

from pullstream_emulator.storage.marks import MARK_NAME
from pullstream_emulator.storage.rebuilding import FILE_NAME, LOG_NAME


def copy_running(directory: Path, target: Path) -> Path:
    """Copy the files in an order in which the mark is never ahead of the log."""
    target.mkdir()
    for name in (MARK_NAME, FILE_NAME, LOG_NAME):
        shutil.copy(directory / name, target)
    return target
