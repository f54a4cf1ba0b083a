"""The HTTP server, on the same port as gRPC or on a separate one."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import socket
import traceback
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from pullstream_emulator.console import ConsoleMode
from pullstream_emulator.net.listener import Listener
from pullstream_emulator.net.port_mux import PortMux, new_address

from .foreign_pages import ForeignPages

if TYPE_CHECKING:
    from aiohttp import web

    from .http_server import HttpServer

_log = logging.getLogger("pullstream.emulator")

MISSING = "serving HTTP needs aiohttp and msgspec: pip install 'pullstream[http]'"
NOT_SHARED = "this system cannot share one port between gRPC and HTTP: give HTTP a separate port"

# Time for responses to reach their clients when the server stops, in seconds.
STOP_GRACE = 1.0

# Interval between checks whether they have, in seconds.
_POLL_INTERVAL = 0.01


@dataclass(frozen=True)
class Rest:
    """Options for serving HTTP.

    Attributes:
        port: Separate port for HTTP; 0 picks a free one. None shares gRPC's port.
        shutdown: Called by `POST /shutdown`; None if clients must not stop the broker.
        tls: Serve https instead of http, with this context, or with the one that this function
            returns for each connection.
        allow_hosts: Further names of the broker: docs/security.md.
        allow_origins: Sites whose pages may use the broker: docs/security.md.
        certificate_names: The host names in the broker's certificate.
        console: The mode of the console at /console/; None for no console.

    Raises:
        ValueError: A name or a site is invalid.
    """

    port: int | None = None
    shutdown: Callable[[], None] | None = None
    tls: SSLContext | Callable[[], SSLContext] | None = None
    allow_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()
    certificate_names: Collection[str] = ()
    console: ConsoleMode | None = "full"

    def __post_init__(self) -> None:
        self.foreign_pages()

    def foreign_pages(self) -> ForeignPages:
        """Return the check that refuses the requests of foreign web pages."""
        return ForeignPages(self.allow_hosts, self.allow_origins, self.certificate_names)


def obstacle(options: Rest) -> str | None:
    """Return why HTTP cannot be served with these options; None if it can."""
    if any(importlib.util.find_spec(module) is None for module in ("aiohttp", "msgspec")):
        return MISSING
    if options.port is None and not hasattr(socket, "AF_UNIX"):
        return NOT_SHARED
    return None


class RestServer:
    """Serves the application that `application` returns.

    aiohttp takes longer to load than the rest of the broker. It is therefore loaded, and the
    application created, at the first HTTP connection.

    Args:
        options: The options.
        application: Creates the application.
        timeout: Time for a client to send the bytes that show its protocol, then a request's
            head, then its body, in seconds. A connection that takes longer is closed.

    Attributes:
        grpc_address: Address on which gRPC must listen if both share a port; None otherwise.

    Raises:
        ValueError: HTTP cannot be served with these options.
    """

    def __init__(
        self, options: Rest, application: Callable[[], web.Application], timeout: float
    ) -> None:
        if problem := obstacle(options):
            raise ValueError(problem)
        self._options = options
        self._timeout = timeout
        self._application = application
        self._http: HttpServer | None = None
        self._loading = asyncio.Lock()
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        # Tasks for connections that aiohttp does not have yet.
        self._tasks: set[asyncio.Task[None]] = set()
        self.grpc_address: str | None = None
        self._front: PortMux | None = None
        self._listener = Listener(self._take)
        if options.port is None:
            self.grpc_address = new_address()
            self._front = PortMux(self.grpc_address, self._take, timeout)

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port`, or on the separate port; return the port.

        Called when gRPC listens at its address.

        Raises:
            OSError: The address cannot be used.
        """
        if self._front is not None:
            return await self._front.start(host, port)
        own = self._options.port
        return await self._listener.start(host, port if own is None else own)

    async def stop_listening(self) -> None:
        """Accept no more connections, and close those not served yet."""
        if self._front is not None:
            self._front.stop_listening()
        self._listener.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """End the open connections; active responses may finish."""
        if self._front is not None:
            self._front.stop()
        if self._http is not None:
            await self._http.stop()
        await self._drop_connections()

    async def _drop_connections(self) -> None:
        """Wait for the connections that aiohttp has closed, then end the rest.

        Such a connection stays open until its client has read the remaining bytes and, with TLS,
        has confirmed the end.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_GRACE
        while (late := self._open_connections()) and loop.time() < deadline:
            await asyncio.sleep(_POLL_INTERVAL)
        for connection in late:
            # After this, writing fails in the connection's owner, which then closes it.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if late:
            await asyncio.sleep(_POLL_INTERVAL)

    def _open_connections(self) -> list[socket.socket]:
        return [connection for connection in self._connections if connection.fileno() != -1]

    def _take(self, connection: socket.socket) -> None:
        def served(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            # The task may have been cancelled before its first step.
            if task.cancelled():
                connection.close()

        task = asyncio.ensure_future(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(served)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            http = await self._ready()
            self._connections.add(connection)
            tls = self._options.tls
            if callable(tls):
                tls = tls()
            await asyncio.get_running_loop().connect_accepted_socket(
                http.protocol,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._timeout,
            )
        except OSError as error:
            # The client has gone, or the TLS handshake failed.
            connection.close()
            # The error and the frames of its traceback refer to each other. Without this, thousands
            # of failed handshakes, each with a buffer of 256 KB, stay until Python collects cycles.
            traceback.clear_frames(error.__traceback__)
        except Exception as error:
            connection.close()
            _log.error("a connection failed inside the broker", exc_info=error)

    async def _ready(self) -> HttpServer:
        async with self._loading:
            if self._http is None:
                # In a thread, because gRPC calls continue in the meantime.
                module: Any = await asyncio.to_thread(
                    importlib.import_module, "pullstream_emulator.rest.http_server"
                )
                http: HttpServer = module.HttpServer(self._application(), self._timeout)
                await http.start()
                self._http = http
        return self._http
