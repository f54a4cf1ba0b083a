"""Passing bytes on between two connections."""

from __future__ import annotations

import asyncio
import socket


class _End(asyncio.Protocol):
    """One end; what comes in goes out at the other, as fast as that takes it."""

    transport: asyncio.Transport

    def __init__(self, closed: asyncio.Future[None]) -> None:
        self._closed = closed
        # The transport of the other end, when that is there, and what came before.
        self.other: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # Until the other end is there as well. Python 3.10 begins to read after this all the same.
        transport.pause_reading()

    def begin(self) -> None:
        """Both ends are there, and know each other."""
        self.transport.resume_reading()
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            self.other.close()
        if not self._closed.done():
            self._closed.set_result(None)


class Pipes:
    """The pipes of a server, each of which lasts as long as its connections."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, one: socket.socket, other: socket.socket) -> None:
        task = asyncio.create_task(_join(one, other))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cut all of them."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _join(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes from either until one of them closes; then both are closed."""
    loop = asyncio.get_running_loop()
    closed: asyncio.Future[None] = loop.create_future()
    ends = _End(closed), _End(closed)
    for end, connection in zip(ends, (one, other), strict=True):
        await loop.connect_accepted_socket(lambda end=end: end, connection)  # type: ignore[misc]
    ends[0].other, ends[1].other = ends[1].transport, ends[0].transport
    try:
        for end in ends:
            end.begin()
        await closed
    finally:
        for end in ends:
            end.transport.close()
