"""The four tables of files, on a disk, in S3 and in Azure's store, without Spark."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

# The optional packages are installed from Python 3.11 on, as PySpark is.
if importlib.util.find_spec("deltalake") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "orders")


@pytest.fixture
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writes not wait for the disk, for tests that write many files and cut no power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
