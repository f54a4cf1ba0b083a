"""One call under way: where faults get at it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from protocol.errors import RpcError
from protocol.rpcs import Kind, Rpc

from .fault import Fault
from .scope import named
from .waiter import Waiter


class StreamClosed(Exception):
    """The broker closes a stream with OK."""


class Call(Waiter):
    """Between a method and its gRPC context; with no fault set it hands everything through.

    active: the faults in force at this moment.
    """

    def __init__(
        self,
        rpc: Rpc,
        context: grpc.aio.ServicerContext[Any, Any],
        active: Callable[[], tuple[Fault, ...]],
    ) -> None:
        super().__init__()
        self.method = rpc.method
        self.is_stream = rpc.kind is Kind.BIDI
        self._writes_many = rpc.kind is Kind.SERVER_STREAM
        self._context = context
        self._active = active
        self._begun = False
        self._request: Any = None
        self._reading: asyncio.Task[Any] | None = None

    def end(self, error: Exception) -> None:
        super().end(error)
        # A stream's reader sits in `read` nearly always; what it raises ends the stream.
        if self._reading is not None:
            self._reading.cancel()

    async def begin(self, request: Any) -> None:
        """A request has come. Raises what refuses it."""
        self._begun = True
        self._request = request
        for fault in self._faults():
            await fault.before(self, request)

    def joined(self, refusal: RpcError) -> RpcError:
        """What to answer when the method refuses some ids of those that a fault has left to it.

        An answer that names some ids tells that all others were carried out, so it names both.
        """
        fault = self.ended
        if not isinstance(fault, RpcError) or not fault.metadata or not refusal.metadata:
            return refusal
        both = {**fault.metadata, **refusal.metadata}
        return type(refusal)(refusal.message, reason=refusal.reason, metadata=both)

    async def finish(self, response: Any) -> None:
        """The one response of a unary call is there. Raises if the caller shall not have it."""
        await self._sending(response)
        self.check()

    @property
    def resources(self) -> tuple[str, ...]:
        """What its request names (of a stream, the first); nothing before one has come."""
        return () if self._request is None else named(self._request)

    def _faults(self) -> list[Fault]:
        return [f for f in self._active() if f.scope.covers(self.method, self.resources)]

    async def _sending(self, response: Any) -> None:
        for fault in self._faults():
            await fault.sending(self, response)

    # ---- as the method's context ---------------------------------------------------------------

    async def read(self) -> Any:
        self.check()
        self._reading = asyncio.current_task()
        try:
            request = await self._context.read()
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            self._reading = None
        if not self._begun and request is not grpc.aio.EOF:
            await self.begin(request)
        return request

    def write(self, response: Any) -> Awaitable[None]:
        if self.ended is None and not self._active():
            return self._context.write(response)
        return self._write(response)

    async def _write(self, response: Any) -> None:
        self.check()
        await self._sending(response)
        if self.ended is None:
            await self._context.write(response)
            for fault in self._faults():
                fault.sent(self, response)
        elif self._writes_many:
            # Nothing else would end it before its next response.
            self.check()

    async def send_initial_metadata(self, metadata: Any) -> None:
        await self._sending(None)
        await self._context.send_initial_metadata(metadata)

    def time_remaining(self) -> float | None:
        return self._context.time_remaining()

    def peer(self) -> str:
        peer: str = self._context.peer()
        return peer
