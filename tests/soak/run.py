"""`make soak`: the SDK for ten minutes on a broker with faults. No message may be lost.

    python -m tests.soak.run --seconds 600 --seed 7

Four subscriptions, ordered or not, exactly once or not, each with a publisher and two subscribers
that are restarted now and then, while the broker is slow, refuses, loses replies, breaks or closes
streams, falls silent, hangs, and restarts. At the end all published messages must have been
handled, no key out of order, nothing delivered after a successful acknowledgement (exactly once),
every future resolved, and the memory must not have grown. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pullstream_emulator import Emulator

from .chaos import Chaos
from .world import KINDS, World

# The seconds for the last messages after the end of all faults: a lease or two.
SETTLE = 120.0

# The largest ratio of the memory in the last quarter of the time to the second quarter.
MOST_GROWTH = 1.10


def memory() -> float:
    """Return the current memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Soak:
    """One run: starts the worlds and the chaos, waits for the end, and judges."""

    def __init__(self, seconds: float, rate: int, seed: int, console: Console) -> None:
        self._seconds = seconds
        self._dice = random.Random(seed)
        self._console = console
        self._troubles: Counter[str] = Counter()
        self._memory: list[float] = []
        broker = Emulator().start()
        self._chaos = Chaos(broker, self._dice, longest=4.0)
        self.worlds = [
            World(broker.endpoint, kind, rate=rate, keys=20, seconds=seconds) for kind in KINDS
        ]

    def run(self) -> list[str]:
        """Run the soak and return the faults found."""
        for world in self.worlds:
            world.start()
        columns = (TextColumn("{task.description:50}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as progress:
            self._trouble(progress)
            self._chaos.stop()
            for world in self.worlds:
                world.stop_publishing()
            self._settle(progress)
        backlogs = [self._chaos.broker.backlog(world.subscription) for world in self.worlds]
        for world in self.worlds:
            world.close()
        faults = [
            fault for w, b in zip(self.worlds, backlogs, strict=True) for fault in judge(w, b)
        ]
        self._chaos.broker.stop()
        return faults + self._judge_memory()

    def _trouble(self, progress: Progress) -> None:
        task = progress.add_task("all is well", total=self._seconds)
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < self._seconds:
            what, seconds = self._chaos.step()
            self._troubles[what.partition(" takes ")[0]] += 1
            progress.update(task, completed=elapsed, description=what)
            time.sleep(seconds)
            if self._dice.random() < 0.2:
                self._dice.choice(self.worlds).replace_one()
            self._memory.append(memory())

    def _settle(self, progress: Progress) -> None:
        task = progress.add_task("the rest arrives", total=SETTLE)
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < SETTLE:
            progress.update(task, completed=elapsed)
            if not any(self._chaos.broker.backlog(world.subscription) for world in self.worlds):
                return
            time.sleep(0.2)

    def _judge_memory(self) -> list[str]:
        quarter = len(self._memory) // 4
        if quarter < 3:
            return []
        before = statistics.median(self._memory[quarter : 2 * quarter])
        after = statistics.median(self._memory[-quarter:])
        self._console.print(
            f"{sum(self._troubles.values())} troubles; memory in the second quarter "
            f"{before:.0f} MiB, in the last {after:.0f} MiB"
        )
        if after <= before * MOST_GROWTH:
            return []
        return [f"memory grew from {before:.0f} to {after:.0f} MiB"]


def judge(world: World, backlog: int) -> list[str]:
    """Return the faults of one subscription."""
    name, ledger = world.kind.name, world.ledger
    faults = [f"{name}: {text}" for text in ledger.violations]
    if lost := ledger.lost():
        faults.append(f"{name}: {len(lost)} messages were never handled, such as {lost[:3]}")
    if backlog:
        faults.append(f"{name}: {backlog} messages are still in the backlog")
    if ledger.unresolved:
        faults.append(f"{name}: {ledger.unresolved} futures were never resolved")
    return faults


def table(worlds: list[World]) -> Table:
    view = Table(title="what came of it")
    for column in ("subscription", "published", "deliveries", "outcomes of futures"):
        view.add_column(column, justify="right" if column[0] in "pd" else "left")
    for world in worlds:
        ledger = world.ledger
        outcomes = ", ".join(f"{n:,} {name}" for name, n in sorted(ledger.outcomes.items()))
        view.add_row(
            world.kind.name, f"{sum(ledger.published):,}", f"{ledger.deliveries:,}", outcomes
        )
    return view


def main() -> None:
    parser = argparse.ArgumentParser(description="ten minutes on a broker that misbehaves")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=int, default=300, help="messages a second, of each kind")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    # Hides warnings about failures that are caused on purpose.
    logging.getLogger("pullstream").setLevel(logging.CRITICAL)
    console = Console()
    console.print(f"seed {seed}")
    soak = Soak(arguments.seconds, arguments.rate, seed, console)
    faults = soak.run()
    console.print(table(soak.worlds))
    for fault in faults:
        console.print(f"[red]{fault}")
    console.print("[red]failed" if faults else "[green]nothing lost, nothing out of order")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
