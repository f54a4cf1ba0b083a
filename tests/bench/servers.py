"""The servers of a benchmark, each a process: the feed, our broker, Google's emulator."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.free_port import free_port
from tests.interop.test_java_emulator import JAR, JAVA

ROOT = Path(__file__).parents[2]

# The commit that some floors name, and the folder of its source.
EARLIER_COMMIT = "9de44a9"
EARLIER_SOURCE = ROOT / "build" / f"bench-{EARLIER_COMMIT}"

# The seconds that a server may take to start or to end.
TIMEOUT = 60.0


class NotStarted(Exception):
    """A process ended, or printed nothing for too long, before it was ready."""


class Broker(Enum):
    OURS = "pullstream's broker"
    DISK = "pullstream's broker, on disk"
    GRPC_ONLY = "pullstream's broker, gRPC on a port of its own"
    HTTP_APART = "pullstream's broker, gRPC and HTTP on a port each"
    DISK_GRPC_ONLY = "pullstream's broker, on disk, gRPC on a port of its own"
    WITH_SQLITE_LOAD = "pullstream's broker, gRPC only, while another process writes to SQLite"
    LIMITED_STREAMS = "pullstream's broker, 10 MB/s on each stream"
    SMALL_PULLS = "pullstream's broker, 100 messages in the answer to a Pull"
    EARLIER = "pullstream's broker at an earlier commit, gRPC on a port of its own"
    JAVA = "Google's emulator"


@dataclass(frozen=True)
class Feed:
    """The feed of tests/bench/feed.py, whose options have the same names."""

    per_response: int = 10
    size: int = 100
    keys: int = 0
    latency: float = 0.0
    exactly_once: bool = False
    total: int = 0

    def options(self) -> list[str]:
        options = []
        for name, value in asdict(self).items():
            if value:
                options.append(f"--{name.replace('_', '-')}")
                options += [] if value is True else [str(value)]
        return options


@dataclass(frozen=True)
class PublishSink:
    """The server of tests/bench/publish_sink.py.

    Attributes:
        latency: Seconds that a request takes.
    """

    latency: float = 0.0


Server = Feed | Broker | PublishSink


def missing(server: Server) -> str | None:
    """Return the reason why that server cannot be started here, or None."""
    if server is Broker.JAVA and (JAR is None or JAVA is None):
        return "Google's emulator is not installed"
    if server is Broker.EARLIER and not _has_earlier_commit():
        return f"this clone does not have the commit {EARLIER_COMMIT}"
    return None


def _has_earlier_commit() -> bool:
    if shutil.which("git") is None:
        return False
    asked = ["git", "cat-file", "-e", f"{EARLIER_COMMIT}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True).returncode == 0


def _earlier_source() -> Path:
    """Return the folder of the earlier commit's source, which is created once."""
    if not EARLIER_SOURCE.is_dir():
        # tarfile warns or fails without a filter, depending on the version of Python.
        archive = ["git", "archive", "--format=zip", EARLIER_COMMIT, "emulator", "protocol"]
        packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
        with zipfile.ZipFile(io.BytesIO(packed)) as found:
            found.extractall(EARLIER_SOURCE)
    return EARLIER_SOURCE


def command(server: Server) -> list[str]:
    if isinstance(server, Feed):
        return [sys.executable, "-m", "tests.bench.feed", *server.options()]
    if isinstance(server, PublishSink):
        line = [sys.executable, "-m", "tests.bench.publish_sink"]
        return [*line, "--latency", str(server.latency)]
    if server is Broker.EARLIER:
        source = _earlier_source()
        path = os.pathsep.join(str(source / name) for name in ("emulator", "protocol"))
        program = [sys.executable, "-m", "pullstream_emulator", "--port", "0", "--no-rest"]
        return ["env", f"PYTHONPATH={path}", *program]
    if server is not Broker.JAVA:
        options = {
            Broker.GRPC_ONLY: ["--no-rest"],
            Broker.DISK_GRPC_ONLY: ["--no-rest"],
            Broker.WITH_SQLITE_LOAD: ["--no-rest"],
            Broker.HTTP_APART: ["--rest-port", "0"],
            Broker.LIMITED_STREAMS: ["--fault", "limit-streams:10e6"],
            Broker.SMALL_PULLS: ["--max-pull-messages", "100"],
        }.get(server, [])
        return [sys.executable, "-m", "pullstream_emulator", "--port", "0", *options]
    return [str(JAVA), "-jar", str(JAR), "--host=localhost", f"--port={free_port()}"]


@dataclass(frozen=True)
class Served:
    """A server that is ready: its address, its process, and its start time in seconds."""

    endpoint: str
    pid: int
    seconds: float


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Run a server of that kind during the block, and yield its endpoint."""
    with served(server) as found:
        yield found.endpoint


@contextmanager
def served(server: Server) -> Iterator[Served]:
    """Run a server as `serving` does, and yield it with its process and start time."""
    with ExitStack() as stack:
        line = command(server)
        if server in (Broker.DISK, Broker.DISK_GRPC_ONLY):
            line += ["--data-dir", stack.enter_context(TemporaryDirectory())]
        if server is Broker.WITH_SQLITE_LOAD:
            writer = [sys.executable, "-m", "tests.bench.sqlite_load"]
            stack.enter_context(_started(writer, "writing"))
        began = time.monotonic()
        process, port = stack.enter_context(_started(line, r"listening on (\d+)"))
        yield Served(f"localhost:{port}", process.pid, time.monotonic() - began)


@contextmanager
def running(command: Sequence[str], ready: str, timeout: float = TIMEOUT) -> Iterator[str]:
    """Run a process during the block after it has printed a line that matches `ready`.

    Yields the match's last group.

    Raises:
        NotStarted: The line has not come after `timeout` seconds.
    """
    with _started(command, ready, timeout) as (_, found):
        yield found


@contextmanager
def _started(
    command: Sequence[str], ready: str, timeout: float = TIMEOUT
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    pattern = re.compile(ready)
    found: list[str] = []
    is_ready = threading.Event()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def read() -> None:
        # To the end, because a full pipe would stop the process.
        for line in process.stdout or ():
            if match := pattern.search(line):
                found.append(match[match.lastindex or 0])
                is_ready.set()
        # The process has ended, so the wait must end.
        is_ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        is_ready.wait(timeout)
        if not found:
            raise NotStarted(f"{' '.join(command[1:4])} did not start")
        yield process, found[0]
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()
