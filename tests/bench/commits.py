"""Measures how much longer late commits to a table take than early ones."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pullstream.spark.tables.batch import BatchName
from tests.subscriber.spark.tables.written import SOURCE, files, table

from .client import Figures

EARLY = slice(20, 120)
LATE = slice(1_900, 2_000)


def commits(arguments: argparse.Namespace) -> Figures:
    """Commit 2,000 batches, each with its own file."""
    wall, cpu = [], []
    with TemporaryDirectory() as folder:
        into = table(arguments.sink, Path(folder) / "table")
        for number in range(LATE.stop):
            batch = BatchName(SOURCE, number)
            written = files(into, batch, [number])
            began, used = time.monotonic(), time.process_time()
            into.commit(written, batch)
            wall.append(time.monotonic() - began)
            cpu.append(time.process_time() - used)
    # Medians, because a slow moment of the disk is as long as a hundred commits.
    late = statistics.median(wall[LATE])
    return {
        "commit_ms": late * 1e3,
        "commit_growth": late / statistics.median(wall[EARLY]),
        "commit_cpu_growth": statistics.mean(cpu[LATE]) / statistics.mean(cpu[EARLY]),
    }
