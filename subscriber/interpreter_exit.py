"""Calls when the interpreter exits, and since Python 3.12 no thread can be started any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from .streaming.dispatcher import Call

# How long such a call may take, in seconds.
_TIMEOUT = 5.0

_threads_are_refused = False


def begins() -> None:
    """The interpreter exits. Finds out whether threads can still be started."""
    global _threads_are_refused
    try:
        threading.Thread(target=lambda: None, daemon=True).start()
    except RuntimeError:
        _threads_are_refused = True


def threads_are_refused() -> bool:
    """Whether no thread can be started any more."""
    return _threads_are_refused


def begin_call(stub: Any, request: Any, **options: Any) -> Call:
    """Begin a unary call; of one that cannot be begun without a thread, wait for the end.

    gRPC answers a call that is begun on a thread of the channel, which it starts with the first
    one. Where it cannot, it counts that call all the same, and closing the channel would wait for
    it for ever: `ServiceClient.close` leaves it open then, as the process ends.
    """
    if not _threads_are_refused:
        try:
            call: Call = stub.future(request, **options)
            return call
        except RuntimeError:
            # Maybe the interpreter has begun to exit, and has not called anybody yet.
            begins()
            if not _threads_are_refused:
                raise
    try:
        stub(request, **{**options, "timeout": _TIMEOUT})
    except grpc.RpcError as error:
        return _EndedCall(error)
    return _EndedCall(None)


class _EndedCall:
    """A call that has been waited for."""

    def __init__(self, error: grpc.RpcError | None) -> None:
        self._error = error

    def add_done_callback(self, callback: Callable[[Call], None]) -> None:
        callback(self)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error

    def cancel(self) -> bool:
        return False
