"""A compaction that is killed at its commit. Run as a program.

python -m tests.subscriber.spark.tables.killed_compaction FOLDER delta before
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any, NoReturn

from deltalake.table import TableOptimizer
from pyiceberg.catalog.sql import SqlCatalog

from pullstream.spark.tables.maintenance import TableLocation

# Bytes. The new file of a few rows is smaller, and the entry of 60 files in Delta's log is larger.
LARGEST_FILE = 8 << 10


def die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def after(owner: Any, name: str) -> None:
    """Let the process die after a call of a function."""
    original = getattr(owner, name)

    def patched(*arguments: Any, **options: Any) -> NoReturn:
        original(*arguments, **options)
        die()

    setattr(owner, name, patched)


def main() -> None:
    folder, format, moment = sys.argv[1:]
    match format, moment:
        case "delta", "before":
            # deltalake writes the files and the log outside of Python. The kernel ends the process
            # in the middle of the entry of the log.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        case "delta", "after":
            after(TableOptimizer, "compact")
        case "iceberg", "before":
            SqlCatalog.commit_table = die  # type: ignore[method-assign]
        case _:
            after(SqlCatalog, "commit_table")
    TableLocation(folder=folder, format=format).opened().compact()


if __name__ == "__main__":
    main()
