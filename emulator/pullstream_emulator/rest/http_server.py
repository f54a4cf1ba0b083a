"""aiohttp's server, with time limits for requests and a log line for malformed ones.

Imported at the first HTTP connection, because it loads aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pullstream_emulator.logs import resume_token

# Time for active responses to finish when the server stops, in seconds.
STOP_GRACE = 1.0

# Longest part of an error text that is logged, in characters.
_LOGGED = 200


class HttpServer:
    """Serves an application on accepted connections.

    Args:
        application: The application.
        timeout: Time for a client to send a request's head, and then its body, and longest idle
            time of a connection between two requests; in seconds.
    """

    def __init__(self, application: web.Application, timeout: float) -> None:
        self._timeout = timeout
        self._new: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        application.middlewares.insert(0, self._limit_body)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_Log(logging.getLogger("pullstream.emulator"), {}),
            # A Pull whose caller has disconnected must not take messages.
            handler_cancellation=True,
            keepalive_timeout=timeout,
            shutdown_timeout=STOP_GRACE,
            # An EventSource reconnects with the whole resume token as its Last-Event-ID.
            max_field_size=resume_token.MAX_BYTES,
        )

    async def start(self) -> None:
        """Set up the application; needed once, before the first connection."""
        await self._runner.setup()

    async def stop(self) -> None:
        """End the connections; active responses have `STOP_GRACE` to finish."""
        await self._runner.cleanup()

    def protocol(self) -> asyncio.Protocol:
        """Return a protocol for one connection."""
        assert self._runner.server is not None
        return _Connection(self._runner.server(), self._made, self._lost)

    def _made(self, handler: web.RequestHandler) -> None:
        # aiohttp's timeout applies between two requests. Old releases have none before the first.
        loop = asyncio.get_running_loop()
        self._new[handler] = loop.call_later(self._timeout, handler.force_close)

    def _lost(self, handler: asyncio.BaseProtocol) -> None:
        if timer := self._new.pop(handler, None):
            timer.cancel()

    @web.middleware
    async def _limit_body(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self._lost(request.protocol)
        if request.content.is_eof():
            return await handler(request)

        def close_if_half_sent() -> None:
            if not request.content.is_eof():
                request.protocol.force_close()

        timer = asyncio.get_running_loop().call_later(self._timeout, close_if_half_sent)
        try:
            return await handler(request)
        finally:
            timer.cancel()


class _Connection(asyncio.Protocol):
    """Forwards all events to aiohttp, and reports the start and the end of the connection."""

    def __init__(
        self,
        handler: web.RequestHandler,
        made: Callable[[web.RequestHandler], None],
        lost: Callable[[web.RequestHandler], None],
    ) -> None:
        self._handler = handler
        self._made = made
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made(self._handler)
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, error: BaseException | None) -> None:
        self._lost(self._handler)
        self._handler.connection_lost(error)


if TYPE_CHECKING:
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    # Python 3.10 does not accept the parameter at run time.
    _LoggerAdapter = logging.LoggerAdapter


class _Log(_LoggerAdapter):
    """aiohttp's log. A malformed request is the client's error: one line, without a traceback."""

    def exception(self, msg: object, *args: object, **options: Any) -> None:
        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError):
            self.warning("malformed HTTP request from %s: %s", args[0], _line(error.message))
        else:
            super().exception(msg, *args, **options)

    def debug(self, msg: object, *args: object, **options: Any) -> None:
        # aiohttp uses this level if the first request has an invalid method.
        if isinstance(options.get("exc_info"), HttpProcessingError):
            self.exception(msg, *args, **options)
        else:
            super().debug(msg, *args, **options)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LOGGED else f"{line[:_LOGGED]}..."
