"""The HTTP server stops, whoever is on the line."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from emulator.access import Tls
from emulator.rest.server import Rest, RestServer
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.wire import PATIENCE


@pytest.fixture(scope="module")
def identity() -> Identity:
    return new_identity("broker")


@pytest.fixture(params=["plain", "tls"])
def tls(
    request: pytest.FixtureRequest, identity: Identity, tmp_path: Path
) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """What the server and its client speak TLS with, if they do."""
    if request.param == "plain":
        return None
    server = Tls(*identity.write(tmp_path)).context()
    return server, ssl.create_default_context(cadata=identity.certificate.decode())


async def stop_while_it_answers(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None, *, reads: bool
) -> tuple[int, bytes]:
    """An answer is made that does not fit on its way to the client, and the server stops.

    Returns:
        The descriptor of the server's side of that connection, and what its client got.
    """
    answered = asyncio.get_running_loop().create_future()

    async def answer(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        response = web.StreamResponse()
        await response.prepare(request)
        while not transport.get_write_buffer_size():
            await response.write(bytes(16 * 1024))
        answered.set_result(transport.get_extra_info("socket"))
        await response.write(b"the end")
        return response

    def ask(port: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
        if tls is not None:
            connection = tls[1].wrap_socket(connection, server_hostname="127.0.0.1")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection

    application = web.Application()
    application.router.add_get("/", answer)
    server = RestServer(Rest(port=0, tls=None if tls is None else tls[0]), lambda: application)
    port = await server.start("127.0.0.1", 0)
    with await asyncio.to_thread(ask, port) as connection:
        its_socket = await asyncio.wait_for(answered, PATIENCE)
        await server.stop_listening()
        got = asyncio.create_task(asyncio.to_thread(all_of, connection)) if reads else None
        await server.stop()
        descriptor = its_socket.fileno()
        return descriptor, b"" if got is None else await got


def all_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_connection_of_a_client_that_takes_nothing_is_closed(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None,
) -> None:
    """It would stay until the client has read all of it: for good, if the loop goes first."""
    descriptor, _ = asyncio.run(stop_while_it_answers(tls, reads=False))
    assert descriptor == -1


def test_a_client_that_reads_gets_the_end_of_its_answer(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None,
) -> None:
    descriptor, got = asyncio.run(stop_while_it_answers(tls, reads=True))
    assert descriptor == -1
    assert b"the end" in got[-100:]
