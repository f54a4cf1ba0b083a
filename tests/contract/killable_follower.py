"""A follower in a separate process that tests can kill and restart quickly.

Run as a program, this module is the parent: it imports everything that a follower needs, and forks
one follower for each line of its input. A file lists the handled records, one number per line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from pullstream import SubscriberClient
from pullstream.follow import CheckpointFile, Record, ServerCursor
from tests.subscriber.streaming.fakes import eventually

ROOT = Path(__file__).parents[2]
CURSOR = "projects/test-project/cursors/killed"


class KillableFollower:
    """Runs one follower at a time. Its checkpoint is in `directory` or on the broker."""

    def __init__(self, endpoint: str, topic: str, directory: Path, store: str, every: int) -> None:
        self._handled = directory / "handled"
        self._handled.touch()
        self._parent = subprocess.Popen(
            [
                sys.executable, "-m", "tests.contract.killable_follower",
                endpoint, topic, str(directory), store, str(every),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )  # fmt: skip

    def start(self) -> int:
        """Start a follower and return the ID of its process."""
        assert self._parent.stdin is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        return int(self._line())

    def kill(self, process: int) -> None:
        """Kill the process with SIGKILL and wait until it has ended."""
        os.kill(process, signal.SIGKILL)
        assert self._line() == "gone"

    @property
    def handled(self) -> list[int]:
        """Return the numbers that the handlers of all processes have handled, in order."""
        return [int(line) for line in self._handled.read_text().split()]

    def wait_for(self, count: int) -> None:
        """Wait until this many records have been handled in total."""
        eventually(lambda: len(self.handled) >= count)

    def _line(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().rstrip("\n")

    def __enter__(self) -> KillableFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.communicate()


def _follow(endpoint: str, topic: str, directory: str, store: str, every: str) -> None:
    file = os.open(Path(directory) / "handled", os.O_WRONLY | os.O_APPEND)

    pause = threading.Event()

    def handle(record: Record) -> None:
        os.write(file, b"%d\n" % record.seq)
        # Without this pause all records would be handled before the test can kill the process.
        pause.wait(0.0005)

    checkpoint: CheckpointFile | ServerCursor = (
        ServerCursor(CURSOR) if store == "cursor" else CheckpointFile(Path(directory) / "positions")
    )
    client = SubscriberClient(endpoint=endpoint)
    client.follow(
        topic, handle, checkpoint=checkpoint, checkpoint_every=int(every), checkpoint_seconds=1000
    )
    threading.Event().wait()


def _fork_followers() -> None:
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            _follow(*sys.argv[1:])
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    _fork_followers()
