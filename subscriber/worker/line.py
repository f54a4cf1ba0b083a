"""The line between the parent and a child: news come up as JSON, and its end is the order to stop.

One mechanism for two cases: the parent closes its half when it wants the child to stop, and the
system closes it when the parent has died.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from subscriber.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Figures:
    """A child's statistics; what they mean is told by `Statistics`.

    at: when they were read, in seconds of the child's monotonic clock.
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
    def of(cls, statistics: Statistics, at: float) -> Figures:
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
class Loaded:
    """The callback was loaded.

    sources: the files and folders that it was loaded from.
    """

    sources: list[str]


@dataclass(frozen=True, slots=True)
class Unusable:
    """The callback cannot be loaded."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The subscription cannot be had, or was ended by an error that no restart mends."""

    reason: str


News = Figures | Loaded | Unusable | Failed

_KINDS: Mapping[str, type[News]] = {
    kind.__name__.lower(): kind for kind in (Figures, Loaded, Unusable, Failed)
}


class Line:
    """One end of the line. One thread may read and another one write."""

    def __init__(self, end: socket.socket) -> None:
        # Else a command that a callback runs would keep the line open.
        end.set_inheritable(False)
        self._end = end
        self._write_lock = threading.Lock()

    @classmethod
    def pair(cls) -> tuple[Line, Line]:
        """Two ends: what is told at one is read at the other."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self._end.fileno()

    def tell(self, news: News) -> bool:
        """Write; whether somebody is still at the other end."""
        fields: dict[str, Any] = {name: getattr(news, name) for name in news.__slots__}
        text = json.dumps({"kind": type(news).__name__.lower(), **fields}) + "\n"
        try:
            with self._write_lock:
                self._end.sendall(text.encode())
        except OSError:
            return False
        return True

    def news(self) -> Iterator[News]:
        """What the other end tells, until it is closed."""
        with contextlib.suppress(OSError), self._end.makefile("r", encoding="utf-8") as lines:
            for text in lines:
                fields = json.loads(text)
                yield _KINDS[fields.pop("kind")](**fields)

    def end_writing(self) -> None:
        """Nothing more will be told from here; what the other end tells can still be read."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._end.close()
