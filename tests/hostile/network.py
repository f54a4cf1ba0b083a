"""A TCP relay that resets and stalls connections, and puts frames between those of HTTP/2."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_FRAME_HEADER = 9
_GOAWAY = 7


def goaway(last_stream: int, code: int) -> bytes:
    """Return a GOAWAY frame of HTTP/2."""
    payload = struct.pack("!II", last_stream, code)
    return struct.pack("!I", len(payload))[1:] + bytes([_GOAWAY, 0]) + bytes(4) + payload


# The last stream id and the error code: a server that stops, one that refuses all streams, and one
# that has had enough pings (ENHANCE_YOUR_CALM).
GOAWAYS = (goaway(0x7FFFFFFF, 0), goaway(0, 0), goaway(0x7FFFFFFF, 11))


class _Link:
    """One relayed connection."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        # Bytes of the server to put between two of its frames.
        self.injected: list[bytes] = []
        self.passes = threading.Event()
        self.passes.set()
        self._running = 2
        self._lock = threading.Lock()

    def end(self, *, reset: bool) -> None:
        """End both connections: in order, or with a reset of TCP."""
        for end in (self.client, self.server):
            with suppress(OSError):
                if reset:
                    # `close` then sends a reset. The end of reading wakes the relaying threads.
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
        self.passes.set()

    def leave(self) -> None:
        """Close the sockets when both relaying threads have called this."""
        with self._lock:
            self._running -= 1
            if self._running:
                return
        self.client.close()
        self.server.close()


class Network:
    """Relays connections to a port of this machine. Thread-safe.

    A stalled connection stays open and passes no bytes: it is half-open for the client.
    """

    def __init__(self, port: int, dice: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._port = port
        self._dice = dice
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def step(self) -> str:
        """Let something happen to one connection, and return what."""
        with self._lock:
            links = [link for link in self._links if link.passes.is_set()]
        if not links:
            return "no connection"
        link = self._dice.choice(links)
        what = self._dice.choice(("reset", "closed", "half-open", "GOAWAY", "garbage frame"))
        self.done[f"connection: {what}"] += 1
        if what in ("reset", "closed"):
            self._end(link, reset=what == "reset")
        elif what == "half-open":
            link.passes.clear()
        elif what == "GOAWAY":
            link.injected.append(self._dice.choice(GOAWAYS))
        else:
            link.injected.append(self._dice.randbytes(40))
        return what

    def calm(self) -> None:
        """Reset the half-open connections; without it they would stay for ever."""
        with self._lock:
            stalled = [link for link in self._links if not link.passes.is_set()]
        for link in stalled:
            self._end(link, reset=True)

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            self._end(link, reset=True)

    def _end(self, link: _Link, *, reset: bool) -> None:
        with self._lock:
            if link in self._links:
                self._links.remove(link)
        link.end(reset=reset)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port), 10.0)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                link = _Link(client, server)
                with self._lock:
                    self._links.append(link)
                threading.Thread(target=self._to_server, args=(link,), daemon=True).start()
                threading.Thread(target=self._to_client, args=(link,), daemon=True).start()

    def _to_server(self, link: _Link) -> None:
        with suppress(OSError):
            while data := link.client.recv(65536):
                link.passes.wait()
                link.server.sendall(data)
        self._end(link, reset=False)
        link.leave()

    def _to_client(self, link: _Link) -> None:
        rest = b""
        with suppress(OSError):
            while data := link.server.recv(65536):
                rest += data
                whole = _length_of_frames(rest)
                link.passes.wait()
                link.client.sendall(rest[:whole])
                rest = rest[whole:]
                while link.injected:
                    link.client.sendall(link.injected.pop())
        self._end(link, reset=False)
        link.leave()


def _length_of_frames(data: bytes) -> int:
    """Return the length of the complete frames at the begin of `data`."""
    at = 0
    while at + _FRAME_HEADER <= len(data):
        end = at + _FRAME_HEADER + int.from_bytes(data[at : at + 3], "big")
        if end > len(data):
            break
        at = end
    return at
