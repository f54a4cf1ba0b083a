"""The HTTP server beside gRPC's: on the same port, or on one of its own."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from emulator.feeds import resume_token

from . import handover
from .front import Front
from .listener import Listener

if TYPE_CHECKING:
    from aiohttp import web

MISSING = "the HTTP side needs its extra: pip install 'pullstream[http]'"
NOT_SHARED = "on this system the HTTP side needs a port of its own"

# How long answers under way may take when the server stops, in seconds; and then what of them the
# network has not taken.
STOP_GRACE = 1.0

# How often it is looked whether the network has, in seconds.
_LOOK_EVERY = 0.01


@dataclass(frozen=True)
class Rest:
    """That a broker is to serve HTTP, and how.

    port: one of its own, 0 for any that is free; None for gRPC's.
    shutdown: what `POST /shutdown` calls; None if that is not for a client to do.
    tls: for https instead of http.
    """

    port: int | None = None
    shutdown: Callable[[], None] | None = None
    tls: SSLContext | None = None


def obstacle(options: Rest) -> str | None:
    """What is in the way of serving HTTP so, if anything is."""
    if importlib.util.find_spec("aiohttp") is None:
        return MISSING
    if options.port is None and not hasattr(socket, "AF_UNIX"):
        return NOT_SHARED
    return None


class RestServer:
    """Serves the application that `application` makes.

    aiohttp takes longer to load than all the rest of the broker. So it is loaded, and the
    application made, when the first HTTP connection comes.

    grpc_address: where gRPC has to listen, for a port that both share; None if they do not.

    Args:
        grpc_tls: whether gRPC speaks TLS.

    Raises:
        ValueError: there is an obstacle.
    """

    def __init__(
        self, options: Rest, application: Callable[[], web.Application], *, grpc_tls: bool = False
    ) -> None:
        if found := obstacle(options):
            raise ValueError(found)
        self._tls = options.tls
        self._application = application
        self._runner: web.AppRunner | None = None
        self._loading = asyncio.Lock()
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._port = options.port
        self.grpc_address: str | None = None
        self._front: Front | None = None
        self._listener = Listener(self._serve)
        if options.port is None:
            self.grpc_address = handover.new_address()
            self._front = Front(self.grpc_address, self._serve, tls=grpc_tls)

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port`, or on the port of its own; returns the port.

        Called when gRPC listens at its address.

        Raises:
            OSError: the address cannot be used.
        """
        if self._front is not None:
            return await self._front.start(host, port)
        return await self._listener.start(host, port if self._port is None else self._port)

    async def stop_listening(self) -> None:
        """Take no more connections."""
        if self._front is not None:
            await self._front.stop_listening()
        await self._listener.stop()

    async def stop(self) -> None:
        """End the connections that there are; answers under way may still go."""
        if self._front is not None:
            await self._front.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._drop_connections()

    async def _drop_connections(self) -> None:
        """aiohttp has closed them, but each stays until its client has read what is on its way, and
        with TLS has said that it has."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_GRACE
        while (late := self._open_connections()) and loop.time() < deadline:
            await asyncio.sleep(_LOOK_EVERY)
        for connection in late:
            # Whoever still writes finds that out, and closes it.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if late:
            await asyncio.sleep(_LOOK_EVERY)

    def _open_connections(self) -> list[socket.socket]:
        return [connection for connection in self._connections if connection.fileno() != -1]

    async def _serve(self, connection: socket.socket) -> None:
        runner = await self._ready()
        assert runner.server is not None
        self._connections.add(connection)
        await asyncio.get_running_loop().connect_accepted_socket(
            runner.server, connection, ssl=self._tls
        )

    async def _ready(self) -> web.AppRunner:
        async with self._loading:
            if self._runner is None:
                # Aside, because gRPC calls go on meanwhile.
                web: Any = await asyncio.to_thread(importlib.import_module, "aiohttp.web")
                self._runner = web.AppRunner(
                    self._application(),
                    access_log=None,
                    # A Pull whose caller has gone must not take messages.
                    handler_cancellation=True,
                    shutdown_timeout=STOP_GRACE,
                    # An EventSource comes back with the whole token as its Last-Event-ID.
                    max_field_size=resume_token.MAX_BYTES,
                )
                await self._runner.setup()
        return self._runner
