"""`make jepsen`: publishers and subscribers on a broker, while every process is killed and stopped.

    python -m tests.jepsen.run --durability fsync --seconds 600 --seed 7

Publishers and subscribers of our SDK and of the official client run on a broker with a data
directory. Any of these processes is killed (SIGKILL) or stopped (SIGSTOP), the disk of the broker
is full, wall clocks jump, and one subscription is sought to times and snapshots. All events are
recorded. At the end the history decides (checker.py): confirmed publishes exist, confirmed
exactly-once acknowledgements never come again, each key is in order, every future has a result.
The documented loss of the durability class is no violation. Exits with 1 otherwise.

`--plant NAME` plants a fault, which the run must find.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pullstream import SubscriberClient, TopicAdminClient
from tests.event_log import Event, Recorder, Violation, merged, read_events

from .checker import DURABILITIES, judge
from .disk import SmallDisk
from .processes import BrokerProcess, Process, client_process
from .program import PLANTS, SUBSCRIPTIONS, TOPIC, full_name
from .trouble import Trouble

# The seconds for the last messages after the end of all faults.
SETTLE = 120.0
# Accounts of each kind of violation that are printed.
MOST_ACCOUNTS = 3


class Run:
    """One run on one durability class."""

    def __init__(self, durability: str, seed: int, plant: str, folder: Path) -> None:
        self._durability = durability
        self._dice = random.Random(seed)
        self._folder = folder
        self._recorder = Recorder("run")
        self._disk = SmallDisk(folder / "disk")
        if not self._disk.is_mounted:
            print("skipped: disk full (mounting a tmpfs is not permitted here)", flush=True)
        data = self._disk.folder / "data"
        self._broker = BrokerProcess(data, durability, folder / "broker.errors")
        roles = [
            *(("publisher", "ours"), ("publisher", "official")),
            *(("subscriber", "ours"), ("subscriber", "ours"), ("subscriber", "official")),
        ]
        self._clients = [
            client_process(role, client, number, self._broker, folder, plant)
            for number, (role, client) in enumerate(roles)
        ]
        self.violations: list[Violation] = []

    def run(self, seconds: float) -> None:
        """Run with faults for some seconds, then wait for the last messages."""
        self._broker.start()
        self._create()
        trouble = Trouble(self._broker, self._clients, self._disk, self._recorder, self._dice)
        for client in self._clients:
            client.start()
        begin = time.monotonic()
        progress = begin
        try:
            while time.monotonic() - begin < seconds:
                time.sleep(self._dice.uniform(0.5, 4.0))
                what = trouble.step()
                self._look()
                if time.monotonic() > progress:
                    progress = time.monotonic() + 10
                    self._print(begin, what, trouble.done)
            self._recorder.record("end of faults", "")
            self._end(trouble, begin)
        finally:
            trouble.close()

    def judge(self) -> int:
        """Print the result, and return the number of violations."""
        events = self._events()
        verdict = judge(events, self._durability)
        violations = [*self.violations, *verdict.violations]
        begin = events[0].at
        kinds: Counter[str] = Counter()
        for violation in violations:
            kinds[violation.kind] += 1
            if kinds[violation.kind] <= MOST_ACCOUNTS:
                print(violation.account(begin), flush=True)
        figures = ", ".join(f"{count:,} {name}" for name, count in verdict.figures.items())
        print(f"{self._durability}: {figures}; {verdict.lost:,} lost as documented", flush=True)
        if kinds:
            found = ", ".join(f"{times} {kind}" for kind, times in kinds.items())
            print(f"failed: {found}", flush=True)
        return kinds.total()

    def close(self) -> None:
        """Kill what still runs, and remove the disk."""
        for process in (*self._clients, self._broker):
            if process.lives:
                process.kill()
        self._disk.remove()

    def _create(self) -> None:
        with (
            TopicAdminClient(endpoint=self._broker.endpoint) as topics,
            SubscriberClient(endpoint=self._broker.endpoint) as subscriptions,
        ):
            topics.create_topic(name=TOPIC)
            for name, settings in SUBSCRIPTIONS.items():
                self._recorder.record("subscription", name, "run", **settings)
                subscriptions.create_subscription(
                    request={
                        "name": full_name(name),
                        "topic": TOPIC,
                        "ack_deadline_seconds": 10,
                        "enable_message_ordering": settings["ordered"],
                        "enable_exactly_once_delivery": settings["exactly_once"],
                    }
                )

    def _look(self) -> None:
        """Note processes that have ended by themselves, and start them again."""
        for process in (self._broker, *self._clients):
            code = process.running.poll()
            if code is not None:
                text = f"{process.life} ended by itself with exit code {code}"
                event = Event(time.monotonic(), "run", "ended", process.life)
                self.violations.append(Violation("process ended", text, [event]))
                process.start()

    def _end(self, trouble: Trouble, begin: float) -> None:
        publishers = [client for client in self._clients if "publisher" in client.name]
        subscribers = [client for client in self._clients if client not in publishers]
        self._end_all(publishers)
        end = time.monotonic() + SETTLE
        while time.monotonic() < end and trouble.backlog() != 0:
            # Ends the leases of killed subscribers.
            trouble.advance(61.0)
            time.sleep(2.0)
        self._print(begin, f"backlog {trouble.backlog()}", trouble.done)
        self._end_all(subscribers)

    def _end_all(self, processes: list[Process]) -> None:
        for process in processes:
            if not process.end():
                event = Event(time.monotonic(), "run", "SIGTERM", process.life)
                text = f"{process.life} did not end after SIGTERM"
                if "official" in process.name:
                    print(text, flush=True)
                else:
                    self.violations.append(Violation("process does not end", text, [event]))

    def _events(self) -> list[Event]:
        logs = [read_events(file) for file in sorted(self._folder.glob("*.log"))]
        return merged(self._recorder.events, *logs)

    def _print(self, begin: float, what: str, done: Counter[str]) -> None:
        seconds = time.monotonic() - begin
        print(f"{seconds:5.0f} s  {done.total()} faults, last: {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="processes that are killed, stopped and judged")
    parser.add_argument("--durability", choices=DURABILITIES, help="default: one after the other")
    parser.add_argument("--seconds", type=float, default=600.0, help="of faults in each class")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--plant", choices=PLANTS, default="", help="plant a fault")
    parser.add_argument("--keep", action="store_true", help="keep the recorded events")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    # Ends the processes of the run, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    violations = 0
    for durability in [options.durability] if options.durability else DURABILITIES:
        print(f"durability {durability}, seed {seed}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="jepsen-"))
        run = Run(durability, seed, options.plant, folder)
        try:
            run.run(options.seconds)
            violations += run.judge()
        finally:
            run.close()
            if options.keep:
                print(f"the events are in {folder}", flush=True)
            else:
                shutil.rmtree(folder)
    print("failed" if violations else "all promises were kept")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
