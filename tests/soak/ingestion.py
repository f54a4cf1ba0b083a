"""Processes of `pullstream ingest` on one table, and how they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.subscriber.spark.postgresql import DRIVER, PostgresqlServer
from tests.subscriber.spark.processes import descendants

SCHEMA = "id BIGINT NOT NULL, country STRING, key INT"

# An executor is a separate process, and a killed one is replaced.
CLUSTER = "local-cluster[1,2,1024]"

# The kinds of processes that are killed, and a word of their command lines. `local[*]` has no
# separate executor.
KINDS = {
    "driver": "",
    "worker": "pyspark.daemon",
    "executor": "CoarseGrainedExecutorBackend",
    "JVM": "SparkSubmit",
}


@dataclass(frozen=True)
class Place:
    """The table of a job, and the folder of everything that the job has.

    Attributes:
        folder: The folder.
        format: The format of the table.
        server: The database, if the format is postgresql.
        name: The name of the table, and of its folder.
    """

    folder: Path
    format: str
    server: PostgresqlServer | None
    name: str = "rows"

    @property
    def table(self) -> Path:
        return self.folder / self.name

    @property
    def is_lake(self) -> bool:
        """Whether the table may be compacted while the job runs."""
        return self.format in ("delta", "iceberg")

    def exists(self) -> bool:
        """Return whether the job has made a table of files."""
        parts = {"delta": "_delta_log/*.json", "iceberg": "metadata/*.json"}
        return any(self.table.glob(parts.get(self.format, "_batches/*.json")))

    @property
    def database(self) -> PostgresqlServer:
        assert self.server is not None
        return self.server


class Job:
    """One process of `pullstream ingest` after the other, on the same table and state.

    Args:
        place: The table.
        endpoint: The broker's.
        subscription: The subscription.
        upserts: Whether the table keeps one row for each key.
        batch_rows: Limit of a batch. Small batches make many commits, which can be killed.
    """

    def __init__(
        self,
        place: Place,
        endpoint: str,
        subscription: str,
        *,
        upserts: bool,
        batch_rows: int = 400,
    ) -> None:
        self._environment = dict(os.environ)
        self._command = [
            *(sys.executable, "-m", "pullstream", "ingest", "--json"),
            *("--endpoint", endpoint, "--subscription", subscription),
            *("--state", str(place.folder / "state"), "--decode", "json", "--schema", SCHEMA),
            *("--batch-rows", str(batch_rows)),
            *("--option", "leaseSeconds=10", "--option", "lingerMs=300"),
        ]
        if place.server is not None:
            self._environment |= place.server.credentials
            self._command += ["--to", place.server.url, "--table", place.name]
            self._command += ["--conf", f"spark.jars={DRIVER}"]
        else:
            self._command += ["--to", str(place.table), "--format", place.format]
            self._command += ["--partition-by", "country"]
        if upserts:
            self._command += ["--merge-on", "key", "--latest-by", "id"]
        self._log = place.folder / "jobs.log"
        # Workers leave files in the home of Spark.
        home = place.folder / "spark"
        home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
        self._home = str(home)

    def start(self, *more: str, cluster: bool = False) -> subprocess.Popen[bytes]:
        """Start a process.

        Args:
            more: More arguments.
            cluster: Whether executors are separate processes. Their failed tasks are repeated.
        """
        environment = self._environment
        if cluster:
            more += ("--conf", f"spark.master={CLUSTER}", "--conf", "spark.executor.memory=1g")
            environment = environment | {"SPARK_HOME": self._home}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._command, *more], env=environment, stdout=log, stderr=log
            )

    def tail(self) -> str:
        """Return the end of the output of all processes."""
        return self._log.read_text(errors="replace")[-3000:]


def kill(process: subprocess.Popen[bytes], kind: str) -> bool:
    """Kill a driver or one of the processes that it has started.

    Args:
        process: The driver.
        kind: One of KINDS.

    Returns:
        Whether there was such a process.
    """
    family = descendants(process.pid)
    if kind == "driver":
        process.kill()
        process.wait()
    else:
        victim = next((pid for pid in family if KINDS[kind] in _command_of(pid)), None)
        if victim is None:
            return False
        _kill(victim)
    if kind in ("driver", "JVM"):
        for pid in family:
            _wait_for_end(pid)
    return True


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for_end(pid: int) -> None:
    """Wait until a process has ended by itself, or kill it after ten seconds."""
    deadline = time.monotonic() + 10
    while _command_of(pid):
        if time.monotonic() > deadline:
            _kill(pid)
        time.sleep(0.05)
