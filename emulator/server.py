"""The broker's shell: one event loop that owns the engine, the gRPC server, and the timer."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from protocol.errors import Unavailable

from .access import Access
from .access.interceptor import AccessInterceptor
from .broker import Broker
from .due_timer import DueTimer
from .faults import Faults
from .faults.relay import Relay
from .push.delivery import PushDelivery
from .rest.server import Rest, RestServer
from .services.handlers import generic_handlers

if TYPE_CHECKING:
    from aiohttp import web

# A Publish request may have 10 MB; a larger one must arrive to be refused with a clear text.
MAX_RECEIVE_BYTES = 20 * 1024 * 1024
MAX_PORT = 65535

# How long calls under way may take to end when the server stops, in seconds.
STOP_GRACE = 1.0

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    ("grpc.max_send_message_length", -1),
    # Two brokers must not share a port without knowing.
    ("grpc.so_reuseport", 0),
    # Official clients ping every 30 s; without this the server takes their pings for an attack.
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Thousands of listeners poll again at the same moment when all of them have been answered. More
    # calls than this that nobody has begun to serve are cancelled; by default 1,000.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 20_000),
)


class Server:
    """Serves one broker on one port. Every method runs on one event loop, its only owner.

    http_port: where it serves HTTP; None until it does.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        credentials: grpc.ServerCredentials | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        faults: Faults | None = None,
        access: Access | None = None,
        rest: Rest | None = None,
    ) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._clock = broker.clock
        self._faults = faults or Faults(broker.clock)
        self._relay = Relay(self._faults.relaying) if self._faults.relayed else None
        self._push = PushDelivery(broker.engine, broker.clock)
        self._credentials = credentials
        # In nobody's way unless there are tokens to check.
        checks = () if access is None else (AccessInterceptor(access),)
        self._interceptors = (*checks, *interceptors)
        self._access = access
        self._shutdown = None if rest is None else rest.shutdown
        self._rest: RestServer | None = None
        if rest is not None:
            tls = credentials is not None
            self._rest = RestServer(rest, self._application, grpc_tls=tls)
        self.http_port: int | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port`; returns the port (0 picks a free one).

        Raises:
            OSError: the address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        await self._refuse_taken(host, port)
        self._grpc = grpc.aio.server(interceptors=self._interceptors, options=_OPTIONS)
        self._grpc.add_generic_rpc_handlers(
            generic_handlers(
                *self._broker.services, faults=self._faults, storage=self._broker.storage
            )
        )
        try:
            if self._relay is None:
                bound = await self._listen(host, port)
            else:
                broker_port = await self._listen("127.0.0.1", 0)
                bound = await self._relay.start(host, port, broker_port)
        except OSError:
            if self._rest is not None:
                await self._rest.stop_listening()
            await self._grpc.stop(grace=None)
            raise
        self._timer = DueTimer(self._clock, self._engine.next_due, self._engine.advance)
        self._engine.on_due = self._timer.expect
        routers = self._broker.dependents.routers
        routers.on_more = partial(self._loop.call_soon, routers.work)
        routers.work()
        channels = self._broker.channels
        self._sweeps = DueTimer(self._clock, channels.next_due, channels.advance)
        channels.on_due = self._sweeps.expect
        self._push.start()
        return bound

    async def _listen(self, host: str, port: int) -> int:
        """Serve gRPC on `host:port`, and HTTP where it is wanted; returns the port."""
        shared = None if self._rest is None else self._rest.grpc_address
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        bound = self._bind(shared or address)
        await self._grpc.start()
        if self._rest is not None:
            self.http_port = await self._rest.start(host, port)
            if shared is not None:
                bound = self.http_port
        return bound

    def _bind(self, address: str) -> int:
        try:
            if self._credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}") from error

    async def _refuse_taken(self, host: str, port: int) -> None:
        """Raise OSError if `host` is unknown or `port` is in use at any of its addresses.

        gRPC would be content with the other addresses (`localhost` has two), and the two brokers
        would share the clients between them.
        """
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise OSError(f"cannot listen on {host}: {error.strerror}") from error
        for family, kind, protocol, _, address in found if port else ():
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":
                    # Connections that have just ended do not count.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise OSError(
                            f"cannot listen on {host}:{port}: the port is in use"
                        ) from error

    async def stop(self) -> None:
        """End every call at once (UNAVAILABLE to their callers) and free the port."""
        self._engine.on_due = lambda due: None
        self._timer.close()
        self._broker.dependents.routers.on_more = lambda: None
        self._broker.channels.on_due = lambda due: None
        self._sweeps.close()
        if self._rest is not None:
            await self._rest.stop_listening()
        await self._push.stop()
        # Calls under way end by themselves. Cut off they would end with CANCELLED, for which
        # official clients give up a subscription; after UNAVAILABLE they come back.
        reason = Unavailable("The broker is shutting down.")
        self._broker.disconnect(reason)
        self._faults.end_calls(reason)
        await self._grpc.stop(grace=STOP_GRACE)
        if self._rest is not None:
            await self._rest.stop()
        if self._relay is not None:
            await self._relay.stop()

    def _application(self) -> web.Application:
        # Late, because it loads aiohttp.
        from .rest.app import application

        return application(self._broker, self._faults, self._access, self._shutdown)
