"""A relay in front of the broker's port, so that a fault can interrupt the network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from pullstream_emulator.net.listener import listen

from .waiter import Waiter

_CHUNK = 64 * 1024


class Relay:
    """Forwards every byte as it arrives, after `relaying` has returned.

    Held bytes are delayed, not lost, as with TCP when a network recovers. The end of a connection
    is held, too: the broker does not learn that its client is gone.

    Args:
        relaying: Returns when bytes may pass.
    """

    def __init__(self, relaying: Callable[[Waiter], Awaitable[None]]) -> None:
        self._relaying = relaying
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, broker_port: int) -> int:
        """Listen for the broker, and return the port.

        Args:
            host: Address to listen on.
            port: Port to listen on; 0 picks a free one.
            broker_port: Port of the broker on 127.0.0.1.

        Raises:
            OSError: The address cannot be used.
        """
        self._broker_port = broker_port
        sockets = await listen(host, port)
        bound: int = sockets[0].getsockname()[1]
        self._servers = [await asyncio.start_server(self._accept, sock=each) for each in sockets]
        return bound

    async def stop(self) -> None:
        """Close every connection, and free the port."""
        for server in self._servers:
            server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connect(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closing(writer):
            await self._relaying(Waiter())
            try:
                answers, requests = await asyncio.open_connection("127.0.0.1", self._broker_port)
            except OSError:
                # The broker is stopping; the client sees the connection end.
                return
            async with _closing(requests):
                await asyncio.gather(self._pass(reader, requests), self._pass(answers, writer))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        waiter = Waiter()
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._relaying(waiter)
                sink.write(data)
                await sink.drain()
        await self._relaying(waiter)
        with contextlib.suppress(OSError):
            sink.write_eof()


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
