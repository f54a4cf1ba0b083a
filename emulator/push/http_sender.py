"""The HTTP client of push delivery."""

from __future__ import annotations

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError

from .envelope import Request

# 102 comes before a final answer, and an endpoint that sends it has taken the message.
PROCESSING = 102
SUCCESSES = frozenset({PROCESSING, 200, 201, 202, 204})


class _ProcessingSeen(Exception):
    """The endpoint has answered 102."""


class _Response(aiohttp.ClientResponse):
    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """As it is, but for 102: aiohttp would pass over it, and wait for an answer after it."""
        protocol = connection.protocol
        assert protocol is not None
        message, payload = await protocol.read()
        while 100 <= message.code < PROCESSING - 1:
            message, payload = await protocol.read()
        if message.code == PROCESSING:
            raise _ProcessingSeen
        protocol.feed_data((message, payload))
        return await super().start(connection)


class HttpSender:
    """Posts over connections that it keeps. Belongs to the event loop on which it is made.

    No redirect is followed, no cookie kept, no proxy asked: only the endpoint's own answer counts.
    """

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=_Response,
            timeout=aiohttp.ClientTimeout(),
        )

    async def post(self, request: Request) -> bool:
        try:
            async with self._session.post(
                request.url, data=request.body, headers=request.headers, allow_redirects=False
            ) as response:
                return response.status in SUCCESSES
        except _ProcessingSeen:
            return True
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError):
            # Nobody there, no answer that is HTTP, or a URL that leads nowhere.
            return False

    async def close(self) -> None:
        await self._session.close()
