"""One streaming pull: the call below a ResumingStream, in the two ways that gRPC can make it."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Any, Protocol

import grpc

from protocol.errors import from_rpc_error, from_status
from protocol.messages import pubsub_pb2 as pubsub
from protocol.rpcs import BY_METHOD

from .fork_barrier import BARRIER

try:
    from grpc._channel import Channel as _PlainChannel
    from grpc._cython import cygrpc  # type: ignore[attr-defined]  # not in its stubs
except ImportError:  # pragma: no cover - a gRPC that is built in another way
    cygrpc = None

Metadata = tuple[tuple[str, str], ...]

_METHOD = BY_METHOD["StreamingPull"]
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class StreamCall(Protocol):
    """A streaming pull that has begun. One thread reads it; the other methods are for any thread,
    and never wait."""

    def __next__(self) -> bytes:
        """The next response, not parsed yet.

        Raises:
            StopIteration: the server ended the call with OK.
            RpcError: it ended with another status.
        """

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        """Send one more request; without effect once the call is over or half-closed."""

    def half_close(self) -> None:
        """Tell the server that no more requests come. Idempotent."""

    def cancel(self) -> object:
        """End it from our side; the reader gets CANCELLED. Idempotent."""


def begin(
    channel: grpc.Channel, first: pubsub.StreamingPullRequest, metadata: Metadata
) -> StreamCall:
    """Begin a streaming pull: read directly where that can be done, else in gRPC's usual way.

    Raises:
        ValueError: the channel is closed.
    """
    # Exactly gRPC's own: one with interceptors, or of a test, must see the call that it is for.
    if cygrpc is not None and type(channel) is _PlainChannel:
        return DirectCall(channel, first, metadata)
    return IteratedCall(channel, first, metadata)


class IteratedCall:
    """By gRPC's public interface: requests from an iterator, responses from another.

    gRPC reads the requests on a thread of its own, and one thread of the channel hands every
    response to its reader.
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
            raise from_rpc_error(error) from error
        return response

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        # After a half-close there is a None before it, beyond which nobody reads.
        self._requests.put(request)

    def half_close(self) -> None:
        self._requests.put(None)

    def cancel(self) -> object:
        return self._call.cancel()


class DirectCall:
    """By the interface below, that gRPC's own single-threaded calls are made with.

    The reader waits for the network itself, where IteratedCall waits for a thread that waits for
    it. At one message in a response that is a third of all time, and each open stream has a thread
    less (docs/performance.md). The interface is not a public one: `begin` takes the other way where
    it is missing, and a test holds both to the same behaviour.

    Each operation given to gRPC comes back from `next_event` when it is done, in `__next__` only.
    The last event frees the call, and to ask for another after it would be fatal: `_under_way`
    counts them. gRPC takes one message to send at a time, so what is sent before the last one has
    come back waits in `_unsent`. While the reader is paused nothing comes back: then no more than
    one ping goes out, and it is HTTP/2's pings that keep the connection.
    """

    def __init__(
        self, channel: Any, first: pubsub.StreamingPullRequest, metadata: Metadata
    ) -> None:
        self._lock = threading.Lock()
        self._under_way = 3
        self._sending = True
        self._unsent: deque[pubsub.StreamingPullRequest] = deque()
        self._half_closed = False
        self._end: Exception | None = None
        opening = (
            cygrpc.SendInitialMetadataOperation(metadata, 0),
            cygrpc.SendMessageOperation(first.SerializeToString(), 0),
        )
        self._call = channel._channel.segregated_call(
            0,
            _METHOD.path.encode(),
            None,
            None,
            metadata,
            None,
            (
                (opening, None),
                ((cygrpc.ReceiveInitialMetadataOperation(0),), None),
                ((cygrpc.ReceiveStatusOnClientOperation(0),), None),
            ),
            None,
        )

    def __next__(self) -> bytes:
        with self._lock:
            if self._end is None:
                self._operate(cygrpc.ReceiveMessageOperation(0))
        while self._under_way:
            response = self._take(self._next_event())
            if response is not None:
                return response
        raise self._end or StopIteration

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        with self._lock:
            if self._end is None and not self._half_closed:
                # A ping says no more than that we are here: one that waits is enough.
                self._unsent = deque((request,))
                self._send_next()

    def rouse(self) -> None:
        """Let the reader come back from gRPC: a ping that is sent is an event, too."""
        self.send(pubsub.StreamingPullRequest())

    def half_close(self) -> None:
        with self._lock:
            if self._end is None and not self._half_closed:
                self._half_closed = True
                self._send_next()

    def cancel(self) -> None:
        self._call.cancel(cygrpc.StatusCode.cancelled, "Locally cancelled by application!")

    # ---- under the lock ------------------------------------------------------------------------

    def _operate(self, operation: object) -> bool:
        """Begin an operation, unless the call is over."""
        if not self._call.operate((operation,), None):
            return False
        self._under_way += 1
        return True

    def _send_next(self) -> None:
        if self._sending:
            return
        if self._unsent:
            message = self._unsent.popleft().SerializeToString()
            self._sending = self._operate(cygrpc.SendMessageOperation(message, 0))
        elif self._half_closed:
            self._sending = self._operate(cygrpc.SendCloseFromClientOperation(0))

    # ---- the reader ----------------------------------------------------------------------------

    def _next_event(self) -> Any:
        BARRIER.enter(self)
        try:
            return self._call.next_event()
        finally:
            BARRIER.leave(self)

    def _take(self, event: Any) -> bytes | None:
        """What an event brought, if it is a response."""
        response: bytes | None = None
        with self._lock:
            self._under_way -= 1
            for operation in event.batch_operations:
                kind = operation.type()
                if kind == cygrpc.OperationType.receive_message:
                    # None when there are no more.
                    response = operation.message()
                elif kind == cygrpc.OperationType.receive_status_on_client:
                    self._end = _outcome(operation)
                elif kind == cygrpc.OperationType.send_message:
                    self._sending = False
                    self._send_next()
        return response


def _outcome(status: Any) -> Exception:
    """What a call ended with, as its reader gets it."""
    code = _CODES.get(status.code(), grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.OK:
        return StopIteration()
    details = status.details()
    text = details.decode("utf-8", "replace") if isinstance(details, bytes) else details
    return from_status(code, text or code.name, status.trailing_metadata())
