"""A low-level client of server-sent events: one stream, one connection, one reading thread."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, NamedTuple

from tests.emulator.wire import TIMEOUT


class Event(NamedTuple):
    """An event of a stream. A comment is an event with a text."""

    name: str
    id: str | None = None
    data: Any = None


class Refused(Exception):
    """The server refused the stream. Holds the status and the content of the answer."""

    def __init__(self, status: int, content: Any) -> None:
        super().__init__(status, content)
        self.status = status
        self.content = content


class EventReader:
    """Reads a stream from its opening. `next` returns the received events.

    The constructor raises Refused if the server refuses the stream.

    Attributes:
        answer: The headers of the answer.
        retry: The retry interval that the stream announced before its first event, in milliseconds.
    """

    def __init__(self, endpoint: str, path: str, **headers: str) -> None:
        self._connection = HTTPConnection(endpoint, timeout=TIMEOUT)
        self._connection.request("GET", path, headers=headers)
        # If the server is to close the connection, the response takes the socket away from it.
        self._socket = self._connection.sock
        self.answer: HTTPResponse = self._connection.getresponse()
        if self.answer.status != 200:
            content = json.loads(self.answer.read())
            self._connection.close()
            raise Refused(self.answer.status, content)
        # There may be a minute between two events.
        self._socket.settimeout(None)
        self.retry: int | None = None
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, name="test-event-reader")
        self._thread.start()

    def next(self, timeout: float = TIMEOUT) -> Event:
        """Return the next event.

        Raises:
            EOFError: The stream has ended.
            TimeoutError: No event has arrived.
        """
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event within {timeout} s") from None
        if event is None:
            self._events.put(None)
            raise EOFError
        return event

    def next_of(self, name: str) -> Event:
        """Return the next event with this name, and skip others."""
        while (event := self.next()).name != name:
            pass
        return event

    def rest(self) -> list[Event]:
        """Return all events until the stream ends."""
        events = []
        try:
            while True:
                events.append(self.next())
        except EOFError:
            return events

    def close(self) -> None:
        """Close the connection. Idempotent."""
        # The call fails if the server has already closed the connection.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT)
        self._connection.close()
        self._socket.close()

    def _read(self) -> None:
        # Either side may close the connection.
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
