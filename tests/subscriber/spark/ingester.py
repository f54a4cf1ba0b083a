"""A Spark driver in a separate process that can be killed, and the files that it leaves.

Run as a program it is the driver: a query that stores each batch's message ids in a file and is
restarted whenever it ends. Its standard input accepts `stop` to stop the query, and `fail` to let
the next batch fail.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.quick_java import QUICK_JAVA

from .processes import descendants, runs_with, wait_until_gone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).parents[3]

# The seconds that a sink takes, so that kills hit the middle of its work.
SINK_WORK = 0.15


class Ingester:
    """One driver at a time, on one checkpoint, spool and output."""

    def __init__(self, folder: Path, subscription: str, endpoint: str, per_batch: int) -> None:
        self._folder = folder
        self._arguments = [
            *("--folder", str(folder), "--subscription", subscription),
            *("--endpoint", endpoint, "--per-batch", str(per_batch)),
        ]
        self._process: subprocess.Popen[str] | None = None

    def start(self, *, available_now: bool = False) -> None:
        """Start the driver, which reads its first command only after some time."""
        folder = self._folder
        folder.mkdir(exist_ok=True)
        with (folder / "driver.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.subscriber.spark.ingester", *self._arguments]
                + (["--available-now"] if available_now else []),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                cwd=ROOT,
            )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tell(self, word: str) -> None:
        """Send the command `stop` or `fail`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def source_worker(self) -> int | None:
        """Return the process in which the source runs, if there is one."""
        return self._find("python_streaming_source_runner")

    def kill_source_worker(self) -> bool:
        """Send SIGKILL to the source worker, and return whether there was one."""
        return self._kill(self.source_worker())

    def kill_jvm(self) -> None:
        """Send SIGKILL to the JVM, and wait until it and the driver are gone."""
        left = self._family()
        assert self._kill(self._find("org.apache.spark.deploy.SparkSubmit")), "there is no JVM"
        self._gone(left)

    def kill_driver(self) -> None:
        """Send SIGKILL to the Python process, and wait until the JVM has noticed and ended."""
        left = self._family()
        assert self._process is not None
        self._process.kill()
        self._gone(left)

    def wait(self, timeout: float) -> int:
        """Wait until the driver ends by itself, and return its exit code."""
        assert self._process is not None
        code = self._process.wait(timeout)
        self._close()
        return code

    def close(self) -> None:
        """Kill the driver if it runs."""
        if self.runs:
            self.kill_driver()

    def log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")

    def batches(self) -> dict[int, list[str]]:
        """Return the message ids of each stored batch."""
        return {
            int(path.stem): path.read_text().split()
            for path in (self._folder / "out").glob("*.ids")
        }

    def committed(self) -> set[int]:
        """Return the batches that Spark has committed.

        Its commit log has only the newest ones, a hundred or so. All earlier batches were committed
        too.
        """
        commits = self._folder / "checkpoint" / "commits"
        newest = max(
            (int(path.name) for path in commits.glob("*") if path.name.isdigit()), default=-1
        )
        return set(range(newest + 1))

    def _family(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *descendants(self._process.pid)]

    def _find(self, word: str) -> int | None:
        assert self._process is not None
        return next((pid for pid in descendants(self._process.pid) if runs_with(pid, word)), None)

    def _gone(self, pids: list[int]) -> None:
        assert self._process is not None
        # The driver does not end by itself when the JVM is gone: its calls fail, one by one.
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._close()
        if not wait_until_gone(pids, timeout=60.0):
            raise AssertionError(f"some of {pids} are left")

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            # The driver is dead and cannot read the command.
            return

    @staticmethod
    def _kill(pid: int | None) -> bool:
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


class _Driver:
    """The query in the driver's process."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from pullstream.spark import local_session

        self._arguments = arguments
        self._out = Path(arguments.folder, "out")
        self._out.mkdir(exist_ok=True)
        self._fails = threading.Event()
        self._spark = local_session(
            "local[2]",
            config={
                "spark.sql.shuffle.partitions": "1",
                "spark.driver.extraJavaOptions": QUICK_JAVA,
            },
        )

    def run(self) -> None:
        from pyspark.errors import StreamingQueryException

        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            query = self._start()
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                print("the query failed:", str(error).splitlines()[0], flush=True)
            else:
                if self._arguments.available_now:
                    break
                print("the query was stopped", flush=True)
        self._spark.stop()

    def _start(self) -> StreamingQuery:
        arguments = self._arguments
        rows = (
            self._spark.readStream.format("pubsub")
            .option("subscription", arguments.subscription)
            .option("endpoint", arguments.endpoint)
            .option("spoolDir", f"{arguments.folder}/spool")
            .option("maxMessagesPerTrigger", arguments.per_batch)
            .option("leaseSeconds", 10)
            .option("drainWaitMs", 1000)
            .load()
        )
        writer = rows.writeStream.foreachBatch(self._store).option(
            "checkpointLocation", f"{arguments.folder}/checkpoint"
        )
        if arguments.available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def _store(self, rows: DataFrame, batch: int) -> None:
        """Replace the file of a batch in one step, so that storing is idempotent."""
        ids = [row.message_id for row in rows.select("message_id").collect()]
        threading.Event().wait(SINK_WORK)
        if self._fails.is_set():
            self._fails.clear()
            raise RuntimeError("as told")
        path = self._out / f"{batch}.ids"
        fresh = path.with_suffix(".tmp")
        fresh.write_text("\n".join(ids))
        fresh.replace(path)

    def _listen(self) -> None:
        for word in sys.stdin:
            if word.strip() == "fail":
                self._fails.set()
            for query in self._spark.streams.active if word.strip() == "stop" else []:
                query.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("folder", "subscription", "endpoint", "per-batch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--available-now", action="store_true")
    _Driver(parser.parse_args()).run()
