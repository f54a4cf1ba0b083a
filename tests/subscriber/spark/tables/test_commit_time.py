"""The time of a commit, which must not grow with the number of commits."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import pyiceberg.table
import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata

from pullstream.spark.tables import iceberg_commits
from pullstream.spark.tables.batch import BatchName
from tests.subscriber.spark.tables.written import SOURCE, files, put, table


@pytest.mark.parametrize(("kind", "commits"), [("delta", 1500), ("iceberg", 300)])
def test_the_time_of_a_commit_does_not_grow_with_the_number_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, commits: int
) -> None:
    """The CPU time, because other programs of the machine change the time that passes.

    With deltalake's own commits, or with snapshots that stay, the ratio is 2 to 3.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    written = table(kind, tmp_path / "table")
    one = files(written, BatchName(SOURCE, 0), [1])
    times = []
    for number in range(commits):
        begin = time.process_time()
        assert written.commit(one, BatchName(SOURCE, number))
        times.append(time.process_time() - begin)
    # A hundred of each, so that both have a checkpoint of Delta.
    ratio = statistics.mean(times[-100:]) / statistics.mean(times[20:120])
    assert ratio < 1.8, f"{ratio:.2f}"


def test_an_iceberg_commit_computes_the_new_metadata_once_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time copies the description of every snapshot."""
    written = table("iceberg", tmp_path / "table")
    put(written, 0, [0])
    computed = []

    def count(*arguments: Any) -> TableMetadata:
        computed.append(arguments)
        return update_table_metadata(*arguments)

    for module in (iceberg_commits, pyiceberg.table):
        monkeypatch.setattr(module, "update_table_metadata", count)
    put(written, 1, [1])
    assert len(computed) <= 3
