"""Random faults of the processes, their disk and their clocks, one after the other."""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone

from pullstream import SubscriberClient
from pullstream_protocol.errors import PullstreamError
from tests.event_log import Recorder

from .disk import SmallDisk
from .processes import BrokerProcess, Process
from .program import PROJECT, SUBSCRIPTIONS, full_name

SOUGHT = next(full_name(name) for name, each in SUBSCRIPTIONS.items() if each["sought"])
CALL_TIMEOUT = 15.0


class Trouble:
    """Causes faults. `step` causes one, and ends it.

    Args:
        broker: The broker.
        clients: The publishers and subscribers.
        disk: The file system of the broker's data directory.
        recorder: Gets the events.
        dice: The source of randomness.
    """

    def __init__(
        self,
        broker: BrokerProcess,
        clients: list[Process],
        disk: SmallDisk,
        recorder: Recorder,
        dice: random.Random,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._broker = broker
        self._clients = clients
        self._disk = disk
        self._record = recorder.record
        self._dice = dice
        self._admin = SubscriberClient(endpoint=broker.endpoint)
        self._snapshots: list[str] = []
        self._snapshot_number = 0
        self._kinds: dict[str, tuple[float, Callable[[], None]]] = {
            "broker killed": (3, self._kill_broker),
            "client killed": (2, self._kill_client),
            "process stopped": (4, self._stop_one),
            "wall clock jumps": (1, self._jump),
            "broker's clock advances": (1, self._advance),
            "snapshot": (2, self._snapshot),
            "seek to a snapshot": (2, self._seek_to_snapshot),
            "seek to a time": (1, self._seek_to_time),
        }
        if disk.is_mounted:
            self._kinds["disk full"] = (2, self._fill_disk)

    def step(self) -> str:
        """Cause one fault, and return its name."""
        names = list(self._kinds)
        (name,) = self._dice.choices(names, [self._kinds[each][0] for each in names])
        self._kinds[name][1]()
        self.done[name] += 1
        return name

    def close(self) -> None:
        self._admin.close(1.0)

    def advance(self, seconds: float) -> None:
        """Move the broker's clock, which ends leases and backoffs."""
        request = urllib.request.Request(
            f"http://{self._broker.endpoint}/v0/admin/clock:advance",
            json.dumps({"seconds": seconds}).encode(),
            {"Content-Type": "application/json"},
        )
        with suppress(OSError), urllib.request.urlopen(request, timeout=CALL_TIMEOUT):
            pass
        self._record("clock advanced", "broker", seconds=seconds)

    def backlog(self) -> int:
        """Return the number of unfinished messages of all subscriptions; -1 without an answer."""
        total = 0
        for name in SUBSCRIPTIONS:
            url = f"http://{self._broker.endpoint}/v0/admin/backlog?subscription={full_name(name)}"
            try:
                with urllib.request.urlopen(url, timeout=CALL_TIMEOUT) as answer:
                    total += json.load(answer)["backlog"]
            except OSError:
                return -1
        return total

    def _kill_broker(self) -> None:
        # Before the kill: an answer that arrives later was sent before.
        self._record("broker killed", self._broker.life)
        self._broker.kill()
        time.sleep(self._dice.uniform(0.0, 2.0))
        self._broker.start()
        self._record("broker started", self._broker.life)

    def _kill_client(self) -> None:
        client = self._dice.choice(self._clients)
        client.kill()
        self._record("client killed", client.life)
        client.start()

    def _stop_one(self) -> None:
        process = self._dice.choice([self._broker, *self._clients])
        self._record("stopped", process.life)
        process.send(signal.SIGSTOP)
        # Sometimes longer than a lease.
        time.sleep(self._dice.choice((self._dice.uniform(0.5, 5.0), 13.0)))
        process.send(signal.SIGCONT)
        self._record("continued", process.life)

    def _jump(self) -> None:
        process = self._dice.choice([self._broker, *self._clients])
        process.send(signal.SIGUSR1)
        self._record("wall clock jumped", process.life)

    def _advance(self) -> None:
        self.advance(self._dice.choice((1, 11, 61)))

    def _fill_disk(self) -> None:
        self._disk.fill()
        self._record("disk full", "broker")
        time.sleep(self._dice.uniform(1.0, 4.0))
        if self._dice.random() < 0.3:
            self._record("broker killed", self._broker.life)
            self._broker.kill()
            self._disk.free()
            self._broker.start()
            self._record("broker started", self._broker.life)
        self._disk.free()
        self._record("disk has room", "broker")

    def _snapshot(self) -> None:
        self._snapshot_number += 1
        name = f"{PROJECT}/snapshots/snapshot-{self._snapshot_number}"
        with suppress(PullstreamError):
            self._admin.create_snapshot(
                name=name, subscription=SOUGHT, timeout=CALL_TIMEOUT, retry=None
            )
            self._snapshots.append(name)
            self._record("snapshot", SOUGHT, name=name)
        while len(self._snapshots) > 2:
            with suppress(PullstreamError):
                self._admin.delete_snapshot(
                    snapshot=self._snapshots.pop(0), timeout=CALL_TIMEOUT, retry=None
                )

    def _seek_to_snapshot(self) -> None:
        if not self._snapshots:
            return
        name = self._dice.choice(self._snapshots)
        with suppress(PullstreamError):
            self._admin.seek(
                request={"subscription": SOUGHT, "snapshot": name}, timeout=CALL_TIMEOUT, retry=None
            )
        self._record("snapshot seek", SOUGHT, name=name)

    def _seek_to_time(self) -> None:
        when = datetime.now(timezone.utc) - timedelta(seconds=self._dice.uniform(0, 5))
        with suppress(PullstreamError):
            self._admin.seek(
                request={"subscription": SOUGHT, "time": when}, timeout=CALL_TIMEOUT, retry=None
            )
        self._record("time seek", SOUGHT.rpartition("/")[2])
