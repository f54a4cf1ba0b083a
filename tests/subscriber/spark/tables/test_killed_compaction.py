"""Compactions whose process is killed at the commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pullstream.spark.tables import delta_maintenance, iceberg_maintenance
from pullstream.spark.tables.maintenance import TableLocation
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.spark.tables.written import (
    LAKES,
    SOURCE,
    current_files,
    data_files,
    ids,
    put,
    table,
)

ROOT = Path(__file__).parents[4]
DAY = 24 * 3600.0
SMALL_FILES = 60


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def killed_compaction(folder: Path, kind: str, moment: str) -> None:
    """Run a compaction whose process dies before or after its commit."""
    program = "tests.subscriber.spark.tables.killed_compaction"
    done = subprocess.run(
        [sys.executable, "-m", program, str(folder), kind, moment],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert -done.returncode in (signal.SIGKILL, signal.SIGXFSZ), done.stderr


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", LAKES)
def test_a_table_stays_as_it_is_when_its_compaction_is_killed_before_or_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: str
) -> None:
    """Rows, marker and later batches are not changed, and `clean` removes the unnamed files."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    put(written, 0, range(SMALL_FILES), count=SMALL_FILES)
    killed_compaction(folder, kind, moment)
    # The new file is there in any case.
    assert len(data_files(folder)) == SMALL_FILES + 1
    assert len(current_files(kind, folder)) == (SMALL_FILES if moment == "before" else 1)
    assert ids(kind, folder) == [*range(SMALL_FILES)]

    for again in (written, table(kind, folder)):
        assert again.newest(SOURCE) == 0
        assert not put(again, 0, [7])
    assert put(written, 1, [SMALL_FILES])
    assert put(table(kind, folder), 2, [SMALL_FILES + 1])
    expected = [*range(SMALL_FILES + 2)]
    assert ids(kind, folder) == expected

    in_a_month = SYSTEM_CLOCK.now() + 30 * DAY
    for module in (delta_maintenance, iceberg_maintenance):
        monkeypatch.setattr(module, "time_of", lambda _: in_a_month)
    maintained = TableLocation(folder=str(folder), format=kind).opened()
    maintained.clean(7 * DAY, apply=True)
    # Iceberg keeps the files that the current snapshot has removed.
    if (kind, moment) != ("iceberg", "after"):
        named = {path.rpartition("/")[2] for path in current_files(kind, folder)}
        assert {path.name for path in data_files(folder)} == named
    # The beginning of deltalake's entry in the log.
    assert not list(folder.rglob("*#*"))
    assert maintained.compact().removed == (SMALL_FILES + 2 if moment == "before" else 3)
    assert ids(kind, folder) == expected
    assert put(written, 3, [SMALL_FILES + 2])
    assert table(kind, folder).newest(SOURCE) == 3
