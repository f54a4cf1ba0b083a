"""Handlers of the Channels service for a `grpc.server`. Waiting polls do not occupy threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import Message

from pullstream_protocol.errors import RpcError, status_of
from pullstream_protocol.grpc_internals import can_park
from pullstream_protocol.long_poll import longest_wait
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import encoded_pb2 as encoded

from .handlers import generic_handler
from .poll_responder import ParkedPoll, PollResponder
from .shared_core import SharedChannelCore

# Sends a response; None ends the call.
Send: TypeAlias = "Callable[[encoded.EncodedPollResponse | None], None]"


def thread_handlers(core: SharedChannelCore, answerer: PollResponder) -> grpc.GenericRpcHandler:
    """Return the handlers for a `grpc.server`."""

    def answering(
        method: Callable[[Any], Message],
    ) -> Callable[[Any, grpc.ServicerContext], Message]:
        def answer(request: Message, context: grpc.ServicerContext) -> Message:
            try:
                return method(request)
            except RpcError as error:
                _abort(context, error)

        return answer

    poll = _PollHandler(core, answerer)
    return generic_handler(core, grpc.unary_stream_rpc_method_handler, poll, answering)


class _PollHandler:
    """Accepts polls, and lets the PollResponder answer them. See `DeferredReply`.

    An interceptor may call the handler like any handler of a response stream, or with another kind
    of context. Such a poll waits on its thread.
    """

    __slots__ = ("_answerer", "_core")

    # gRPC reads this attribute. It is on the class and not on the instance, so that functools.wraps
    # does not copy it to a wrapper of the handler. gRPC would then call the wrapper with a third
    # argument that it does not expect.
    experimental_non_blocking = True

    def __init__(self, core: SharedChannelCore, answerer: PollResponder) -> None:
        self._core = core
        self._answerer = answerer

    def __call__(
        self,
        request: channels.PollRequest,
        context: grpc.ServicerContext,
        send: Send | None = None,
    ) -> Iterator[encoded.EncodedPollResponse] | None:
        if send is None:
            return self._wait(request, context)
        if can_park(context):
            self._park(request, context)
            return None
        for response in self._wait(request, context):
            send(response)
        send(None)
        return None

    def _park(self, request: channels.PollRequest, context: grpc.ServicerContext) -> None:
        """Begin a poll, and arrange that the PollResponder learns when it is ready or over."""
        parked = ParkedPoll(context, self._answerer.check)
        longest = self._core.longest_poll
        try:
            parked.poll = self._core.begin_poll(request, parked)
        except RpcError as error:
            _abort(context, error)
        seconds = longest_wait(context, longest)
        # Most callers wait longer than the longest poll, and need no entry in the deadline table.
        if seconds < longest:
            self._answerer.check(parked, seconds)
        if not context.add_callback(parked):
            parked()

    def _wait(
        self, request: channels.PollRequest, context: grpc.ServicerContext
    ) -> Iterator[encoded.EncodedPollResponse]:
        """Wait for the single response of a poll, and yield it."""
        core, woken = self._core, threading.Event()
        try:
            poll = core.begin_poll(request, lambda poll: woken.set())
            try:
                # The end of the call, for any reason, ends the wait too.
                if context.add_callback(woken.set):
                    longest = min(core.longest_poll, threading.TIMEOUT_MAX)
                    woken.wait(longest_wait(context, longest))
                if context.is_active():
                    yield core.finish_poll(poll)
            finally:
                core.withdraw_poll(poll)
        except RpcError as error:
            _abort(context, error)


def _abort(context: grpc.ServicerContext, error: RpcError) -> NoReturn:
    code, text, trailers = status_of(error)
    context.set_trailing_metadata(trailers)
    context.abort(code, text)
    raise AssertionError("abort raises")
