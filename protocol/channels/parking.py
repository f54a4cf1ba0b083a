"""Calls on a `grpc.server` that wait without a thread.

Its handlers return when they have an answer, so each call that waits takes a thread of its pool.
But the handler of a stream of responses may return at once and answer later, if it is marked as
`experimental_non_blocking`; and on the wire a stream of one response is what the answer of a unary
call is. The function to answer with that such a handler is given does not serve: it keeps its
caller until the network has taken the response, and all there is about the call while that waits,
0.7 KiB. So the two things of a call that its answer needs are taken from its context, and given to
the function that gRPC itself answers unary calls with. It waits for nothing.

None of that is a public interface: the mark, `_Context`, its `_state` and its `_rpc_event.call`,
and `_status`. They are the same in grpcio 1.71, the oldest that is supported, and 1.85. Where one
is missing, or the context is of another kind, as an interceptor may make it, `can_park` says so,
and the call waits on its thread. tests/protocol/channels/test_parking.py tells whether a new
release still has them.
"""

from __future__ import annotations

import threading
from typing import Any

import grpc

from protocol.errors import RpcError

try:
    from grpc import _server
except ImportError:  # pragma: no cover - a gRPC that is built in another way
    _server = None  # type: ignore[assignment]


def can_park(context: grpc.ServicerContext) -> bool:
    """Whether the call of this context may wait as a ParkedCall; else it must on its thread."""
    try:
        return (
            type(context) is _server._Context
            and callable(_server._status)
            and context._rpc_event.call is not None
            and type(context._state.condition) is threading.Condition
        )
    except AttributeError:
        return False


class ParkedCall:
    """A call whose handler returns. It is answered once, from any thread, without waiting.

    Args:
        context: one that `can_park`.
    """

    # `call` has its name from gRPC, to which this stands for the event that has brought the call.
    __slots__ = ("_state", "call")

    def __init__(self, context: Any) -> None:
        self._state = context._state
        self.call = context._rpc_event.call
        condition = self._state.condition
        with condition:
            # What only those need who wait for something of this call, and nobody does any more:
            # 0.9 KiB, though it is empty.
            condition._waiters = condition._release_save = condition._acquire_restore = ()

    @property
    def is_active(self) -> bool:
        """Whether it waits for its answer: it is neither answered nor cancelled."""
        return self._context().is_active()

    def answer(self, response: bytes) -> None:
        """Answer with a serialized message; without effect if it was cancelled."""
        _server._status(self, self._state, response)

    def fail(self, error: RpcError) -> None:
        """End it with an error; without effect if it was cancelled."""
        context = self._context()
        context.set_code(error.grpc_status_code)
        context.set_details(error.message)
        _server._status(self, self._state, None)

    def _context(self) -> grpc.ServicerContext:
        return _server._Context(self, self._state, None)
