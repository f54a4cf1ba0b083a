"""Unary calls with prepared bytes over one HTTP/2 connection, for a server that is measured.

A gRPC library in Python costs as much for each call as the server does. This client copies the
frames of prepared requests to its socket and looks only at the heads of the frames that come back.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE = 4

# The windows and the frame size before the server says otherwise (RFC 9113).
_WINDOW, _MAX_FRAME = 65_535, 16_384
_LARGEST_WINDOW = 2**31 - 1

_HEAD = struct.Struct(">HBBBI")


class CallFailed(Exception):
    """The server answered a call without a message, or ended the connection."""


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    # Names and values of at most 126 bytes.
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


class HttpTwoLoad:
    """A connection on which the same calls are made again and again.

    Args:
        endpoint: "HOST:PORT".
        path: The path of the method.
        requests: The serialized requests, one after the other.
        in_flight: The number of calls that are open at the same time.

    Attributes:
        done: The number of answered calls.
    """

    def __init__(self, endpoint: str, path: str, requests: Iterator[bytes], in_flight: int) -> None:
        host, _, port = endpoint.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fields = (
            (b":path", path.encode()),
            (b":authority", endpoint.encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
        # The first two bytes are `:method POST` and `:scheme http` of the static table.
        self._block = b"\x83\x86" + b"".join(_literal(*field) for field in fields)
        self._requests = requests
        self._in_flight = in_flight
        self._next_stream = 1
        self._window = _WINDOW
        self._stream_window = _WINDOW
        # The part of a request that the server has not allowed yet, by stream, oldest first.
        self._unsent: dict[int, bytes] = {}
        self._windows: dict[int, int] = {}
        self._answered: set[int] = set()
        self._open = 0
        self._output: deque[bytes] = deque()
        self.done = 0
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
        self._socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _LARGEST_WINDOW - _WINDOW))
        )

    def run(self, is_over: Callable[[], bool]) -> None:
        """Make calls until `is_over()`, then wait for the open ones.

        Raises:
            CallFailed: A call failed.
        """
        received = bytearray()
        over = False
        while True:
            over = over or is_over()
            while not over and self._open < self._in_flight:
                self._begin()
            self._send()
            if over and not self._open:
                return
            part = self._socket.recv(1 << 20)
            if not part:
                raise CallFailed("the server has closed the connection")
            received += part
            del received[: self._read(received)]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _begin(self) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        message = next(self._requests)
        self._output.append(_frame(_HEADERS, _END_HEADERS, stream, self._block))
        self._unsent[stream] = b"\0" + struct.pack(">I", len(message)) + message
        self._windows[stream] = self._stream_window
        self._open += 1

    def _send(self) -> None:
        for stream in list(self._unsent):
            data = self._unsent[stream]
            sent = 0
            while sent < len(data):
                size = min(len(data) - sent, _MAX_FRAME, self._window, self._windows[stream])
                if size <= 0:
                    break
                self._window -= size
                self._windows[stream] -= size
                end = _END_STREAM if sent + size == len(data) else 0
                self._output.append(_frame(_DATA, end, stream, data[sent : sent + size]))
                sent += size
            if sent < len(data):
                self._unsent[stream] = data[sent:]
            else:
                del self._unsent[stream]
            if self._window <= 0:
                break
        if self._output:
            self._socket.sendall(b"".join(self._output))
            self._output.clear()

    def _read(self, received: bytearray) -> int:
        """Handle the complete frames, and return their size."""
        at, total = 0, len(received)
        while total - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(received, at)
            size = high << 8 | low
            end = at + _HEAD.size + size
            if end > total:
                break
            if kind == _DATA:
                # An answer without a message has no data.
                self._answered.add(stream)
            elif kind not in (_HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE):
                raise CallFailed(f"the server has sent a frame of type {kind}")
            elif kind != _HEADERS:
                self._control(kind, flags, stream, bytes(received[at + _HEAD.size : end]))
            if flags & _END_STREAM and kind in (_DATA, _HEADERS):
                if stream not in self._answered:
                    raise CallFailed(bytes(received[at:end]).decode(errors="replace"))
                self._answered.discard(stream)
                del self._windows[stream]
                self._open -= 1
                self.done += 1
            at = end
        return at

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream == 0:
                self._window += more
            elif stream in self._windows:
                self._windows[stream] += more
        elif kind == _PING and not flags & _ACK:
            self._output.append(_frame(_PING, _ACK, 0, payload))
        elif kind == _SETTINGS and not flags & _ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == _INITIAL_WINDOW_SIZE:
                    for each in self._windows:
                        self._windows[each] += value - self._stream_window
                    self._stream_window = value
            self._output.append(_frame(_SETTINGS, _ACK, 0))
