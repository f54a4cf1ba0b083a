"""Writes as many bytes to SQLite as the broker does at durability class disk, without a broker.

    python -m tests.bench.sqlite_load

This is the cost of the bytes alone: a broker in memory is slower while this process runs on the
other processor, because the two share caches and memory. Prints a line when it begins, and writes
until it is terminated.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from pullstream_emulator.storage.database import BYTES_BETWEEN_CHECKPOINTS
from pullstream_emulator.storage.tables import PAGE_BYTES
from pullstream_emulator.storage.writer import GATHER

# As in the case "on disk, batches of 100": 100 bytes of data, an ID and a publish time.
MESSAGES_PER_SECOND = 220_000
MESSAGE_BYTES = 130
ROW_MESSAGES = 1_000


def write(path: Path, stop: threading.Event) -> None:
    """Write rows of messages, a transaction every GATHER seconds, until `stop` is set."""
    content = os.urandom(ROW_MESSAGES * MESSAGE_BYTES)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in (
            f"page_size = {PAGE_BYTES}",
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            f"wal_autocheckpoint = {BYTES_BETWEEN_CHECKPOINTS // PAGE_BYTES}",
        ):
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE messages (first INTEGER PRIMARY KEY, encoded BLOB)")
        begun, written = time.monotonic(), 0
        print("writing", flush=True)
        while not stop.wait(GATHER):
            due = (time.monotonic() - begun) * MESSAGES_PER_SECOND
            rows = range(written, int(due), ROW_MESSAGES)
            database.execute("BEGIN EXCLUSIVE")
            database.executemany(
                "INSERT INTO messages VALUES (?, ?)", [(first, content) for first in rows]
            )
            database.execute("COMMIT")
            written += len(rows) * ROW_MESSAGES


def main() -> int:
    """Write until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with TemporaryDirectory() as folder:
        write(Path(folder, "database"), stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
