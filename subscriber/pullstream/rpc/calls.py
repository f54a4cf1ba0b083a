"""One streaming pull: the call below a ResumingStream, with two implementations."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from pullstream.runtime.fork_barrier import BARRIER
from pullstream_protocol.errors import from_rpc_error, from_status
from pullstream_protocol.grpc_internals import (
    Event,
    Metadata,
    SegregatedCall,
    Status,
    reads_directly,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

from .local_errors import local_error

_METHOD = BY_METHOD["StreamingPull"]
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class PendingCall(Protocol):
    """The parts of gRPC's future of a unary call that this package uses."""

    def add_done_callback(self, callback: Callable[[PendingCall], None]) -> None:
        """Call `callback` with the future when the call is over, on a thread of gRPC."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the call, after waiting for its end; None if it succeeded."""

    def cancel(self) -> object:
        """End the call without waiting."""


class StreamCall(Protocol):
    """A streaming pull in progress.

    One thread reads it. Any thread may call the other methods, which never wait.
    """

    def __next__(self) -> bytes:
        """Return the next response, not yet parsed.

        Raises:
            StopIteration: The server ended the call with OK.
            RpcError: The call ended with another status.
        """

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        """Send one more request. No effect after the call is over or half-closed."""

    def half_close(self) -> None:
        """Announce that no more requests follow. Idempotent."""

    def cancel(self) -> object:
        """End the call; the reader gets CANCELLED. Idempotent."""


def begin(
    channel: grpc.Channel, first: pubsub.StreamingPullRequest, metadata: Metadata
) -> StreamCall:
    """Begin a streaming pull, as a DirectCall if possible, otherwise as an IteratedCall.

    Raises:
        ValueError: The channel is closed.
    """
    if reads_directly(channel):
        return DirectCall(channel, first, metadata)
    return IteratedCall(channel, first, metadata)


class IteratedCall:
    """A call by gRPC's public interface: one iterator of requests, another of responses.

    gRPC reads the requests on a separate thread. One thread of the channel passes every response to
    its reader.
    """

    def __init__(
        self, channel: grpc.Channel, first: pubsub.StreamingPullRequest, metadata: Metadata
    ) -> None:
        self._requests: queue.SimpleQueue[pubsub.StreamingPullRequest | None] = queue.SimpleQueue()
        self._requests.put(first)
        stub: Any = channel.stream_stream(
            _METHOD.path,
            request_serializer=pubsub.StreamingPullRequest.SerializeToString,
            response_deserializer=None,
        )
        self._call = stub(iter(self._requests.get, None), metadata=metadata)
        # The thread that reads the requests must end with the call.
        self._call.add_done_callback(lambda _: self.half_close())

    def __next__(self) -> bytes:
        try:
            response: bytes = next(self._call)
        except grpc.RpcError as error:
            raise local_error(from_rpc_error(error)) from None
        return response

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        """Queue a request, which gRPC's thread reads."""
        # After a half-close the queue contains None, and gRPC reads nothing after it.
        self._requests.put(request)

    def half_close(self) -> None:
        """End the iterator of requests; its thread ends, too."""
        self._requests.put(None)

    def cancel(self) -> object:
        """End the call; the reader gets CANCELLED."""
        return self._call.cancel()


class DirectCall:
    """A call that the reader reads itself: a SegregatedCall.

    The reader itself waits for the network, while the reader of an IteratedCall waits for another
    thread, which waits for the network. With one message in each response this saves a third of the
    total time, and one thread for each open stream (tests/bench/NOTES.md). `begin`
    uses IteratedCall where this is not possible, and a test checks that both behave alike.

    `next_event` returns each operation that was given to gRPC when it is done. Only `__next__`
    calls it. The last event frees the call, and a further call of `next_event` would crash, so
    `_under_way` counts the operations. gRPC accepts one message to send at a time: a request that
    is sent before the previous send is done waits in `_unsent`. While the reader is paused, no
    event is read. Then at most one ping goes out, and the pings of HTTP/2 keep the connection
    alive.
    """

    def __init__(
        self, channel: Any, first: pubsub.StreamingPullRequest, metadata: Metadata
    ) -> None:
        self._lock = threading.Lock()
        self._under_way = SegregatedCall.OPENING_OPERATIONS
        self._sending = True
        self._unsent: deque[pubsub.StreamingPullRequest] = deque()
        self._half_closed = False
        self._end: Exception | None = None
        self._call = SegregatedCall(channel, _METHOD.path, first.SerializeToString(), metadata)

    def __next__(self) -> bytes:
        with self._lock:
            if self._end is None:
                self._begun(self._call.receive())
        while self._under_way:
            response = self._take(self._next_event())
            if response is not None:
                return response
        raise self._end or StopIteration

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        """Send a request, or keep it until the previous one is sent; a later one replaces it."""
        with self._lock:
            if self._end is None and not self._half_closed:
                # A ping only shows that the client is alive, so one waiting request is enough.
                self._unsent = deque((request,))
                self._send_next()

    def wake(self) -> None:
        """Make the reader leave gRPC, by sending a ping: the end of a send is an event, too."""
        self.send(pubsub.StreamingPullRequest())

    def half_close(self) -> None:
        """Announce the end of the requests when the waiting request, if any, is sent."""
        with self._lock:
            if self._end is None and not self._half_closed:
                self._half_closed = True
                self._send_next()

    def cancel(self) -> None:
        """End the call; the reader gets CANCELLED."""
        self._call.cancel()

    # ---- under the lock ------------------------------------------------------------------------

    def _begun(self, began: bool) -> bool:
        """Count an operation if it began, which it does unless the call is over."""
        self._under_way += began
        return began

    def _send_next(self) -> None:
        if self._sending:
            return
        if self._unsent:
            message = self._unsent.popleft().SerializeToString()
            self._sending = self._begun(self._call.send(message))
        elif self._half_closed:
            self._sending = self._begun(self._call.half_close())

    # ---- the reader ----------------------------------------------------------------------------

    def _next_event(self) -> Event:
        BARRIER.enter(self)
        try:
            return self._call.next_event()
        finally:
            BARRIER.leave(self)

    def _take(self, event: Event) -> bytes | None:
        """Process an event, and return the response that it contains, if any."""
        response, status, is_sent = event
        with self._lock:
            self._under_way -= 1
            if status is not None:
                self._end = _outcome(status)
            if is_sent:
                self._sending = False
                self._send_next()
        return response


def _outcome(status: Status) -> Exception:
    """Return the exception that the reader gets at the end of a call."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.OK:
        return StopIteration()
    return local_error(from_status(code, status.details or code.name, status.trailing_metadata))
