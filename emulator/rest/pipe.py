"""Passing bytes on between two connections."""

from __future__ import annotations

import asyncio
import socket


class _End(asyncio.Protocol):
    """One end; what comes in goes out at the other, as fast as that takes it."""

    transport: asyncio.Transport
    other: _End

    def __init__(self, closed: asyncio.Future[None]) -> None:
        self._closed = closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # Until the other end is there as well.
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.other.transport.close()
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
    ends[0].other, ends[1].other = ends[1], ends[0]
    try:
        for end in ends:
            end.transport.resume_reading()
        await closed
    finally:
        for end in ends:
            end.transport.close()
