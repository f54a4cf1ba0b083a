"""`pullstream worker` as a separate program, in a folder with the user's module."""

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

# The beginning of the user's module. A message is announced, then waits until the gate is open. The
# line is one string, because print() writes a line and its end apart, and others write to the same
# place.
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
    """Return the path of the packages, for a program that is started in another folder."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


class Program:
    """A running worker: its lines on stderr, and its end."""

    def __init__(
        self, folder: Path, *args: str, app: str = "", elsewhere: Path | None = None
    ) -> None:
        self._folder = folder
        self._modules = elsewhere or folder
        self._written = 0
        self.write(app)
        os.mkfifo(folder / "gate")
        self._gate: int | None = None
        command = [sys.executable, "-m", "pullstream", "worker", "app:handle", *args]
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
        """Write the user's module in one step: the common part, and `app`.

        The size and the second are always the same, so that bytecode of another text seems to fit.
        """
        text = self._modules / "app.txt"
        text.write_text((APP + app + "\n").ljust(4000, "#"))
        self._written += 1
        os.utime(text, ns=(_WRITTEN, _WRITTEN + self._written))
        text.replace(text.with_suffix(".py"))

    def open_gate(self) -> None:
        """Let all callbacks continue, also later ones."""
        # Opened for both, so that the open does not wait for a reader.
        self._gate = os.open(self._folder / "gate", os.O_RDWR)

    def wait_for(self, *words: str) -> str:
        """Return the next line on stderr with one of these words. `said` keeps the others."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
            if any(word in line for word in words):
                return self.said[-1]
        raise AssertionError(f"{words} did not come, but {self.said}")

    def begun(self, count: int) -> list[tuple[str, int]]:
        """Return data and process of the next messages that begin."""
        found = [self.wait_for("begun ").split() for _ in range(count)]
        return [(data, int(pid)) for _, data, pid in found]

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and return when the program has noticed."""
        self.process.send_signal(number)
        self.wait_for("stopping")

    def ctrl_c(self) -> None:
        """Send Ctrl-C as a terminal does: all processes of the group get the signal."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.wait_for("stopping")

    def end(self) -> int:
        """Read the output until all processes are gone, and return the exit code."""
        stdout, stderr = self.process.communicate()
        self.stdout = stdout
        self.said += stderr.splitlines()
        return self.process.returncode

    def close(self) -> None:
        """Stop all processes and close the gate."""
        if self.process.poll() is None:
            # The children notice, and end.
            self.process.kill()
        self.open_gate()
        self.process.communicate()
        if self._gate is not None:
            os.close(self._gate)


def pids(begun: Sequence[tuple[str, int]]) -> set[int]:
    return {pid for _, pid in begun}
