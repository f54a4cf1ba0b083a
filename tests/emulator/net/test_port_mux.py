"""The shared port passes connections to gRPC in small groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator

import pytest

from pullstream_emulator.net import protocol_sniffer
from pullstream_emulator.net.port_mux import AT_ONCE, PAUSE, PortMux, new_address
from tests.emulator.wire import TIMEOUT


class Grpc:
    """A listener in place of gRPC's."""

    def __init__(self, backlog: int) -> None:
        self.address = new_address()
        self.socket = socket.socket(socket.AF_UNIX)
        name = self.address.removeprefix("unix-abstract:")
        self.socket.bind("\0" + name if name != self.address else name.removeprefix("unix:"))
        self.socket.setblocking(False)
        self.socket.listen(backlog)
        self.connections: list[socket.socket] = []

    async def accept(self, count: int) -> float:
        """Accept connections, and return the elapsed seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(count):
            connection, _ = await asyncio.wait_for(loop.sock_accept(self.socket), TIMEOUT)
            self.connections.append(connection)
        return loop.time() - began

    def close(self) -> None:
        for connection in (self.socket, *self.connections):
            connection.close()


@contextlib.asynccontextmanager
async def clients(grpc: Grpc, count: int) -> AsyncIterator[int]:
    """Connect `count` gRPC clients to a shared port, and yield its number."""
    front = PortMux(grpc.address, socket.socket.close, TIMEOUT)
    port = await front.start("127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT))
            client.sendall(protocol_sniffer.PREFACE)
        try:
            yield port
        finally:
            front.stop_listening()
            front.stop()
            grpc.close()


async def test_the_port_mux_pauses_between_groups_of_simultaneous_grpc_connections() -> None:
    """There is a pause after each group."""
    grpc = Grpc(backlog=100)
    async with clients(grpc, 5 * AT_ONCE):
        assert await grpc.accept(5 * AT_ONCE) >= 4 * PAUSE * 0.9


async def test_the_port_mux_holds_connections_while_the_grpc_backlog_is_full() -> None:
    """The kernel refuses a connection to a socket whose queue is full."""
    grpc = Grpc(backlog=1)
    async with clients(grpc, 3 * AT_ONCE):
        await asyncio.sleep(4 * PAUSE)
        await grpc.accept(3 * AT_ONCE)
        # Each connection sends the preface.
        loop = asyncio.get_running_loop()
        for connection in grpc.connections:
            connection.setblocking(False)
            got = await asyncio.wait_for(loop.sock_recv(connection, 100), TIMEOUT)
            assert got == protocol_sniffer.PREFACE


async def test_the_port_mux_closes_a_client_connection_when_the_grpc_server_has_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has the reason."""
    caplog.set_level(logging.WARNING)
    grpc = Grpc(backlog=1)
    async with clients(grpc, 0) as port:
        grpc.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(protocol_sniffer.PREFACE)
        # The connection is reset, because the preface was never read.
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), TIMEOUT)
        writer.close()
    assert "closing a connection that gRPC cannot take: Connection refused" in caplog.text
