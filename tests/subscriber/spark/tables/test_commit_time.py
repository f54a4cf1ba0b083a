"""The time of a commit, which must not grow with the number of commits."""

from __future__ import annotations

import os
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

# Both tables write a checkpoint of Delta once in as many commits.
TURNS = 100


class Commits:
    """Commits of the same file to a new table.

    Args:
        kind: Its format.
        place: Its folder.
    """

    def __init__(self, kind: str, place: Path) -> None:
        self._written = table(kind, place)
        self._files = files(self._written, BatchName(SOURCE, 0), [1])
        self._next = 0

    def measure(self) -> float:
        """Commit once, and return the CPU time in seconds."""
        begin = time.process_time()
        assert self._written.commit(self._files, BatchName(SOURCE, self._next))
        self._next += 1
        return time.process_time() - begin


@pytest.mark.parametrize(("kind", "commits"), [("delta", 1500), ("iceberg", 200)])
def test_the_time_of_a_commit_does_not_grow_with_the_number_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, commits: int
) -> None:
    """A young and an old table take turns, because other programs of the machine slow both.

    With deltalake's own commits, or with snapshots that stay, the ratio is 2 to 3.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    young, old = (Commits(kind, tmp_path / name) for name in ("young", "old"))
    for _ in range(commits - TURNS):
        old.measure()
    for _ in range(20):
        young.measure()
    turns = [(old.measure(), young.measure()) for _ in range(TURNS)]
    ratio = sum(one for one, _ in turns) / sum(other for _, other in turns)
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
