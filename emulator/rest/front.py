"""One port for gRPC and HTTP/1.1: connections are told apart by their first bytes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from . import handover, sniff
from .listener import Listener
from .pipe import Pipes

_log = logging.getLogger("pullstream.emulator")


class Front:
    """Listens in gRPC's place, and gives it the connections that are gRPC's.

    Nothing is read of a connection before it is given away. Where gRPC cannot be given it (see
    `handover`), its bytes are passed on instead, which costs the broker some time.

    Args:
        grpc_address: where gRPC listens meanwhile.
        http: takes the connections of HTTP/1.1.
        tls: whether gRPC speaks TLS.
    """

    def __init__(
        self, grpc_address: str, http: Callable[[socket.socket], Awaitable[None]], *, tls: bool
    ) -> None:
        self._grpc_address = grpc_address
        self._http = http
        self._tls = tls
        self._listener = Listener(self._sort)
        self._pipes = Pipes()
        self._hands_over = False

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port`, when gRPC is ready; returns the port.

        Raises:
            OSError: the address cannot be used.
        """
        # With TLS gRPC does not speak first, and a hand-over could not be told to be complete.
        self._hands_over = not self._tls and await handover.works(self._grpc_address)
        return await self._listener.start(host, port)

    async def stop_listening(self) -> None:
        """Take no more connections, and give none that is here to a gRPC that may stop now."""
        await self._listener.stop()

    async def stop(self) -> None:
        """End what is relayed."""
        await self._pipes.stop()

    async def _sort(self, connection: socket.socket) -> None:
        if not await _is_grpc(connection):
            await self._http(connection)
        elif self._hands_over:
            await self._give(connection)
        else:
            await self._relay(connection)

    async def _give(self, connection: socket.socket) -> None:
        try:
            await handover.hand_over(connection, self._grpc_address)
        except handover.CannotHandOver as error:
            _log.warning("a gRPC connection is relayed: %s", error)
            await self._relay(connection)

    async def _relay(self, connection: socket.socket) -> None:
        self._pipes.add(connection, await handover.connect(self._grpc_address))


async def _is_grpc(connection: socket.socket) -> bool:
    start = await _peek(connection, sniff.ENOUGH)
    if sniff.is_tls(start):
        head = await _peek(connection, sniff.TLS_HEAD)
        return sniff.wants_grpc(await _peek(connection, sniff.tls_size(head)))
    return sniff.is_preface(start)


async def _peek(connection: socket.socket, size: int) -> bytes:
    """The first bytes of a connection, left where they are.

    Raises:
        ConnectionError: it ends before there are so many.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    start = connection.recv(size, socket.MSG_PEEK)
    if len(start) < size:
        raise ConnectionResetError("the connection has ended")
    return start
