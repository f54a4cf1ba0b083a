"""A TCP connection to a broker that a test can cut, with a check that the broker has noticed."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.emulator.wire import TIMEOUT


class Relay:
    """Relays one connection to 127.0.0.1:`port`."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._broker = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self._client: socket.socket | None = None
        self._broker_closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._to_broker, daemon=True),
            threading.Thread(target=self._to_client, daemon=True),
        ]
        self._connected = threading.Event()
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Relay:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, self._broker, self._client):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        for thread in self._threads:
            thread.join(TIMEOUT)

    def cut(self) -> None:
        """End the connection to the broker, and return when the broker has closed its side too."""
        self._broker.shutdown(socket.SHUT_WR)
        assert self._broker_closed.wait(TIMEOUT)

    def _to_broker(self) -> None:
        with contextlib.suppress(OSError):
            self._client, _ = self._listener.accept()
            self._connected.set()
            while data := self._client.recv(65536):
                self._broker.sendall(data)

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            self._connected.wait(TIMEOUT)
            while data := self._broker.recv(65536):
                if self._client is not None:
                    self._client.sendall(data)
        self._broker_closed.set()
