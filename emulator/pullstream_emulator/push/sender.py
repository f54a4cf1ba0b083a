"""The HTTP client for push delivery."""

from __future__ import annotations

import string
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from yarl import URL

from .envelope import PushAnswer, PushRequest

# 102 precedes a final response. An endpoint that sends it has accepted the message.
PROCESSING = 102
SUCCESSES = frozenset({PROCESSING, 200, 201, 202, 204})

# Characters of a request target that are sent as they are.
_VISIBLE_ASCII = string.ascii_letters + string.digits + string.punctuation


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

    An endpoint may close an idle connection at the moment when a request is sent on it. If a
    connection that was used before ends without a response, the request is repeated once, on a new
    connection.
    """

    def __init__(self) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        self._session = _session(aiohttp.TCPConnector(limit=0), trace)
        self._new_connections = _session(aiohttp.TCPConnector(limit=0, force_close=True))

    async def post(self, request: PushRequest) -> PushAnswer:
        """Post a request; an unreachable endpoint or an invalid response is not an acceptance."""
        connection = SimpleNamespace(is_reused=False)
        try:
            try:
                return await _post(self._session, request, connection)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not connection.is_reused or _response_has_begun(error):
                    raise
            return await _post(self._new_connections, request)
        except _ProcessingSeen:
            return PushAnswer(True, f"{PROCESSING} Processing")
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            # The endpoint is unreachable, its response is not HTTP, or the URL is invalid.
            if _response_has_begun(error):
                return PushAnswer(False, "the response ended within its head")
            # aiohttp describes a broken response on several lines.
            return PushAnswer(False, " ".join(str(error).split()) or type(error).__name__)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
        await self._new_connections.close()


def url_as_configured(endpoint: str) -> URL:
    """Return the URL of an endpoint, whose path and query are sent unchanged.

    yarl would resolve `/../`, decode `%2F` in a query, and drop an empty query. Therefore the whole
    request target is passed as an encoded path. Only characters that are not visible ASCII, which
    HTTP does not allow there, are encoded as UTF-8.
    """
    url, parts = URL(endpoint), urlsplit(endpoint)
    target = endpoint.partition("#")[0].partition("://")[2][len(parts.netloc) :]
    if not target.startswith("/"):
        target = f"/{target}"
    return URL.build(
        scheme=url.scheme,
        authority=url.raw_authority,
        path=quote(target, safe=_VISIBLE_ASCII),
        encoded=True,
    )


def _session(
    connector: aiohttp.TCPConnector, *traces: aiohttp.TraceConfig
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_Response,
        timeout=aiohttp.ClientTimeout(),
        trace_configs=[*traces],
    )


async def _post(
    session: aiohttp.ClientSession,
    request: PushRequest,
    connection: SimpleNamespace | None = None,
) -> PushAnswer:
    async with session.post(
        url_as_configured(request.url),
        data=request.body,
        headers=request.headers,
        allow_redirects=False,
        trace_request_ctx=connection,
    ) as response:
        text = f"{response.status} {response.reason or ''}".rstrip()
        return PushAnswer(response.status in SUCCESSES, text)


async def _note_reuse(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.is_reused = True


def _response_has_begun(error: Exception) -> bool:
    # aiohttp reports the incomplete head of a response instead of a text.
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
