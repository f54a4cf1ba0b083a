"""The stream of a watch over HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from aiohttp import web
from google.protobuf.message import Message

from emulator.rest.calls import CallContext, CallerGone
from protocol.errors import RpcError
from protocol.messages import encoded_pb2 as encoded

from . import errors
from .events import event

_HEADERS = {
    "Content-Type": "text/event-stream; charset=UTF-8",
    "Cache-Control": "no-store",
    # nginx and its like must not collect events.
    "X-Accel-Buffering": "no",
}

# What the kernel may hold of a stream that nobody reads, in bytes. By itself it takes megabytes.
SEND_BUFFER_BYTES = 128 * 1024

# How much of an event is written at a time. What aiohttp is given it copies.
_SLICE_BYTES = 64 * 1024


class EventStream(CallContext):
    """Frames go out as server-sent events, each when the one before it has left for the network.

    Nothing is queued: the watch makes its next frame when `write` returns. Belongs to the task that
    serves the request, and is cancelled with it when the client closes the connection.

    response: what the client gets; None before the first frame.

    Args:
        event_of: the text of the event for a frame.
    """

    def __init__(
        self, request: web.Request, event_of: Callable[[encoded.EncodedFrame], str]
    ) -> None:
        self._request = request
        self._event_of = event_of
        self.response: web.StreamResponse | None = None

    async def write(self, frame: Message) -> None:
        """Raises CallerGone when the client is."""
        try:
            if self.response is None:
                await self._open()
            await self._send(self._event_of(cast(encoded.EncodedFrame, frame)).encode())
            # aiohttp waits for nothing as long as the client keeps up: others have their turn.
            await asyncio.sleep(0)
        except ConnectionError as error:
            raise CallerGone from error

    async def fail(self, error: RpcError) -> None:
        """The stream ends early: say why, unless the client has stopped reading."""
        transport = self._request.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()
            return
        told = event("error", errors.content(errors.code_of(error), error.message))
        await self._send(told.encode())

    async def _open(self) -> None:
        transport = self._request.transport
        connection = None if transport is None else transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.response = web.StreamResponse(headers=_HEADERS)
        await self.response.prepare(self._request)

    async def _send(self, text: bytes) -> None:
        assert self.response is not None
        left = memoryview(text)
        while left:
            await self.response.write(left[:_SLICE_BYTES])
            left = left[_SLICE_BYTES:]
