"""A thousand starts of receivers leave a constant number of files in a spool on a disk.

    python -m tests.soak.receiver_starts --starts 1000 --seed 7

Each receiver writes some segments and is killed in the middle of another one, at a random step or
in the middle of a file. A coordinator plans and commits, tidies up once a minute, and is itself
started again now and then, sometimes with an empty checkpoint. Time is simulated. Prints the
numbers of entries of the folder, and exits with 1 if they grow.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pyarrow as pa

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings
from pullstream.spark.protocol.receiver import Receiver
from pullstream.spark.protocol.storage import Create, Steps, carry_out, run
from pullstream.spark.stores import LocalFolder

SUBSCRIPTION = "projects/p/subscriptions/s"
LEASE = 60.0
# The shortest one that the lease allows, so that remainders become old within few starts.
WINDOW = 4 * LEASE
# Seconds between two starts, and between two turns of tidying.
APART = 30.0
TIDY = 60.0
# Number of counts of the entries. The first counts are of a folder that fills.
COUNTS = 50
# By this ratio the last counts may exceed the earlier ones, which vary.
MOST_GROWTH = 1.15


class TimedFolder(LocalFolder):
    """A folder whose clock is the simulated one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = 1_000_000.0

    def create(self, path: str, data: bytes) -> bool:
        if not super().create(path, data):
            return False
        self.set_time(self.folder / path)
        return True

    def delete(self, path: str) -> None:
        super().delete(path)
        self.set_time((self.folder / path).parent)

    def remove_remains(self, before: float) -> None:
        super().remove_remains(before)
        # It has changed folders, which have the time of this machine now.
        for path in self.folder.rglob("*"):
            if path.stat().st_mtime > self.now:
                os.utime(path, (self.now, self.now))

    def set_time(self, path: Path) -> None:
        """Set the time of a file or folder, and of its parent, which has changed as well."""
        for one in (path, path.parent):
            if one.exists():
                os.utime(one, (self.now, self.now))


class Starts:
    """One run."""

    def __init__(self, folder: Path, seed: int, acknowledge: Acknowledge) -> None:
        self._store = TimedFolder(folder)
        self._dice = Random(seed)
        self._acknowledge = acknowledge
        self._settings = CoordinatorSettings(
            subscription=SUBSCRIPTION, acknowledge=acknowledge, window=WINDOW, lease=LEASE
        )
        self._coordinator = self._new_coordinator()
        self._offset = START
        self._tidied_at = 0.0
        self._messages = 0
        self.committed: set[str] = set()
        self.counts: list[int] = []

    def run(self, starts: int, apart: float = APART) -> None:
        for number in range(1, starts + 1):
            self._receive()
            self._store.now += apart
            self._process()
            if number % 50 == 0:
                self._coordinator = self._new_coordinator()
            if number % 200 == 0:
                self._offset = START
            if number % (starts // COUNTS) == 0:
                self.counts.append(sum(1 for _ in self._store.folder.rglob("*")))

    def is_constant(self) -> bool:
        """Return whether the last third of the counts is no larger than the third before."""
        third = len(self.counts) // 3
        return max(self.counts[-third:]) <= MOST_GROWTH * max(self.counts[third : 2 * third])

    def _new_coordinator(self) -> Coordinator:
        return Coordinator(self._settings, elapsed=lambda: self._store.now)

    def _receive(self) -> None:
        """Live as a receiver that is killed in the end."""
        receiver = Receiver(
            SUBSCRIPTION,
            self._acknowledge,
            max_age=LEASE,
            share=10**9,
            elapsed=lambda: self._store.now,
        )
        run(receiver.start(), self._store)
        for _ in range(self._dice.randint(0, 3)):
            run(receiver.write(self._rows(), self._store.now), self._store)
            self._store.now += 1
        self._die(receiver.write(self._rows(), self._store.now))

    def _die(self, steps: Steps[Any]) -> None:
        operation = next(steps)
        for _ in range(self._dice.randint(0, 3)):
            try:
                operation = steps.send(carry_out(operation, self._store))
            except StopIteration:
                return
        if isinstance(operation, Create) and self._dice.random() < 0.5:
            target = self._store.folder / operation.path
            half = target.with_name(f".{target.name}.{self._dice.random()}.tmp")
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(operation.data[: len(operation.data) // 2])
            self._store.set_time(half)
        steps.close()

    def _rows(self) -> pa.RecordBatch:
        """Return rows, of which one was delivered before."""
        first = self._messages
        self._messages += 3
        ids = [str(10**16 + number) for number in range(max(first - 1, 0), self._messages)]
        return pa.record_batch({"message_id": ids})

    def _process(self) -> None:
        """Process all batches, as an engine."""
        while True:
            # The pause of an idle query.
            self._store.now += 2
            end = run(self._coordinator.latest(self._offset), self._store)
            if end is None:
                break
            plan = run(self._coordinator.plan(self._offset, end), self._store)
            for part in plan.parts:
                ids = self._ids(part.segment.path)
                taken = [one for row, one in enumerate(ids) if row not in set(part.left_out)]
                again = self.committed.intersection(taken)
                assert not again, f"{again} are committed again"
                self.committed.update(taken)
            self._offset = end
        if self._store.now - self._tidied_at >= TIDY:
            self._tidied_at = self._store.now
            old = run(self._coordinator.tidy(), self._store)
            if old is not None:
                self._store.remove_remains(old)

    def _ids(self, path: str) -> list[str]:
        found: list[str] = (
            pa.ipc.open_file(self._store.open(path)).read_all().column("message_id").to_pylist()
        )
        return found


@contextmanager
def without_syncs() -> Iterator[None]:
    """Let writes not wait for the disk: no power fails here."""
    with mock.patch("os.fsync"):
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both kinds of acknowledgement, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args(arguments)
    failed = False
    for acknowledge in Acknowledge:
        with TemporaryDirectory() as folder, without_syncs():
            starts = Starts(Path(folder), chosen.seed, acknowledge)
            starts.run(chosen.starts)
        is_constant = starts.is_constant()
        failed |= not is_constant
        print(
            f"{acknowledge.value}: {chosen.starts} starts, {len(starts.committed):,} messages, "
            f"entries {starts.counts}: {'constant' if is_constant else 'GROWING'}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
