"""A relay of bytes between pairs of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
from collections import deque
from selectors import EVENT_READ, EVENT_WRITE

# Most bytes of one read; a socket's buffer holds about as many.
CHUNK = 256 * 1024

# Most sockets served in a row before the event loop does other work.
AT_ONCE = 32

_NOTHING = memoryview(b"")


class TcpRelay:
    """The pipes between clients and one server. Each exists as long as its connection.

    The sockets are in a separate selector, which the event loop watches as one descriptor. This
    limits how many sockets are served in a row. All pipes share one buffer: the bytes of a read are
    sent at once, and only the bytes that the other socket does not accept are copied.

    Every method runs on one event loop.

    Args:
        linger: Time for which a client may keep its side open after the server has closed its
            side, in seconds.
    """

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._buffer = memoryview(bytearray(CHUNK))
        self._ready: deque[tuple[selectors.SelectorKey, int]] = deque()
        self._ends: set[_End] = set()

    def start(self) -> None:
        """Attach the relay to the running event loop; needed before the first connection."""
        self._loop = asyncio.get_running_loop()
        self._selector = selectors.DefaultSelector()
        self._loop.add_reader(self._selector, self._serve_some)

    def stop(self) -> None:
        """Close all pipes at once."""
        for end in list(self._ends):
            self._close(end)
        self._loop.remove_reader(self._selector)
        self._selector.close()

    def __len__(self) -> int:
        """Return the number of open pipes."""
        return len(self._ends) // 2

    def add(self, client: socket.socket, server: socket.socket) -> None:
        """Connect two non-blocking sockets, which are closed when the pipe ends.

        The end of one direction is forwarded and leaves the other direction open. An error ends
        both.
        """
        one, other = _End(client), _End(server, is_server=True)
        one.other, other.other = other, one
        for end in (one, other):
            self._ends.add(end)
            self._wait_for(end, EVENT_READ)

    def _serve_some(self) -> None:
        # Serve all sockets of one `select` before the next `select`, so that each gets its turn.
        # The sockets that are left keep the selector readable, so the loop calls again.
        if not self._ready:
            self._ready.extend(self._selector.select(0))
        for _ in range(min(AT_ONCE, len(self._ready))):
            key, events = self._ready.popleft()
            end: _End = key.data
            # Serving an earlier socket may have changed the events that this one waits for.
            try:
                if events & end.events & EVENT_WRITE:
                    self._write(end)
                if events & end.events & EVENT_READ:
                    self._read(end)
            except BlockingIOError:
                continue
            except OSError:
                self._close(end)

    def _read(self, end: _End) -> None:
        count = end.socket.recv_into(self._buffer)
        other = end.other
        if not count:
            self._end(end)
            return
        try:
            sent = other.socket.send(self._buffer[:count])
        except BlockingIOError:
            sent = 0
        if sent < count:
            # Read no more from this side until the other side has taken the rest.
            other.left = memoryview(bytes(self._buffer[sent:count]))
            self._wait_for(other, other.events | EVENT_WRITE)
            self._wait_for(end, end.events & ~EVENT_READ)

    def _write(self, end: _End) -> None:
        end.left = end.left[end.socket.send(end.left) :]
        if not end.left:
            self._wait_for(end, end.events & ~EVENT_WRITE)
            self._wait_for(end.other, end.other.events | EVENT_READ)

    def _end(self, end: _End) -> None:
        """Handle the end of the data from one side."""
        end.has_ended = True
        self._wait_for(end, end.events & ~EVENT_READ)
        # The other end may have been closed.
        with contextlib.suppress(OSError):
            end.other.socket.shutdown(socket.SHUT_WR)
        if end.other.has_ended:
            self._close(end)
        elif end.is_server:
            # gRPC closes both directions at once. A client that ignores the end must not remain.
            end.timer = self._loop.call_later(self._linger, self._close, end)

    def _close(self, end: _End) -> None:
        for one in (end, end.other):
            if one not in self._ends:
                continue
            self._ends.discard(one)
            self._wait_for(one, 0)
            one.socket.close()
            if one.timer is not None:
                one.timer.cancel()

    def _wait_for(self, end: _End, events: int) -> None:
        if not events:
            if end.events:
                self._selector.unregister(end.socket)
        elif end.events:
            self._selector.modify(end.socket, events, end)
        else:
            self._selector.register(end.socket, events, end)
        end.events = events


class _End:
    """One of the two sockets of a pipe.

    Attributes:
        left: Bytes from the other end that this end has not taken yet.
        events: The events that the selector waits for at this end.
        has_ended: No more data comes from this end.
    """

    __slots__ = (
        "events",
        "has_ended",
        "is_server",
        "left",
        "other",
        "socket",
        "timer",
    )

    other: _End

    def __init__(self, socket: socket.socket, *, is_server: bool = False) -> None:
        self.socket = socket
        self.is_server = is_server
        self.left = _NOTHING
        self.events = 0
        self.has_ended = False
        self.timer: asyncio.TimerHandle | None = None
