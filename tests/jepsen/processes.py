"""The broker, publishers and subscribers, each in a process that may be killed and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from tests.free_port import free_port

ROOT = Path(__file__).parents[2]
# Seconds for a start or an orderly end on a busy machine.
TIMEOUT = 90.0


class Process:
    """One process at a time, which is started again after it was killed.

    Args:
        name: Its name in the history. The life's number is added for each start.
        arguments: The module and its arguments. "{name}" stands for the name of the life.
        errors: The file that gets its standard error.
    """

    def __init__(self, name: str, arguments: list[str], errors: Path) -> None:
        self.name = name
        self.lives = 0
        self.is_stopped = False
        self._arguments = arguments
        self._errors = errors
        self._process: subprocess.Popen[str] | None = None

    @property
    def life(self) -> str:
        """The name of the present life."""
        return f"{self.name}.{self.lives}"

    @property
    def running(self) -> subprocess.Popen[str]:
        """The running process."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start the process."""
        self.lives += 1
        self.is_stopped = False
        arguments = [each.replace("{name}", self.life) for each in self._arguments]
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.jepsen.wall_clock", *arguments],
                cwd=ROOT,
                env={**os.environ, "PULLSTREAM_LOG_LEVEL": "error", "GRPC_VERBOSITY": "NONE"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def send(self, number: int) -> None:
        """Send a signal."""
        self.is_stopped = number == signal.SIGSTOP
        self.running.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self.running.kill()
        self.running.wait()
        self.is_stopped = False

    def end(self) -> bool:
        """Send SIGTERM, and return whether the process ends in time."""
        self.running.terminate()
        try:
            self.running.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True


class BrokerProcess(Process):
    """A broker with a data directory, which has the same port in every life."""

    def __init__(self, directory: Path, durability: str, errors: Path) -> None:
        self.port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        arguments = [
            *("pullstream_emulator", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--data-dir", str(directory), "--durability", durability, "--history", "0"),
        ]
        super().__init__("broker", arguments, errors)

    def start(self) -> None:
        """Start the broker, and wait until it listens.

        Raises:
            RuntimeError: It does not start.
        """
        super().start()
        lines: list[str] = []
        output: IO[str] | None = self.running.stdout
        assert output is not None
        reader = threading.Thread(target=lambda: lines.append(output.readline()), daemon=True)
        reader.start()
        reader.join(TIMEOUT)
        if not lines or not lines[0].startswith("Server started"):
            raise RuntimeError(f"the broker does not start: {lines}")


def client_process(
    role: str, client: str, number: int, broker: BrokerProcess, folder: Path, plant: str
) -> Process:
    """Return a publisher or a subscriber, of our SDK ("ours") or of the official one."""
    name = f"{client}-{role}{number}"
    log = str(folder / f"{name}.log")
    arguments = ["tests.jepsen.program", role, client, "{name}", log, broker.endpoint, plant]
    return Process(name, arguments, folder / f"{name}.errors")
