"""The HTTP client of push delivery, against an endpoint that the test plays on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pullstream_emulator.push.envelope import PushAnswer, PushRequest
from pullstream_emulator.push.sender import HttpSender, url_as_configured

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Endpoint:
    """Plays an endpoint.

    Each connection has a list of answers. The endpoint closes the connection when it has read one
    request more, like a server whose limit for idle connections ends while a request arrives. It
    also closes the connection after an incomplete answer.

    Attributes:
        connections: The answers of the connections to come.
        targets: The request targets that arrived, such as `/push?a=b`.
    """

    def __init__(self, *connections: list[bytes]) -> None:
        self.connections = list(connections)
        self.targets: list[str] = []
        self._open: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = self.connections.pop(0)
        self._open.add(asyncio.create_task(self._serve(answers, reader, writer)))

    async def closed(self) -> None:
        """Wait until the client has closed every connection."""
        await asyncio.gather(*self._open)

    async def _serve(
        self, answers: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for answer in [*answers, b""]:
            try:
                await self._read(reader)
            except asyncio.IncompleteReadError:
                break
            writer.write(answer)
            await writer.drain()
            if not answer.endswith(b"\r\n\r\n"):
                break
        writer.close()
        await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(line for line in head.splitlines() if line.startswith("Content-Length:"))
        await reader.readexactly(int(length.partition(":")[2]))
        self.targets.append(head.split(" ")[1])


@asynccontextmanager
async def posting_to(
    endpoint: Endpoint,
) -> AsyncIterator[Callable[[str], Awaitable[PushAnswer]]]:
    server = await asyncio.start_server(endpoint.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    sender = HttpSender()

    def post(target: str = "/push") -> Awaitable[PushAnswer]:
        return sender.post(PushRequest(f"http://{host}:{port}{target}", {}, b"body"))

    try:
        yield post
    finally:
        await sender.close()
        await endpoint.closed()
        server.close()


def post_twice(endpoint: Endpoint) -> list[PushAnswer]:
    async def run() -> list[PushAnswer]:
        async with posting_to(endpoint) as post:
            return [await post("/push"), await post("/push")]

    return asyncio.run(run())


def test_a_push_request_on_an_idle_connection_closed_by_the_endpoint_is_sent_again() -> None:
    endpoint = Endpoint([OK], [OK])
    assert [answer.is_accepted for answer in post_twice(endpoint)] == [True, True]
    assert len(endpoint.targets) == 3


def test_the_result_of_a_push_request_sent_again_is_the_answer_to_the_second_request() -> None:
    endpoint = Endpoint([OK], [UNAVAILABLE])
    assert post_twice(endpoint)[1] == PushAnswer(False, "503 Service Unavailable")


def test_a_push_request_whose_connection_closes_again_is_not_sent_a_third_time() -> None:
    endpoint = Endpoint([OK], [b""])
    assert post_twice(endpoint)[1] == PushAnswer(False, "Server disconnected")
    assert len(endpoint.targets) == 3


def test_a_push_request_on_a_new_connection_that_closes_without_an_answer_fails() -> None:
    endpoint = Endpoint([b""], [OK])
    assert [answer.is_accepted for answer in post_twice(endpoint)] == [False, True]
    assert len(endpoint.targets) == 2


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_a_push_request_whose_answer_breaks_off_is_not_sent_again(begun: bytes) -> None:
    endpoint = Endpoint([OK, begun], [OK])
    assert post_twice(endpoint)[1] == PushAnswer(False, "the response ended within its head")
    assert len(endpoint.targets) == 2


TARGETS = [
    *("/a%2Fb?c=%2F", "/a/../b/./c", "/a//b", "/push?", "/push?a=b&a=c+d%20e", "/?q={x}|y'\""),
    *("/%7euser/%c3%a4?%3d", "/a;b=c,d@e:f!$&'()*", "/%", "/%zz"),
]


@pytest.mark.parametrize("target", TARGETS)
def test_a_push_request_has_the_configured_path_and_query(target: str) -> None:
    endpoint = Endpoint([OK])

    async def run() -> PushAnswer:
        async with posting_to(endpoint) as post:
            return await post(target)

    assert asyncio.run(run()).is_accepted
    assert endpoint.targets == [target]


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host", "http://host/"),
        ("https://host:8443?a=b", "https://host:8443/?a=b"),
        ("http://host/push#part", "http://host/push"),
        ("http://user:secret@host/a/../b", "http://user:secret@host/a/../b"),
        ("http://[::1]:8080/ä?ö", "http://[::1]:8080/%C3%A4?%C3%B6"),
        ("http://bücher.example/x", "http://xn--bcher-kva.example/x"),
        ("HTTP://Host/Push", "http://host/Push"),
    ],
)
def test_the_url_of_a_push_request_keeps_all_characters_that_http_can_send(
    endpoint: str, url: str
) -> None:
    assert str(url_as_configured(endpoint)) == url
