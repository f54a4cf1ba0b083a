"""A TCP port forwarding that can forget or cut its connections, as one to a pod does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final

CHUNK: Final = 65536

# Seconds. The limit turns a hang into a failure.
TIMEOUT: Final = 20.0


class _Pair:
    """Two connections between which bytes are copied until they are forgotten."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self._sockets = (near, far)
        self.is_forgotten = False
        self.is_open = True

    def start(self) -> None:
        near, far = self._sockets
        self._back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
        self._back.start()
        threading.Thread(target=self._copy, args=(near, far), daemon=True).start()

    def cut(self) -> None:
        self._sockets[1].shutdown(socket.SHUT_WR)
        self._back.join(TIMEOUT)
        assert not self._back.is_alive()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(CHUNK):
                if not self.is_forgotten:
                    other.sendall(data)
            self.is_open = False
            if not self.is_forgotten:
                other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Forwarder:
    """Forwards connections to a port of this machine.

    Args:
        port: The port.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[_Pair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        """Number of connections on which it forwards."""
        return sum(pair.is_open and not pair.is_forgotten for pair in self._pairs)

    def forget(self) -> None:
        """Leave all present connections open, and forward nothing more on them.

        New connections are forwarded.
        """
        for pair in self._pairs:
            pair.is_forgotten = True

    def cut(self) -> None:
        """End all connections to the port, and return when its server has closed its side too."""
        for pair in self._pairs:
            pair.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                pair = _Pair(near, far)
                # Known before a client can have an answer.
                self._pairs.append(pair)
                pair.start()

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A plain close would leave the accepting thread waiting.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.close()
