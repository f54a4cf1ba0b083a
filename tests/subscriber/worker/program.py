"""`pullstream worker` as a program of its own, in a folder with the user's module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_WRITTEN = 1_700_000_000_000_000_000

# What the user's module begins with. A message is announced, then waits until the gate is open.
# In one piece: print() writes a line and its end apart, and others write to the same place.
APP = """
import os, sys

def say(*words):
    os.write(2, (" ".join(map(str, words)) + "\\n").encode())

def pass_gate():
    os.close(os.open("gate", os.O_RDONLY))

def handle(message):
    say("begun", message.data.decode(), os.getpid())
    pass_gate()
    message.ack()
"""


def python_path() -> str:
    """Where the packages are, for a program that is started in another folder."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


class Program:
    """A running worker: what it says on stderr, line by line, and its end."""

    def __init__(
        self, folder: Path, *args: str, app: str = "", elsewhere: Path | None = None
    ) -> None:
        self._folder = folder
        self._modules = elsewhere or folder
        self._written = 0
        self.write(app)
        os.mkfifo(folder / "gate")
        self._gate: int | None = None
        command = [sys.executable, "-m", "subscriber.cli", "worker", "app:handle", *args]
        self.process = subprocess.Popen(
            [*command, "--subscription", "billing"],
            cwd=folder,
            env={
                **{name: os.environ[name] for name in os.environ if name != _NO_BYTECODE},
                "PYTHONPATH": os.pathsep.join((str(self._modules), python_path())),
            },
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def write(self, app: str) -> None:
        """Write the user's module, at once: the common part, and `app`.

        Always of one size and in one second, so that bytecode of another text seems to fit.
        """
        text = self._modules / "app.txt"
        text.write_text((APP + app + "\n").ljust(4000, "#"))
        self._written += 1
        os.utime(text, ns=(_WRITTEN, _WRITTEN + self._written))
        text.replace(text.with_suffix(".py"))

    def open_gate(self) -> None:
        """Let all callbacks go on, those that come later, too."""
        # For both: an end that is open for writing, without waiting for somebody to read.
        self._gate = os.open(self._folder / "gate", os.O_RDWR)

    def wait_for(self, *words: str) -> str:
        """The next line on stderr with one of these words; the others are kept in `said`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
            if any(word in line for word in words):
                return self.said[-1]
        raise AssertionError(f"{words} did not come, but {self.said}")

    def begun(self, count: int) -> list[tuple[str, int]]:
        """Data and process of the next messages that are begun."""
        found = [self.wait_for("begun ").split() for _ in range(count)]
        return [(data, int(pid)) for _, data, pid in found]

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and return when the program has noticed."""
        self.process.send_signal(number)
        self.wait_for("stopping")

    def ctrl_c(self) -> None:
        """As a terminal does it: all processes of its group get the signal."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.wait_for("stopping")

    def end(self) -> int:
        """Read what it says until all its processes are gone, and return the exit code."""
        stdout, stderr = self.process.communicate()
        self.stdout = stdout
        self.said += stderr.splitlines()
        return self.process.returncode

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            # The children notice, and end.
            self.process.kill()
        self.open_gate()
        self.process.communicate()
        if self._gate is not None:
            os.close(self._gate)


def pids(begun: Sequence[tuple[str, int]]) -> set[int]:
    return {pid for _, pid in begun}
