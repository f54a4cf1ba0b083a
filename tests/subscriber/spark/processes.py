"""Processes of other programs, found in /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the current children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def runs_with(pid: int, word: str) -> bool:
    """Return whether a word is in the command line of a process."""
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def source_workers() -> set[int]:
    """Return the processes of this driver in which sources run."""
    return {
        pid for pid in descendants(os.getpid()) if runs_with(pid, "python_streaming_source_runner")
    }


def receiver_programs(driver: int | None = None) -> set[int]:
    """Return the processes of the receivers of a driver, by default this one."""
    found = descendants(driver or os.getpid())
    return {pid for pid in found if runs_with(pid, "receiver_processes.program")}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process in seconds; 0 if it has ended."""
    try:
        # After the name, which may have any characters, in brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_gone(pids: Iterable[int], timeout: float = 20.0) -> bool:
    """Return whether processes, of any parent, end in time."""
    tick = threading.Event()
    for _ in range(int(timeout / 0.05)):
        if not any(_runs(pid) for pid in pids):
            return True
        tick.wait(0.05)
    return False


def _parent(entry: Path) -> int | None:
    try:
        # After the name, which may have any characters, in brackets: the state and the parent.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    # Z: killed, and not yet waited for by its parent.
    return state != "Z"
