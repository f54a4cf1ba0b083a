"""A TCP relay in both directions, with back pressure, half-close and errors."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pullstream_emulator.net.tcp_relay import CHUNK, TcpRelay
from tests.emulator.wire import TIMEOUT

LINGER = 0.05


class Joined:
    """A client and a server with a relay between them."""

    def __init__(self) -> None:
        self.pipes = TcpRelay(LINGER)
        self.pipes.start()
        self.client, one = socket.socketpair()
        self.server, other = socket.socketpair()
        for each in (self.client, one, self.server, other):
            each.setblocking(False)
        self.pipes.add(one, other)

    async def send(self, connection: socket.socket, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.wait_for(loop.sock_sendall(connection, data), TIMEOUT)

    async def receive(self, connection: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.sock_recv(connection, CHUNK), TIMEOUT)

    async def receive_all(self, connection: socket.socket) -> bytes:
        """Read until the other side has closed."""
        received = bytearray()
        while data := await self.receive(connection):
            received += data
        return bytes(received)

    async def has_ended(self) -> None:
        while len(self.pipes):
            await asyncio.sleep(0.001)


@pytest.fixture
@asynccontextmanager
async def both() -> AsyncIterator[Joined]:
    both = Joined()
    try:
        yield both
    finally:
        both.pipes.stop()
        both.client.close()
        both.server.close()


async def test_the_tcp_relay_passes_bytes_in_both_directions(both: Joined) -> None:
    """The server may send first."""
    await both.send(both.server, b"greeting")
    assert await both.receive(both.client) == b"greeting"
    await both.send(both.client, b"request")
    assert await both.receive(both.server) == b"request"
    assert len(both.pipes) == 1


async def test_the_tcp_relay_applies_back_pressure_to_the_sender(both: Joined) -> None:
    """The sender is held back. All bytes arrive in order when the other side reads."""
    data = bytes(range(256)) * (64 * CHUNK // 256)
    sending = asyncio.ensure_future(both.send(both.client, data))
    done, _ = await asyncio.wait([sending], timeout=0.2)
    assert not done
    received = bytearray()
    while len(received) < len(data):
        received += await both.receive(both.server)
    assert received == data
    await sending


async def test_back_pressure_in_one_direction_of_the_tcp_relay_does_not_block_the_other_one(
    both: Joined,
) -> None:
    """Answers pass while requests wait."""
    sending = asyncio.ensure_future(both.send(both.client, bytes(64 * CHUNK)))
    await asyncio.sleep(0.05)
    await both.send(both.server, b"answer")
    assert await both.receive(both.client) == b"answer"
    sending.cancel()


async def test_after_a_half_close_of_the_client_the_tcp_relay_still_passes_answers(
    both: Joined,
) -> None:
    """A half-close is passed on after the last byte."""
    await both.send(both.client, b"x" * CHUNK)
    both.client.shutdown(socket.SHUT_WR)
    assert await both.receive_all(both.server) == b"x" * CHUNK
    await both.send(both.server, b"answer")
    assert await both.receive(both.client) == b"answer"
    both.server.close()
    assert await both.receive(both.client) == b""
    await both.has_ended()


async def test_the_tcp_relay_closes_a_client_connection_that_stays_open_after_the_server_closed(
    both: Joined,
) -> None:
    """The client receives the last bytes, and then has some time to close its side."""
    await both.send(both.server, b"last")
    both.server.close()
    assert await both.receive_all(both.client) == b"last"
    await both.has_ended()
