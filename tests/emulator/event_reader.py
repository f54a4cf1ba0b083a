"""A bare client of server-sent events: one stream, one connection, one thread that reads it."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, NamedTuple

from tests.emulator.wire import PATIENCE


class Event(NamedTuple):
    """An event of a stream, or a comment under its text."""

    name: str
    id: str | None = None
    data: Any = None


class Refused(Exception):
    """There is no stream: the status and the content of the answer."""

    def __init__(self, status: int, content: Any) -> None:
        super().__init__(status, content)
        self.status = status
        self.content = content


class EventReader:
    """Reads a stream from its opening on, which may be Refused. `next` hands on what has come.

    answer: its headers.
    retry: what the stream said of it before its first event, in milliseconds.
    """

    def __init__(self, endpoint: str, path: str, **headers: str) -> None:
        self._connection = HTTPConnection(endpoint, timeout=PATIENCE)
        self._connection.request("GET", path, headers=headers)
        # The response takes the socket along when the server is to close the connection.
        self._socket = self._connection.sock
        self.answer: HTTPResponse = self._connection.getresponse()
        if self.answer.status != 200:
            content = json.loads(self.answer.read())
            self._connection.close()
            raise Refused(self.answer.status, content)
        # Between two events there may be a minute.
        self._socket.settimeout(None)
        self.retry: int | None = None
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, name="test-event-reader")
        self._thread.start()

    def next(self, timeout: float = PATIENCE) -> Event:
        """Raises EOFError when the stream has ended, and TimeoutError when nothing has come."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event within {timeout} s") from None
        if event is None:
            self._events.put(None)
            raise EOFError
        return event

    def next_of(self, name: str) -> Event:
        """The next event of this name; others are passed over."""
        while (event := self.next()).name != name:
            pass
        return event

    def rest(self) -> list[Event]:
        """What comes until the stream ends."""
        events = []
        try:
            while True:
                events.append(self.next())
        except EOFError:
            return events

    def close(self) -> None:
        """Hang up. Idempotent."""
        # It fails where the server was faster.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._connection.close()
        self._socket.close()

    def _read(self) -> None:
        # One side or the other may hang up.
        with contextlib.suppress(OSError, HTTPException):
            for event in self._parsed():
                self._events.put(event)
        self._events.put(None)

    def _parsed(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for line in iter(self.answer.readline, b""):
            text = line.decode().rstrip("\n")
            name, colon, value = text.partition(":")
            if not text:
                if "retry" in fields:
                    self.retry = int(fields["retry"])
                if "event" in fields:
                    yield Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
                fields = {}
            elif not name:
                yield Event(value.strip())
            else:
                assert colon
                fields[name] = value.removeprefix(" ")
