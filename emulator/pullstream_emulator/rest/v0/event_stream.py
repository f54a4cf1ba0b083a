"""The stream of a watch over HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web
from google.protobuf.message import Message

from pullstream_emulator.rest.rpc_bridge import CallContext, CallerGone
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import encoded_pb2 as encoded

from . import errors
from .events import event

# Headers of a response with server-sent events.
HEADERS = {
    "Content-Type": "text/event-stream; charset=UTF-8",
    # no-transform: a proxy that compresses would collect events until its buffer is full.
    "Cache-Control": "no-store, no-transform",
    # nginx and similar proxies must not buffer events.
    "X-Accel-Buffering": "no",
}

# Send buffer of the kernel for a stream, in bytes. The default for an unread stream is megabytes.
SEND_BUFFER_BYTES = 128 * 1024

# Bytes of an event written at a time, because aiohttp copies the bytes that it is given.
_SLICE_BYTES = 64 * 1024


class EventStream(CallContext):
    """Sends frames as server-sent events, each after the one before it was written to the network.

    There is no queue: the watch builds its next frame when `write` returns. Belongs to the task
    that serves the request, and is cancelled with it when the client closes the connection.

    Args:
        request: The request.
        event_of: Returns the text of the event for a frame.

    Attributes:
        response: The response; None before the first frame.
    """

    def __init__(
        self, request: web.Request, event_of: Callable[[encoded.EncodedFrame], Awaitable[str]]
    ) -> None:
        self._request = request
        self._event_of = event_of
        self.response: web.StreamResponse | None = None

    async def write(self, frame: Message) -> None:
        """Send one frame; raise CallerGone if the client has disconnected."""
        try:
            if self.response is None:
                await self._open()
            # The text has no name here: during a stall it would stay in memory next to its bytes.
            await self._send((await self._event_of(cast(encoded.EncodedFrame, frame))).encode())
            # aiohttp does not wait while the client keeps up, so let other tasks have their turn.
            await asyncio.sleep(0)
        except ConnectionError as error:
            raise CallerGone from error

    async def fail(self, error: RpcError) -> None:
        """End the stream with an error event, unless the client has stopped reading."""
        transport = self._request.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()
            return
        text = event("error", errors.content(errors.code_of(error), error.message))
        await self._send(text.encode())

    async def _open(self) -> None:
        transport = self._request.transport
        connection = None if transport is None else transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.response = web.StreamResponse(headers=HEADERS)
        await self.response.prepare(self._request)

    async def _send(self, text: bytes) -> None:
        assert self.response is not None
        left = memoryview(text)
        while left:
            await self.response.write(left[:_SLICE_BYTES])
            left = left[_SLICE_BYTES:]
