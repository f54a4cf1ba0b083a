"""The broker's shell: one event loop that owns the engine, the gRPC server, and the timer."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence

import grpc
import grpc.aio

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import Unavailable

from .engine import Engine
from .faults import Faults
from .faults.relay import Relay
from .services.handlers import generic_handlers
from .services.publisher import PublisherService
from .services.subscriber import SubscriberService

# A Publish request may have 10 MB; a larger one must arrive to be refused with a clear text.
MAX_RECEIVE_BYTES = 20 * 1024 * 1024

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
)


def new_engine(clock: Clock = SYSTEM_CLOCK) -> Engine:
    """An empty engine on `clock`. It may be handed from one Server to the next, with its state."""
    return Engine(wall=clock.now, monotonic=clock.monotonic)


class Server:
    """Serves one engine on one port. Every method runs on one event loop, its only owner."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock = SYSTEM_CLOCK,
        credentials: grpc.ServerCredentials | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        faults: Faults | None = None,
    ) -> None:
        self._engine = engine
        self._faults = faults or Faults(clock)
        self._relay = Relay(self._faults.relaying) if self._faults.relayed else None
        self._clock = clock
        self._credentials = credentials
        self._interceptors = tuple(interceptors)
        self._timer: asyncio.TimerHandle | None = None

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
                PublisherService(self._engine),
                SubscriberService(self._engine),
                faults=self._faults,
            )
        )
        if self._relay is None:
            bound = self._bind(host, port)
        else:
            broker_port = self._bind("127.0.0.1", 0)
            bound = await self._relay.start(host, port, broker_port)
        await self._grpc.start()
        self._engine.on_due = lambda due: self._arm()
        self._clock.add_waker(self.catch_up)
        self._arm()
        return bound

    def _bind(self, host: str, port: int) -> int:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
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
        self._clock.remove_waker(self.catch_up)
        self._engine.on_due = lambda due: None
        if self._timer is not None:
            self._timer.cancel()
        # Calls under way end by themselves. Cut off they would end with CANCELLED, for which
        # official clients give up a subscription; after UNAVAILABLE they come back.
        reason = Unavailable("The broker is shutting down.")
        self._engine.disconnect(reason)
        self._faults.end_calls(reason)
        await self._grpc.stop(grace=STOP_GRACE)
        if self._relay is not None:
            await self._relay.stop()

    def catch_up(self) -> None:
        """Let the engine do what is due by now; when called from another thread, wait for it."""
        if self._on_loop():
            self._advance()
        else:
            asyncio.run_coroutine_threadsafe(self._advance_soon(), self._loop).result()

    async def _advance_soon(self) -> None:
        self._advance()

    def _on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _advance(self) -> None:
        self._engine.advance()
        self._arm()

    def _arm(self) -> None:
        """Wake up for the next due moment; a manual clock wakes us itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay = self._clock.timeout(self._engine.next_due())
        if delay is not None:
            self._timer = self._loop.call_later(delay, self._advance)
