"""The service Channels on a gRPC server: on an event loop, or on the server's threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from protocol.errors import RpcError
from protocol.messages import channels_pb2 as channels
from protocol.messages import encoded_pb2 as encoded
from protocol.rpcs import BY_METHOD, CHANNELS
from protocol.waiting import Call, longest_wait

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

    return _generic_handler(publisher, poll, answering)


def thread_handlers(publisher: ChannelPublisher) -> grpc.GenericRpcHandler:
    """For a `grpc.server`."""

    def poll(request: channels.PollRequest, context: grpc.ServicerContext) -> Message:
        try:
            return _wait_for_poll(publisher, request, context)
        except RpcError as error:
            _abort(context, error)

    def answering(
        method: Callable[[Any], Message],
    ) -> Callable[[Any, grpc.ServicerContext], Message]:
        def answer(request: Message, context: grpc.ServicerContext) -> Message:
            try:
                return method(request)
            except RpcError as error:
                _abort(context, error)

        return answer

    return _generic_handler(publisher, poll, answering)


def _abort(context: grpc.ServicerContext, error: RpcError) -> NoReturn:
    context.abort(error.grpc_status_code, error.message)
    raise AssertionError("abort raises")


def _generic_handler(
    publisher: ChannelPublisher,
    poll: Callable[..., Any],
    answering: Callable[[Callable[[Any], Message]], Callable[..., Any]],
) -> grpc.GenericRpcHandler:
    def unregister(request: channels.UnregisterRequest) -> Empty:
        publisher.unregister(request)
        return Empty()

    def publish_failure(request: channels.PublishFailureRequest) -> Empty:
        key = request.key if request.HasField("key") else None
        publisher.publish_failure(request.channel, key, request.reason)
        return Empty()

    methods = {
        "Commands": answering(publisher.commands),
        "Poll": poll,
        "Unregister": answering(unregister),
        "PublishFailure": answering(publish_failure),
    }
    return grpc.method_handlers_generic_handler(
        CHANNELS,
        {
            name: grpc.unary_unary_rpc_method_handler(
                method, BY_METHOD[name].request.FromString, _serialize
            )
            for name, method in methods.items()
        },
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


# ---- waiting -----------------------------------------------------------------------------------


class _LoopWaiter:
    """Something to await on an event loop, until any thread calls `wake`."""

    __slots__ = ("_loop", "_thread", "woken")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
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
    poll = publisher.begin_poll(request, waiter.wake, owner)
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


def _wait_for_poll(
    publisher: ChannelPublisher, request: channels.PollRequest, context: grpc.ServicerContext
) -> encoded.EncodedPollResponse:
    woken = threading.Event()
    poll = publisher.begin_poll(request, woken.set)
    try:
        # The call's end, whatever it is, ends the wait too.
        if not poll.is_ready and context.add_callback(woken.set):
            woken.wait(longest_wait(context, min(publisher.longest_poll, threading.TIMEOUT_MAX)))
        if not context.is_active():
            return encoded.EncodedPollResponse()
        return publisher.finish_poll(poll)
    finally:
        publisher.withdraw_poll(poll)
