"""Handlers of the Channels service for a `grpc.aio` server.

For a `grpc.server`, see thread_handlers.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from pullstream_protocol.errors import RpcError, status_of
from pullstream_protocol.long_poll import LongPollCall, longest_wait
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.rpcs import BY_METHOD, CHANNELS

from .session import Poll
from .shared_core import SharedChannelCore

AioContext = grpc.aio.ServicerContext[Any, Any]


def aio_handlers(core: SharedChannelCore) -> grpc.GenericRpcHandler:
    """Return the handlers for a `grpc.aio` server."""

    async def poll(request: channels.PollRequest, context: AioContext) -> Message:
        try:
            return await long_poll(core, request, context)
        except RpcError as error:
            await context.abort(*status_of(error))

    def answering(method: Callable[[Any], Message]) -> Callable[[Any, AioContext], Any]:
        async def answer(request: Message, context: AioContext) -> Message:
            try:
                return method(request)
            except RpcError as error:
                await context.abort(*status_of(error))

        return answer

    return generic_handler(core, grpc.unary_unary_rpc_method_handler, poll, answering)


def generic_handler(
    core: SharedChannelCore,
    poll_handler: Callable[..., grpc.RpcMethodHandler[Any, Any]],
    poll: Callable[..., Any],
    answering: Callable[[Callable[[Any], Message]], Callable[..., Any]],
) -> grpc.GenericRpcHandler:
    """Return the handlers of the service.

    Args:
        core: Answers the calls.
        poll_handler: gRPC's function that makes a handler from `poll`.
        poll: The function that answers Poll.
        answering: Makes a handler from a function that answers at once.
    """

    def unregister(request: channels.UnregisterRequest) -> Empty:
        core.unregister(request)
        return Empty()

    def publish_failure(request: channels.PublishFailureRequest) -> Empty:
        key = request.key if request.HasField("key") else None
        core.publish_failure(request.channel, key, request.reason)
        return Empty()

    methods = {
        "Commands": answering(core.commands),
        "Unregister": answering(unregister),
        "PublishFailure": answering(publish_failure),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            method, BY_METHOD[name].request.FromString, _serialize
        )
        for name, method in methods.items()
    }
    handlers["Poll"] = poll_handler(poll, BY_METHOD["Poll"].request.FromString, _serialize)
    return grpc.method_handlers_generic_handler(CHANNELS, handlers)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


# ---- waiting -----------------------------------------------------------------------------------


class _LoopWaiter:
    """The `wake` function of a poll: any thread may call it, and the event loop awaits the call."""

    __slots__ = ("_loop", "_thread", "woken")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def __call__(self, poll: Poll) -> None:
        if threading.get_ident() == self._thread:
            self._resolve()
            return
        # RuntimeError: the loop is closed, so no code waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve)

    async def wait(self, seconds: float) -> None:
        """Wait until the poll is woken, for at most `seconds`."""
        timer = self._loop.call_later(seconds, self._resolve)
        try:
            await self.woken
        finally:
            timer.cancel()

    def _resolve(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


async def long_poll(
    core: SharedChannelCore,
    request: channels.PollRequest,
    call: LongPollCall,
    owner: Hashable = None,
) -> encoded.EncodedPollResponse:
    """Begin a poll, wait until it is ready, and return its response.

    Args:
        core: The state of the publisher.
        request: The request.
        call: The context of the call, which has the deadline.
        owner: See ChannelCore.
    """
    waiter = _LoopWaiter()
    poll = core.begin_poll(request, waiter, owner)
    try:
        if not poll.is_ready:
            seconds = longest_wait(call, core.longest_poll)
            # Most callers wait longer than the longest poll, and need no timer.
            if seconds < core.longest_poll:
                await waiter.wait(seconds)
            else:
                await waiter.woken
        return core.finish_poll(poll)
    finally:
        # Has an effect only if the wait was cancelled because the caller is gone.
        core.withdraw_poll(poll)
