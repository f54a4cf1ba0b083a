"""The service Channels on a gRPC server: on an event loop; on threads see thread_handlers.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from protocol.errors import RpcError
from protocol.messages import channels_pb2 as channels
from protocol.messages import encoded_pb2 as encoded
from protocol.rpcs import BY_METHOD, CHANNELS
from protocol.waiting import Call, longest_wait

from .session import Poll

if TYPE_CHECKING:
    from .publisher import ChannelPublisher

AioContext = grpc.aio.ServicerContext[Any, Any]


def aio_handlers(publisher: ChannelPublisher) -> grpc.GenericRpcHandler:
    """For a `grpc.aio` server."""

    async def poll(request: channels.PollRequest, context: AioContext) -> Message:
        try:
            return await long_poll(publisher, request, context)
        except RpcError as error:
            await context.abort(error.grpc_status_code, error.message)

    def answering(method: Callable[[Any], Message]) -> Callable[[Any, AioContext], Any]:
        async def answer(request: Message, context: AioContext) -> Message:
            try:
                return method(request)
            except RpcError as error:
                await context.abort(error.grpc_status_code, error.message)

        return answer

    return generic_handler(publisher, grpc.unary_unary_rpc_method_handler, poll, answering)


def generic_handler(
    publisher: ChannelPublisher,
    poll_handler: Callable[..., grpc.RpcMethodHandler[Any, Any]],
    poll: Callable[..., Any],
    answering: Callable[[Callable[[Any], Message]], Callable[..., Any]],
) -> grpc.GenericRpcHandler:
    """`answering` makes a handler of what answers at once, `poll_handler` gRPC's form of `poll`."""

    def unregister(request: channels.UnregisterRequest) -> Empty:
        publisher.unregister(request)
        return Empty()

    def publish_failure(request: channels.PublishFailureRequest) -> Empty:
        key = request.key if request.HasField("key") else None
        publisher.publish_failure(request.channel, key, request.reason)
        return Empty()

    methods = {
        "Commands": answering(publisher.commands),
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
    """Something to await on an event loop, until any thread calls it: it is what wakes a poll."""

    __slots__ = ("_loop", "_thread", "woken")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def __call__(self, poll: Poll) -> None:
        if threading.get_ident() == self._thread:
            self._resolve()
            return
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve)

    async def wait(self, seconds: float) -> None:
        """For so long at most."""
        timer = self._loop.call_later(seconds, self._resolve)
        try:
            await self.woken
        finally:
            timer.cancel()

    def _resolve(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


async def long_poll(
    publisher: ChannelPublisher,
    request: channels.PollRequest,
    call: Call,
    owner: Hashable = None,
) -> encoded.EncodedPollResponse:
    """A poll from its beginning to its answer, which may be a long time. `owner`: see Hub."""
    waiter = _LoopWaiter()
    poll = publisher.begin_poll(request, waiter, owner)
    try:
        if not poll.is_ready:
            seconds = longest_wait(call, publisher.longest_poll)
            # Most callers wait longer than any poll takes: ten thousand timers are not made.
            if seconds < publisher.longest_poll:
                await waiter.wait(seconds)
            else:
                await waiter.woken
        return publisher.finish_poll(poll)
    finally:
        # Cancelled: the caller is gone.
        publisher.withdraw_poll(poll)
