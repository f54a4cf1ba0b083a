"""The CPU that receivers outside of Spark use for a row.

`receivers` is a mode of tests/bench/spark_client.py. It needs no Spark: a session plans and commits
the segments of the receivers as fast as they come.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pullstream.spark.protocol.coordinator import START
from pullstream.spark.session.source_session import SourceSession
from pullstream.spark.settings import IngestSettings, Receivers
from tests.subscriber.spark.processes import cpu_seconds

from .client import SUBSCRIPTION, Figures

NAME = SUBSCRIPTION.format(0)

# Seconds that the receivers may take for all messages.
TIMEOUT = 300.0


def receivers(arguments: argparse.Namespace) -> Figures:
    """Measure the receivers from the moment when each of them has written a segment.

    Messages that they have received by then, and not written, are a few percent of all.
    """
    with TemporaryDirectory() as name:
        spool = Path(name) / "spool"
        settings = IngestSettings(
            subscription=NAME,
            spool_dir=spool,
            endpoint=arguments.endpoint,
            max_messages_per_trigger=arguments.rows,
            idle_wait=0.1,
            receivers=Receivers.OUTSIDE,
        )
        with SourceSession(settings) as session, _started(arguments, spool) as running:
            seen: set[str] = set()
            before = 0.0
            rows = counted = 0
            offset = START
            began = time.monotonic()
            while rows < arguments.messages:
                if time.monotonic() > began + TIMEOUT:
                    sys.exit(f"the receivers have written {rows} of {arguments.messages} messages")
                following = session.latest(offset)
                plan = session.plan(offset, following)
                rows += sum(part.rows - len(part.left_out) for part in plan.parts)
                seen.update(part.segment.receiver for part in plan.parts)
                if not counted and len(seen) == arguments.receivers:
                    before, counted = sum(map(cpu_seconds, running)), rows
                offset = following
                session.commit(offset)
            after = sum(map(cpu_seconds, running))
    if counted in (0, rows):
        sys.exit("there were too few batches to measure")
    return {"receiver_micros": (after - before) / (rows - counted) * 1e6}


@contextmanager
def _started(arguments: argparse.Namespace, spool: Path) -> Iterator[list[int]]:
    command = [
        *(sys.executable, "-m", "pullstream", "receive", "--subscription", NAME),
        *("--spool", str(spool), "--endpoint", arguments.endpoint),
        *("--receivers", str(arguments.receivers)),
        *("--option", f"maxMessagesPerTrigger={arguments.rows}"),
    ]
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(arguments.receivers)
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
