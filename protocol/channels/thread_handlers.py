"""The service Channels on a `grpc.server`: its threads answer, and none waits for a poll."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import Message

from protocol.errors import RpcError
from protocol.messages import channels_pb2 as channels
from protocol.messages import encoded_pb2 as encoded
from protocol.waiting import longest_wait

from .answerer import Answerer, ParkedPoll
from .handlers import generic_handler
from .parking import can_park

if TYPE_CHECKING:
    from .publisher import ChannelPublisher

# Sends a response; None ends the call.
Send: TypeAlias = "Callable[[encoded.EncodedPollResponse | None], None]"


def thread_handlers(publisher: ChannelPublisher, answerer: Answerer) -> grpc.GenericRpcHandler:
    """For a `grpc.server`."""

    def answering(
        method: Callable[[Any], Message],
    ) -> Callable[[Any, grpc.ServicerContext], Message]:
        def answer(request: Message, context: grpc.ServicerContext) -> Message:
            try:
                return method(request)
            except RpcError as error:
                _abort(context, error)

        return answer

    poll = _PollHandler(publisher, answerer)
    return generic_handler(publisher, grpc.unary_stream_rpc_method_handler, poll, answering)


class _PollHandler:
    """Takes polls, and lets the answerer answer them. See parking.py.

    An interceptor may call it as it calls any handler of a stream of responses, or with a context
    of its own making; such a poll waits on its thread.
    """

    __slots__ = ("_answerer", "_publisher")

    # What gRPC looks for. Not the instance's: functools.wraps must not copy it to what is wrapped
    # around the handler, which would then be called with a third argument that it does not expect.
    experimental_non_blocking = True

    def __init__(self, publisher: ChannelPublisher, answerer: Answerer) -> None:
        self._publisher = publisher
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
        """Begin a poll, and let whatever becomes of it reach the answerer."""
        parked = ParkedPoll(context, self._answerer.look)
        longest = self._publisher.longest_poll
        try:
            parked.poll = self._publisher.begin_poll(request, parked)
        except RpcError as error:
            _abort(context, error)
        seconds = longest_wait(context, longest)
        # Most callers wait longer than any poll takes: ten thousand times need not be kept.
        if seconds < longest:
            self._answerer.look(parked, seconds)
        if not context.add_callback(parked):
            parked()

    def _wait(
        self, request: channels.PollRequest, context: grpc.ServicerContext
    ) -> Iterator[encoded.EncodedPollResponse]:
        """The one answer of a poll, when it has come."""
        publisher, woken = self._publisher, threading.Event()
        try:
            poll = publisher.begin_poll(request, lambda poll: woken.set())
            try:
                # The call's end, whatever it is, ends the wait too.
                if context.add_callback(woken.set):
                    longest = min(publisher.longest_poll, threading.TIMEOUT_MAX)
                    woken.wait(longest_wait(context, longest))
                if context.is_active():
                    yield publisher.finish_poll(poll)
            finally:
                publisher.withdraw_poll(poll)
        except RpcError as error:
            _abort(context, error)


def _abort(context: grpc.ServicerContext, error: RpcError) -> NoReturn:
    context.abort(error.grpc_status_code, error.message)
    raise AssertionError("abort raises")
