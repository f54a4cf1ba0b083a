"""A broker in a separate process that can be killed and restarted within a moment.

Run as a program it is the parent: it has loaded all modules of a broker, and forks one for each
line that it reads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from pullstream_emulator.broker import Broker
from pullstream_emulator.engine.settings.durability import Durability
from pullstream_emulator.server import Server
from pullstream_emulator.storage.storage import Storage

ROOT = Path(__file__).parents[2]


class KillableBroker:
    """One broker at a time on a data directory, at class fsync, each on its own port."""

    def __init__(self, directory: Path) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.stress.killable_broker", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._pid = 0

    def start(self) -> str:
        """Start a broker and return its endpoint."""
        assert self._parent.stdin is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        pid, port = self._line().split()
        self._pid = int(pid)
        return f"127.0.0.1:{port}"

    def kill(self) -> None:
        """Send SIGKILL, and wait until the broker is gone."""
        os.kill(self._pid, signal.SIGKILL)
        assert self._line() == f"gone {self._pid}"

    def _line(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().rstrip("\n")

    def __enter__(self) -> KillableBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.terminate()
        self._parent.communicate()


async def _serve(directory: str) -> None:
    broker = Broker(storage=Storage(directory, Durability.FSYNC))
    server = Server(broker)
    port = await server.start("127.0.0.1", 0)
    print(os.getpid(), port, flush=True)
    await asyncio.Event().wait()


def _fork_brokers(directory: str) -> None:
    child = 0

    def end(number: int, frame: object) -> None:
        if child:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            asyncio.run(_serve(directory))
        os.waitpid(child, 0)
        print("gone", child, flush=True)
        child = 0


if __name__ == "__main__":
    _fork_brokers(sys.argv[1])
