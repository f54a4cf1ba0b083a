"""Server of a broker: one event loop that owns the engine, the gRPC server, and the timers."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from pullstream_protocol.errors import Unavailable

from .access import Access
from .access.interceptor import AccessInterceptor
from .broker import Broker, ServerHooks
from .due_timer import DueTimer
from .faults import Faults
from .faults.relay import Relay
from .monitoring import health
from .monitoring.access_log import AccessLogInterceptor
from .monitoring.health import Health, HealthHandlers
from .monitoring.loop_delay import LoopDelay
from .net.listener import addresses_of
from .push.delivery import PushDelivery
from .rest.server import Rest, RestServer
from .services.handlers import UnknownMethods, generic_handlers
from .services.reflection import ReflectionHandlers

if TYPE_CHECKING:
    from aiohttp import web

# A Publish request may have 10 MB. Larger ones are received too, to be refused with a clear text.
MAX_RECEIVE_BYTES = 20 * 1024 * 1024
MAX_PORT = 65535

# Most calls of one connection that are open at the same time. Google's service allows 100.
MAX_STREAMS_PER_CONNECTION = 300

# Most bytes of the metadata of a call, as HTTP/2 counts them. By default gRPC refuses calls with
# more at random, up to twice as many.
MAX_METADATA_BYTES = 8 * 1024

# Default time for a client to send a preface, a request's head or its body, in seconds.
DEFAULT_RECEIVE_TIMEOUT = 60.0

# Time for active calls to end when the server stops, in seconds.
STOP_GRACE = 1.0

# The server pings a silent client after this many seconds, and ends its connection if there is no
# answer within this many more. Until then, the messages that go to its streams reach nobody.
PING_AFTER = 20.0
PONG_WITHIN = 20.0

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    ("grpc.max_send_message_length", -1),
    # Two brokers must not share a port by accident.
    ("grpc.so_reuseport", 0),
    # Official clients ping every 30 s; without this the server treats their pings as an attack.
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Pings of the server itself need no data in between.
    ("grpc.http2.max_pings_without_data", 0),
    # After a broadcast, thousands of listeners poll again at the same moment. gRPC cancels calls
    # that are not yet being served above this number; its default is 1,000.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 20_000),
    # A client waits with further calls. Without a limit one connection that begins calls and resets
    # them at once fills the queue of calls that are not yet served, and other clients wait for it
    # (CVE-2023-44487). gRPC counts a reset call until it has left this queue.
    ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
)


def _keepalive() -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.keepalive_time_ms", int(PING_AFTER * 1000)),
        ("grpc.keepalive_timeout_ms", int(PONG_WITHIN * 1000)),
        # gRPC waits for the longer of the two while the client sends nothing.
        ("grpc.http2.ping_timeout_ms", int(PONG_WITHIN * 1000)),
    )


class Server:
    """Serves one broker on one port. Every method runs on one event loop, its only owner.

    Args:
        broker: The broker to serve.
        credentials: Serve TLS with these; None serves plaintext.
        interceptors: Called for every RPC, after the check of access.
        faults: Faults to apply to calls.
        access: Checks the callers' tokens; None admits all callers.
        rest: Options for HTTP/JSON; None serves gRPC only.
        receive_timeout: Time for a client to send a preface, a request's head or its body, in
            seconds.
        access_log: Whether to log each call.

    Attributes:
        http_port: The port for HTTP; None until HTTP is served.
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
        receive_timeout: float = DEFAULT_RECEIVE_TIMEOUT,
        access_log: bool = False,
    ) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._clock = broker.clock
        self._faults = faults or Faults(broker.clock)
        self._relay = Relay(self._faults.relaying) if self._faults.relayed else None
        self._push = PushDelivery(broker.engine, broker.clock, on_answer=broker.history.pushed)
        self._credentials = credentials
        # No interceptor without tokens, so that calls do not pay for it.
        checks: tuple[grpc.aio.ServerInterceptor, ...] = ()
        if access is not None:
            # Probes have no token, and the answer reveals nothing else.
            checks = (AccessInterceptor(access, open_services=[health.SERVICE]),)
        log = (AccessLogInterceptor(),) if access_log else ()
        self._interceptors = (*log, *checks, *interceptors)
        self._access_log = access_log
        self._access = access
        self._rest_options = rest
        self._receive_timeout = receive_timeout
        self._loop_delay = LoopDelay()
        self._rest: RestServer | None = None
        if rest is not None:
            self._rest = RestServer(rest, self._application, receive_timeout)
        self.http_port: int | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on `host:port` and return the port (0 picks a free one).

        Raises:
            OSError: The address cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._health = Health(self._broker.storage)
        self._broker.threads.open()
        await self._refuse_taken(host, port)
        # gRPC counts TLS, HTTP/2's preface and the first settings frame as the handshake.
        handshake = ("grpc.server_handshake_timeout_ms", math.ceil(self._receive_timeout * 1000))
        self._grpc = grpc.aio.server(
            interceptors=self._interceptors, options=(*_OPTIONS, *_keepalive(), handshake)
        )
        self._grpc.add_generic_rpc_handlers(
            (
                *generic_handlers(
                    *self._broker.services, faults=self._faults, storage=self._broker.storage
                ),
                HealthHandlers(self._health),
                ReflectionHandlers(),
                UnknownMethods(),
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
        channels = self._broker.channels
        self._sweeps = DueTimer(self._clock, channels.next_due, channels.advance)
        routers = self._broker.dependents.routers
        self._broker.hooks = ServerHooks(
            engine_due=self._timer.expect,
            channels_due=self._sweeps.expect,
            push_changed=self._push.follow_config,
            more_to_forward=partial(self._loop.call_soon, routers.work),
        )
        routers.work()
        self._push.start()
        self._loop_delay.start()
        return bound

    async def _listen(self, host: str, port: int) -> int:
        """Serve gRPC on `host:port`, and HTTP if requested; return the port."""
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

        gRPC would accept the remaining addresses (`localhost` has two), and clients would reach
        one broker or the other.
        """
        found = await addresses_of(host, port)
        for family, kind, protocol, _, address in found if port else ():
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":
                    # Allows ports whose connections have just ended.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise OSError(
                            f"cannot listen on {host}:{port}: the port is in use"
                        ) from error

    async def stop(self) -> None:
        """End every call at once (callers get UNAVAILABLE) and free the port."""
        self._health.stop()
        self._loop_delay.stop()
        self._broker.hooks = ServerHooks()
        self._timer.close()
        self._sweeps.close()
        if self._rest is not None:
            await self._rest.stop_listening()
        await self._push.stop()
        # Active calls end by themselves with UNAVAILABLE, after which official clients reconnect.
        # If gRPC ended them, it would be with CANCELLED, which makes these clients give up the
        # subscription.
        reason = Unavailable("The broker is shutting down.")
        self._broker.disconnect(reason)
        self._broker.threads.close(reason)
        self._faults.end_calls(reason)
        await self._grpc.stop(grace=STOP_GRACE)
        if self._rest is not None:
            await self._rest.stop()
        if self._relay is not None:
            await self._relay.stop()

    def _application(self) -> web.Application:
        # Imported late, because it loads aiohttp.
        from .rest.app import application

        options = self._rest_options
        assert options is not None
        return application(
            self._broker,
            self._faults,
            self._access,
            options.shutdown,
            options.foreign_pages(),
            self._health,
            self._loop_delay,
            access_log=self._access_log,
            console=options.console,
        )
