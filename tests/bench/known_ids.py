"""Measurement of planning: 100 segments with 50,000 ids, against 5,000,000 known ids.

`python -m tests.bench.known_ids [FOLDER]` prints the seconds of a plan and the memory in MB. The
new ids lie above all known ones, as a server's nearly do, or anywhere among them.
"""

from __future__ import annotations

import array
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings
from pullstream.spark.protocol.known_ids import KnownIds
from pullstream.spark.protocol.receiver import Receiver
from pullstream.spark.protocol.storage import run
from pullstream.spark.stores import LocalFolder

SUBSCRIPTION = "projects/p/subscriptions/s"
KNOWN = 5_000_000
SEGMENTS = 100
ROWS = 500
FIRST = 11_447_938_947_235_134
TURNS = 5


def fill(store: LocalFolder) -> None:
    """Write the known ids, in files as merged as they are in a long run."""
    known = KnownIds(86_400.0, KNOWN + 1, time.monotonic)
    rng, file = Random(1), KNOWN // 8
    for plan in range(8):
        start = FIRST + plan * file * 8
        ids = array.array("q", (start + 8 * place + rng.randrange(8) for place in range(file)))
        column = pa.Array.from_buffers(pa.int64(), file, [None, pa.py_buffer(ids)])
        run(known._write(plan + 1, plan + 1, column, 0.0), store)


def new_ids(spread: bool) -> Iterator[str]:
    rng, number = Random(2), SEGMENTS * ROWS
    if spread:
        yield from (str(FIRST + rng.randrange(KNOWN * 8)) for _ in range(number))
    else:
        yield from (str(FIRST + KNOWN * 8 + place) for place in range(number))


def measure(folder: Path, spread: bool) -> list[float]:
    store = LocalFolder(folder)
    fill(store)
    receiver = Receiver(
        SUBSCRIPTION, Acknowledge.COMMITTED, max_age=1e9, share=10**12, elapsed=time.monotonic
    )
    run(receiver.start(), store)
    ids = list(new_ids(spread))
    for place in range(0, len(ids), ROWS):
        column = pa.array(ids[place : place + ROWS])
        run(receiver.write(pa.record_batch({"message_id": column}), time.monotonic()), store)
    seconds = []
    for _ in range(TURNS):
        settings = CoordinatorSettings(subscription=SUBSCRIPTION, max_rows=10**6)
        coordinator = Coordinator(settings, elapsed=time.monotonic)
        # Without an offset, each coordinator is a new query, which writes another plan.
        store.delete("plan/000000000001.json")
        run(coordinator.open(START), store)
        begun = time.monotonic()
        assert run(coordinator.latest(START), store)
        seconds.append(time.monotonic() - begun)
        assert len(coordinator.known_ids) == KNOWN
    return seconds


def main() -> None:
    for spread in (False, True):
        with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
            seconds = sorted(measure(Path(folder), spread))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{'ids anywhere' if spread else 'newer ids'}: median {seconds[TURNS // 2]:.3f} s, "
            f"slowest {seconds[-1]:.3f} s, {memory:.0f} MB"
        )


if __name__ == "__main__":
    main()
