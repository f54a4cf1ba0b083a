"""The servers of a benchmark, each a process: the feed, our broker, Google's emulator."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.test_java_emulator import JAR, JAVA, free_port

ROOT = Path(__file__).parents[2]

# How long a server may take to start or to end, in seconds.
PATIENCE = 60.0


class NotStarted(Exception):
    """A process ended, or said nothing for too long, before it was ready."""


class Broker(Enum):
    OURS = "pullstream's broker"
    DISK = "pullstream's broker, on disk"
    JAVA = "Google's emulator"


@dataclass(frozen=True)
class Feed:
    """What tests/bench/feed.py sends; its options have the same names."""

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


Server = Feed | Broker


def missing(server: Server) -> str | None:
    """Why that server cannot be started here; None if it can."""
    if server is Broker.JAVA and (JAR is None or JAVA is None):
        return "Google's emulator is not installed"
    return None


def command(server: Server) -> list[str]:
    if isinstance(server, Feed):
        return [sys.executable, "-m", "tests.bench.feed", *server.options()]
    if server in (Broker.OURS, Broker.DISK):
        return [sys.executable, "-m", "emulator", "--port", "0"]
    return [str(JAVA), "-jar", str(JAR), "--host=localhost", f"--port={free_port()}"]


@dataclass(frozen=True)
class Served:
    """A server that is ready: where, its process, and how long that took, in seconds."""

    endpoint: str
    pid: int
    seconds: float


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """A server of that kind, for as long as the block lasts; gives its endpoint."""
    with served(server) as found:
        yield found.endpoint


@contextmanager
def served(server: Server) -> Iterator[Served]:
    """As `serving`; tells more of it."""
    with ExitStack() as stack:
        line = command(server)
        if server is Broker.DISK:
            line += ["--data-dir", stack.enter_context(TemporaryDirectory())]
        began = time.monotonic()
        process, port = stack.enter_context(_started(line, r"listening on (\d+)"))
        yield Served(f"localhost:{port}", process.pid, time.monotonic() - began)


@contextmanager
def running(command: Sequence[str], ready: str, patience: float = PATIENCE) -> Iterator[str]:
    """A process that has printed what matches `ready`, for as long as the block lasts.

    Gives the match's last group. Raises NotStarted if it has not come after `patience` seconds.
    """
    with _started(command, ready, patience) as (_, found):
        yield found


@contextmanager
def _started(
    command: Sequence[str], ready: str, patience: float = PATIENCE
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    pattern = re.compile(ready)
    found: list[str] = []
    is_ready = threading.Event()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def read() -> None:
        # To its end: a full pipe would stop the process.
        for line in process.stdout or ():
            if match := pattern.search(line):
                found.append(match[match.lastindex or 0])
                is_ready.set()
        # It has ended: nobody is to wait for it any longer.
        is_ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        is_ready.wait(patience)
        if not found:
            raise NotStarted(f"{' '.join(command[1:4])} did not start")
        yield process, found[0]
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
