"""`pullstream ingest` over Spark Connect, while its client, a worker and the server are killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK

_T = TypeVar("_T")

# Seconds that a step may take on a machine under load.
_TIMEOUT = 240.0
_LOOK = 0.2
# Number of times that a client is started whose worker needs more than Spark's 10 s each time.
_STARTS = 5
_SLOW = "needs more than the 10 s"

# Starts a server on a port; Spark's program becomes the process of Java.
_SERVER = """
import os, pathlib, sys
import pyspark
from pullstream.spark.local.java import ensure_java
from pullstream.spark.local.worker_python import worker_settings
ensure_java()
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
settings = {
    **worker_settings(),
    "spark.connect.grpc.binding.port": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
words = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
home = pathlib.Path(pyspark.__file__).parent
os.environ["SPARK_HOME"] = str(home)
program = str(home / "bin" / "spark-submit")
command = [program, "--master", "local[2]", *words, "--class", kind, "spark-internal"]
os.execv(program, command)
"""


class Failed(Exception):
    """A step has not led where it should."""


class Slow(Failed):
    """A worker has not started in time."""

    @classmethod
    def or_failed(cls, text: str) -> Failed:
        """Return the error of a client with this output."""
        return (cls if _SLOW in text else Failed)(text[-1500:])


class ConnectJob:
    """A job whose state and table are in a folder, and whose server is here.

    Args:
        python: The Python of the client and of the server.
        variables: The environment of both.
        broker: The broker.
        words: The arguments of `pullstream ingest`, with `--state`.
        state: The state folder.
        subscription: Name of the subscription.
    """

    def __init__(
        self,
        python: Path | str,
        variables: Mapping[str, str],
        broker: Emulator,
        words: Sequence[str],
        state: Path,
        subscription: str,
    ) -> None:
        self._python = str(python)
        self._variables = dict(variables)
        self._broker = broker
        self._words = words
        self._state = state
        self._subscription = subscription
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a server during the block."""
        with (
            tempfile.TemporaryFile() as log,
            subprocess.Popen(
                [self._python, "-c", _SERVER, str(self._port)],
                env=self._variables,
                stdout=log,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                self._until(self._answers, "the server's port", process, log.fileno())
                yield process
            finally:
                process.kill()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def run_to_its_end(self) -> None:
        """Write the available messages."""
        self._repeated(self._run)

    def _run(self) -> None:
        done = subprocess.run(
            [*self._command, "--available-now"],
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * _TIMEOUT,
        )
        if done.returncode:
            raise Slow.or_failed(done.stdout + done.stderr)

    def _repeated(self, run: Callable[[], _T]) -> _T:
        """Run again if the machine is too slow for Spark."""
        for _ in range(_STARTS - 1):
            with suppress(Slow):
                return run()
        return run()

    def run_until_left(self, left: int) -> subprocess.Popen[bytes]:
        """Return a client that runs, when at most this number of messages is not acknowledged."""
        return self._repeated(lambda: self._left(left))

    def _left(self, left: int) -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                # Many batches, of which some are under way when something is killed.
                [*self._command, "--batch-rows", "10"],
                env=self._variables,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

            def is_there() -> bool:
                return self._broker.backlog(self._subscription) <= left

            try:
                self._until(is_there, f"a backlog of {left}", process, log.fileno())
            except BaseException:
                process.kill()
                process.wait()
                raise
        return process

    @property
    def _command(self) -> list[str]:
        url = f"sc://127.0.0.1:{self._port}"
        return [self._python, "-m", "pullstream", "ingest", *self._words, "--master", url]

    def _until(
        self, test: Callable[[], bool], what: str, process: subprocess.Popen[bytes], log: int
    ) -> None:
        pause = threading.Event()
        end = SYSTEM_CLOCK.monotonic() + _TIMEOUT
        while not test():
            if process.poll() is not None or SYSTEM_CLOCK.monotonic() > end:
                output = os.pread(log, 1_000_000, 0).decode(errors="replace")
                raise Slow.or_failed(f"no {what}: {output}")
            pause.wait(_LOOK)

    def lose_checkpoint(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self._state / "checkpoint")


def run_with_kills(job: ConnectJob, publish: Callable[[int, int], None], rows: int) -> str:
    """Publish rows, write them by the job while parts of it are killed, and return the problem.

    Args:
        job: The job.
        publish: Publishes the rows from one number to another.
        rows: Number of rows, at least 120.
    """
    third = rows // 3
    try:
        with job.server() as server:
            publish(0, third)
            client = job.run_until_left(third - 10)
            # The query runs on. The next run replaces it, and writes the other rows.
            _kill(client)
            publish(third, 2 * third)
            job.run_to_its_end()
            job.lose_checkpoint()
            publish(2 * third, rows - 20)
            client = job.run_until_left(third - 30)
            os.kill(_worker_of(server.pid), signal.SIGKILL)
            if client.wait(_TIMEOUT) == 0:
                raise Failed("the client ended as if nothing had happened")
            client = job.run_until_left(third - 40)
            _kill(server)
            _kill(client)
        publish(rows - 20, rows)
        with job.server():
            job.run_to_its_end()
    except (Failed, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _worker_of(server: int) -> int:
    """Return the process in which a server runs the function of `foreachBatch`."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == server and b"foreach_batch_worker" in words:
            return int(folder.name)
    raise Failed("there is no process for batches")
