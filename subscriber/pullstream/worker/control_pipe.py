"""The control pipe between the parent and a child.

First the parent sends the job, then the child sends reports, both as JSON. The end of the pipe is
the order to stop. This covers two cases: the parent closes its half when it wants the child to
stop, and the system closes it when the parent has died.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pullstream.statistics import Statistics

_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class StatisticsReport:
    """A child's statistics; see `Statistics` for their meaning.

    Attributes:
        at: When they were read, in seconds of the child's monotonic clock.
        state: State of the stream.
        acked: Messages acked.
        nacked: Messages nacked.
        errors: Callbacks that raised an exception.
        running: Messages in a callback.
        held: Messages that wait behind another one of their ordering key.
        load: The fuller limit of flow control; the stream pauses at 1.
        p99: 99th percentile, in seconds, from the receipt of a message to its acknowledgement.
    """

    at: float
    state: str
    acked: int
    nacked: int
    errors: int
    running: int
    held: int
    load: float
    p99: float

    @classmethod
    def from_statistics(cls, statistics: Statistics, at: float) -> StatisticsReport:
        """Return the part of a subscription's statistics that the parent shows."""
        return cls(
            at=at,
            state=statistics.state.value,
            acked=statistics.acked,
            nacked=statistics.nacked,
            errors=statistics.callback_errors,
            running=statistics.running,
            held=statistics.held,
            load=statistics.load,
            p99=statistics.latency.p99,
        )


@dataclass(frozen=True, slots=True)
class CallbackLoaded:
    """The callback was loaded.

    Attributes:
        sources: The files and folders from which it was loaded.
    """

    sources: list[str]


@dataclass(frozen=True, slots=True)
class CallbackUnusable:
    """The callback cannot be loaded.

    Attributes:
        reason: The reason and the remedy, for people.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SubscriptionFailed:
    """The subscription cannot be opened, or ended with an error that a restart cannot fix.

    Attributes:
        reason: The error, in one line.
    """

    reason: str


Report = StatisticsReport | CallbackLoaded | CallbackUnusable | SubscriptionFailed

_KINDS: Mapping[str, type[Report]] = {
    kind.__name__.lower(): kind
    for kind in (StatisticsReport, CallbackLoaded, CallbackUnusable, SubscriptionFailed)
}


class ControlPipe:
    """One end of the control pipe. One thread may read while another one writes."""

    def __init__(self, end: socket.socket) -> None:
        # Otherwise a command that a callback starts would keep the pipe open.
        end.set_inheritable(False)
        self._end = end
        self._write_lock = threading.Lock()

    @classmethod
    def pair(cls) -> tuple[ControlPipe, ControlPipe]:
        """Return the two ends of a new pipe."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Return the descriptor of this end, by which a child inherits it."""
        return self._end.fileno()

    def send_job(self, text: str) -> None:
        """Write the job as one line, before anything else."""
        with contextlib.suppress(OSError):
            self._end.sendall(text.encode() + b"\n")

    def receive_job(self) -> str | None:
        """Return the job that the other end has sent; None if that end was closed."""
        read = b""
        with contextlib.suppress(OSError):
            while not read.endswith(b"\n") and (more := self._end.recv(_CHUNK)):
                read += more
        return read.decode() if read.endswith(b"\n") else None

    def send_report(self, report: Report) -> bool:
        """Send a report, and return whether the other end is still open."""
        fields: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
        text = json.dumps({"kind": type(report).__name__.lower(), **fields}) + "\n"
        try:
            with self._write_lock:
                self._end.sendall(text.encode())
        except OSError:
            return False
        return True

    def reports(self) -> Iterator[Report]:
        """Yield the reports of the other end, until it is closed."""
        with contextlib.suppress(OSError), self._end.makefile("r", encoding="utf-8") as lines:
            for text in lines:
                fields = json.loads(text)
                yield _KINDS[fields.pop("kind")](**fields)

    def end_writing(self) -> None:
        """Close this end for writing. Reports of the other end can still be read."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end for reading and writing; the other end reads the end of the pipe."""
        self._end.close()
