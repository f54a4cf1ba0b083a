"""Processes of `pullstream compact`, some of which are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter

from .ingestion import Place

# Seconds between two compactions.
EVERY = 7.0


class Compactions(threading.Thread):
    """Compacts a table every few seconds. A third of the processes is killed at random.

    Args:
        place: The table.
        dice: The only source of randomness.

    Attributes:
        outcomes: How many processes have changed the table, had nothing to do, were killed, were
            refused because other writers were faster, or have failed.
        errors: The messages of the failed processes.
    """

    def __init__(self, place: Place, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self._command = [
            *(sys.executable, "-m", "pullstream", "compact", "--json"),
            *(str(place.table), "--format", place.format),
        ]
        self._place = place
        self._dice = dice
        self._ended = threading.Event()
        # Seconds that the last complete process took.
        self._duration = 2.0
        self.outcomes: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(EVERY):
            self.compact(is_killed=self._dice.random() < 1 / 3)

    def end(self) -> None:
        """End the thread after the current process."""
        self._ended.set()
        if self.ident is not None:
            self.join()

    def compact(self, *, is_killed: bool) -> None:
        """Run a process to its end, or kill it before.

        Args:
            is_killed: Whether to kill it, unless it is faster.
        """
        if not self._place.exists():
            return
        begin = time.monotonic()
        process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        # It needs a half of its time to start.
        limit = self._dice.uniform(0.4, 1.1) * self._duration if is_killed else None
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.outcomes["killed"] += 1
            return
        if process.returncode == 0:
            self._duration = time.monotonic() - begin
            done = json.loads(output)
            self.outcomes["changed the table" if done["removed"] else "nothing to do"] += 1
        else:
            is_late = "faster" in errors or "another writer" in errors
            self.outcomes["refused" if is_late else "failed"] += 1
            self.errors += [] if is_late else [errors]
