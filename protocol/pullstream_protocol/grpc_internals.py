"""Every use of gRPC's private interfaces, so that one place must follow a change of them.

They are the same in grpcio 1.71, the oldest supported version, and 1.85.
tests/protocol/test_grpc_internals.py names each private attribute, and fails with a newer release
until somebody has run it there. `reads_directly` and `can_park` return False where a part is
missing. Then the callers use gRPC's public interface, which does the same more slowly.

SegregatedCall: a client's call that its reader reads without gRPC's thread.
DeferredReply: a server's call that waits without a thread.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import grpc

from .errors import RpcError

try:
    from grpc import _server
    from grpc._channel import Channel as _PlainChannel
    from grpc._cython import cygrpc  # type: ignore[attr-defined]  # not in its stubs
except ImportError:  # pragma: no cover - another build of gRPC
    _server = None  # type: ignore[assignment]
    cygrpc = None

Metadata = tuple[tuple[str, str], ...]


# ---- client --------------------------------------------------------------------------------------


def reads_directly(channel: grpc.Channel) -> bool:
    """Return whether a SegregatedCall can be made on the channel.

    Only on gRPC's plain channel class: channels with interceptors, and channels of tests, must see
    the call.
    """
    return cygrpc is not None and type(channel) is _PlainChannel


class Status(NamedTuple):
    """The status with which a call has ended."""

    code: int
    details: str
    trailing_metadata: Any


# A response; the status at the end of the call; whether a message was sent.
Event = tuple[bytes | None, Status | None, bool]


class SegregatedCall:
    """A bidirectional call by the interface that gRPC uses for its single-threaded calls.

    Each operation that began leads to one event. The opening is OPENING_OPERATIONS operations.
    After the event of the last operation, `next_event` would crash. One message can be in the
    process of being sent at a time. One thread calls `next_event`; any thread may call `cancel`.
    The caller serializes the other calls.

    Args:
        channel: A channel for which `reads_directly` is true.
        path: The method's path.
        first: The first request, serialized.
        metadata: The call's metadata.

    Raises:
        ValueError: The channel is closed.
    """

    __slots__ = ("_call",)

    OPENING_OPERATIONS = 3

    def __init__(self, channel: Any, path: str, first: bytes, metadata: Metadata) -> None:
        opening = (
            cygrpc.SendInitialMetadataOperation(metadata, 0),
            cygrpc.SendMessageOperation(first, 0),
        )
        self._call = channel._channel.segregated_call(
            0,
            path.encode(),
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

    def receive(self) -> bool:
        """Ask for the next response; return whether the operation began."""
        return bool(self._call.operate((cygrpc.ReceiveMessageOperation(0),), None))

    def send(self, message: bytes) -> bool:
        """Send a serialized request; return whether the operation began."""
        return bool(self._call.operate((cygrpc.SendMessageOperation(message, 0),), None))

    def half_close(self) -> bool:
        """Announce that no more requests follow; return whether the operation began."""
        return bool(self._call.operate((cygrpc.SendCloseFromClientOperation(0),), None))

    def cancel(self) -> None:
        """End the call from this side; its last event has the status CANCELLED."""
        self._call.cancel(cygrpc.StatusCode.cancelled, "Locally cancelled by application!")

    def next_event(self) -> Event:
        """Wait until an operation is done, and return its result."""
        response: bytes | None = None
        status: Status | None = None
        is_sent = False
        for operation in self._call.next_event().batch_operations:
            kind = operation.type()
            if kind == cygrpc.OperationType.receive_message:
                # None when no more responses follow.
                response = operation.message()
            elif kind == cygrpc.OperationType.receive_status_on_client:
                status = _status(operation)
            elif kind == cygrpc.OperationType.send_message:
                is_sent = True
        return response, status, is_sent


def _status(operation: Any) -> Status:
    details = operation.details()
    text = details.decode("utf-8", "replace") if isinstance(details, bytes) else details
    return Status(operation.code(), text, operation.trailing_metadata())


def close_unavailable(channel: grpc.Channel, why: str) -> None:
    """Close a channel. Its calls end with UNAVAILABLE and this text, if that is possible.

    gRPC ends them with CANCELLED, like calls that the user has cancelled.
    """
    plain: Any = channel
    while type(plain) is not _PlainChannel and hasattr(plain, "_channel"):
        # Interceptors wrap a channel.
        plain = plain._channel
    if cygrpc is not None and type(plain) is _PlainChannel:
        plain._channel.close(cygrpc.StatusCode.unavailable, why)
    channel.close()


# ---- server --------------------------------------------------------------------------------------


def can_park(context: grpc.ServicerContext) -> bool:
    """Return whether the call of this context can be a DeferredReply instead of blocking.

    It cannot if a private part of gRPC is missing, or if an interceptor has created another kind of
    context.
    """
    try:
        return (
            type(context) is _server._Context
            and callable(_server._status)
            and context._rpc_event.call is not None
            and type(context._state.condition) is threading.Condition
        )
    except AttributeError:
        return False


class DeferredReply:
    """A call whose handler has returned. Any thread may answer it, once, without blocking.

    Normally a handler of a `grpc.server` returns when it has the response, so each waiting call
    takes a thread of the server's pool. But a handler of a response stream may return at once and
    respond later, if it is marked as `experimental_non_blocking`. On the wire, a stream of one
    response is the same as the response of a unary call.

    gRPC passes such a handler a function for sending responses, which has two disadvantages: it
    blocks until the network has accepted the response, and it keeps 0.7 KiB of data about the call
    while the call waits. So this class takes the two objects that a response needs from the call's
    context, and passes them to the function with which gRPC answers unary calls. That function does
    not block.

    Args:
        context: A context for which `can_park` is true.
    """

    # gRPC determines the name `call`: it reads this object as if it were the call's event.
    __slots__ = ("_state", "call")

    def __init__(self, context: Any) -> None:
        self._state = context._state
        self.call = context._rpc_event.call
        condition = self._state.condition
        with condition:
            # Nothing waits on this condition any more, so drop its bound methods and its list of
            # waiters. They take 0.9 KiB per call.
            condition._waiters = condition._release_save = condition._acquire_restore = ()

    @property
    def is_active(self) -> bool:
        """Whether the call still waits: it is neither answered nor cancelled."""
        return self._context().is_active()

    def answer(self, response: bytes) -> None:
        """Respond with a serialized message. Has no effect if the call was cancelled."""
        _server._status(self, self._state, response)

    def fail(self, error: RpcError) -> None:
        """End the call with an error. Has no effect if the call was cancelled."""
        context = self._context()
        context.set_code(error.grpc_status_code)
        context.set_details(error.message)
        _server._status(self, self._state, None)

    def _context(self) -> grpc.ServicerContext:
        return _server._Context(self, self._state, None)
