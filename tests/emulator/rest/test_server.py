"""The HTTP server stops in spite of open connections."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from pathlib import Path

import pytest
from aiohttp import web

from pullstream_emulator.access import Tls
from pullstream_emulator.rest.server import Rest, RestServer
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.wire import TIMEOUT


@pytest.fixture(scope="module")
def identity() -> Identity:
    return new_identity("broker")


@pytest.fixture(params=["plain", "tls"])
def tls(
    request: pytest.FixtureRequest, identity: Identity, tmp_path: Path
) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """Return the TLS contexts of the server and its client, or None for plain text."""
    if request.param == "plain":
        return None
    server = Tls(*identity.write(tmp_path)).context()
    return server, ssl.create_default_context(cadata=identity.certificate.decode())


async def stop_while_it_answers(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None, *, reads: bool
) -> tuple[int, bytes]:
    """Stop the server while it sends an answer that is larger than the buffers.

    Returns:
        The descriptor of the server's side of that connection, and the bytes that its client
        received.
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
        connection = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        if tls is not None:
            connection = tls[1].wrap_socket(connection, server_hostname="127.0.0.1")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection

    application = web.Application()
    application.router.add_get("/", answer)
    server = RestServer(
        Rest(port=0, tls=None if tls is None else tls[0]), lambda: application, TIMEOUT
    )
    port = await server.start("127.0.0.1", 0)
    with await asyncio.to_thread(ask, port) as connection:
        its_socket = await asyncio.wait_for(answered, TIMEOUT)
        await server.stop_listening()
        got = asyncio.create_task(asyncio.to_thread(all_of, connection)) if reads else None
        await server.stop()
        descriptor = its_socket.fileno()
        return descriptor, b"" if got is None else await got


def all_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_http_server_closes_the_connection_of_a_client_that_does_not_read(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None,
) -> None:
    """Otherwise the connection would stay open until the client has read everything.

    If the loop ends first, it would stay open for ever.
    """
    descriptor, _ = asyncio.run(stop_while_it_answers(tls, reads=False))
    assert descriptor == -1


def test_a_client_that_reads_slowly_gets_its_whole_answer_while_the_http_server_stops(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None,
) -> None:
    descriptor, got = asyncio.run(stop_while_it_answers(tls, reads=True))
    assert descriptor == -1
    assert b"the end" in got[-100:]


async def fail_handshakes(tls: ssl.SSLContext, count: int) -> int:
    """Return how many of the failed handshakes are still in memory."""
    server = RestServer(Rest(port=0, tls=tls), web.Application, TIMEOUT)
    port = await server.start("127.0.0.1", 0)
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16\x03\x01\x00\x10" + b"x" * 16)
            await asyncio.wait_for(reader.read(), TIMEOUT)
            writer.close()
        return sum(isinstance(one, SSLProtocol) for one in gc.get_objects())
    finally:
        await server.stop_listening()
        await server.stop()


def test_failed_tls_handshakes_with_the_http_server_leave_no_objects_in_memory(
    identity: Identity, tmp_path: Path
) -> None:
    """The test runs while Python's garbage collector is off."""
    tls = Tls(*identity.write(tmp_path)).context()
    gc.collect()
    gc.disable()
    try:
        # The last one may not have been freed yet.
        assert asyncio.run(fail_handshakes(tls, 20)) <= 1
    finally:
        gc.enable()


async def stop_at_once() -> int:
    """Stop a server in the same turn of the loop in which it gets a connection."""
    mine, client = socket.socketpair()
    with mine, client:
        mine.setblocking(False)
        server = RestServer(Rest(port=0), web.Application, TIMEOUT)
        server._take(mine)
        await server.stop_listening()
        await server.stop()
        return mine.fileno()


def test_a_stopping_http_server_closes_a_connection_that_has_not_been_served_yet() -> None:
    """The task of the connection is cancelled before its first step."""
    assert asyncio.run(stop_at_once()) == -1
