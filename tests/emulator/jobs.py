"""Jobs for the processes of a pool."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path


def end_process(code: int) -> None:
    os._exit(code)


def end_the_first_process(marker: Path) -> str:
    """End the process of the first call, and return in that of the next one."""
    if not marker.exists():
        marker.touch()
        os._exit(3)
    return "done"


def interrupt() -> str:
    """Send SIGINT to this process, as Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)
    return "done"


def work_on(marker: Path) -> None:
    """Create a file, then work for longer than any test waits."""
    marker.touch()
    threading.Event().wait()


def print_something() -> str:
    print("something", flush=True)
    os.write(1, b"something\n")
    return "done"


class Unpicklable(Exception):
    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name}: {number}")


def raise_unpicklable() -> None:
    raise Unpicklable("orders", 1)
