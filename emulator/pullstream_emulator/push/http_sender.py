"""The HTTP client for push delivery."""

from __future__ import annotations

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError

from .envelope import PushAnswer, PushRequest

# 102 precedes a final response. An endpoint that sends it has accepted the message.
PROCESSING = 102
SUCCESSES = frozenset({PROCESSING, 200, 201, 202, 204})


class _ProcessingSeen(Exception):
    """The endpoint has sent status 102."""


class _Response(aiohttp.ClientResponse):
    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Handle 102 as a response: aiohttp would skip it and wait for the final response."""
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
    """Posts requests over persistent connections. Belongs to one event loop.

    Redirects are not followed, cookies not stored, and proxies not used: only the endpoint's own
    response counts.
    """

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=_Response,
            timeout=aiohttp.ClientTimeout(),
        )

    async def post(self, request: PushRequest) -> PushAnswer:
        """Post a request; an unreachable endpoint or an invalid response is not an acceptance."""
        try:
            async with self._session.post(
                request.url, data=request.body, headers=request.headers, allow_redirects=False
            ) as response:
                text = f"{response.status} {response.reason or ''}".rstrip()
                return PushAnswer(response.status in SUCCESSES, text)
        except _ProcessingSeen:
            return PushAnswer(True, f"{PROCESSING} Processing")
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            # The endpoint is unreachable, its response is not HTTP, or the URL is invalid.
            return PushAnswer(False, str(error) or type(error).__name__)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
