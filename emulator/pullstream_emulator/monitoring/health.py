"""The health of a broker: whether it is ready for requests, for HTTP probes and for gRPC."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from pullstream_protocol.errors import NotFound, RpcError, Unavailable, status_of
from pullstream_protocol.rpcs import RPCS

if TYPE_CHECKING:
    from pullstream_emulator.storage.storage import Storage

# The gRPC health checking protocol: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
SERVICE = "grpc.health.v1.Health"

STOPPING = "The broker is shutting down."
# The broker's log has the details. A probe needs no token, so it does not learn them.
NOT_WRITABLE = "The data directory cannot be written."

# Seconds between two checks of the state for a client that watches it.
_CHECK_EVERY = 1.0

# The empty name stands for the broker as a whole.
_KNOWN = {"", *(rpc.service for rpc in RPCS)}


class Health:
    """Whether a broker is ready: it is not stopping, and its storage can be written.

    Belongs to the broker's event loop.

    Args:
        storage: The broker's storage; None if everything is in memory.
    """

    def __init__(self, storage: Storage | None) -> None:
        self._storage = storage
        self._stopping = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is shutting down."""
        return self._stopping.is_set()

    def obstacle(self) -> str | None:
        """Return why the broker is not ready; None if it is."""
        if self.is_stopping:
            return STOPPING
        if self._storage is not None:
            try:
                self._storage.check_disk()
            except RpcError:
                return NOT_WRITABLE
        return None

    def stop(self) -> None:
        """Report from now on that the broker is shutting down, and end the calls that watch."""
        self._stopping.set()

    async def wait(self, seconds: float) -> None:
        """Wait for this time, but not longer than until the broker begins to stop."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


class HealthHandlers(grpc.GenericRpcHandler):
    """The gRPC health service. Needs the extra `emulator`; without it the service is unknown.

    Its messages are loaded at the first call, because most brokers never need them.
    """

    def __init__(self, health: Health) -> None:
        self._health = health

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method of the health service; None for all others."""
        prefix, _, method = handler_call_details.method.rpartition("/")
        if prefix != f"/{SERVICE}" or method not in ("Check", "Watch"):
            return None
        try:
            from grpc_health.v1 import health_pb2
        except ImportError:
            return None
        self._response = health_pb2.HealthCheckResponse
        codecs = (health_pb2.HealthCheckRequest.FromString, self._response.SerializeToString)
        if method == "Check":
            return grpc.unary_unary_rpc_method_handler(self._check, *codecs)
        return grpc.unary_stream_rpc_method_handler(self._watch, *codecs)

    def _status(self, service: str) -> Any:
        if service not in _KNOWN:
            return self._response(status="SERVICE_UNKNOWN")
        ready = self._health.obstacle() is None
        return self._response(status="SERVING" if ready else "NOT_SERVING")

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service not in _KNOWN:
            await context.abort(*status_of(NotFound(f"unknown service {request.service!r}")))
        return self._status(request.service)

    async def _watch(self, request: Any, context: Any) -> None:
        sent = None
        while True:
            # Read first: the broker can begin to stop while a status is being written, and the
            # client then gets one more status.
            stopping = self._health.is_stopping
            status = self._status(request.service)
            if status != sent:
                await context.write(status)
                sent = status
            if stopping:
                await context.abort(*status_of(Unavailable(STOPPING)))
            await self._health.wait(_CHECK_EVERY)
