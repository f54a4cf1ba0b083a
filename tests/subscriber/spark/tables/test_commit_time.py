"""The time of a commit, which must not grow with the number of commits."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pytest

from pullstream.spark.tables.batch import BatchName
from tests.subscriber.spark.tables.written import LAKES, SOURCE, files, table

COMMITS = 300


@pytest.mark.parametrize("kind", LAKES)
def test_the_time_of_a_commit_does_not_grow_with_the_number_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The CPU time, because other programs of the machine change the time that passes.

    With pyiceberg's and deltalake's own transactions the ratio is 2 to 8.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    written = table(kind, tmp_path / "table")
    one = files(written, BatchName(SOURCE, 0), [1])
    times = []
    for number in range(COMMITS):
        begin = time.process_time()
        assert written.commit(one, BatchName(SOURCE, number))
        times.append(time.process_time() - begin)
    # A hundred of each, so that both have a checkpoint of Delta.
    ratio = statistics.mean(times[-100:]) / statistics.mean(times[20:120])
    assert ratio < 1.6, f"{ratio:.2f}"
