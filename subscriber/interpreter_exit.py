"""Calls when the interpreter exits, and, as on Python 3.12, no thread can be started any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from .streaming.dispatcher import Call

# How long such a call may take, in seconds.
_TIMEOUT = 5.0


def threads_are_refused() -> bool:
    """Whether no thread can be started any more: tried, but only once the main thread has ended."""
    if threading.main_thread().is_alive():
        return False
    attempt = threading.Thread(target=lambda: None, daemon=True)
    try:
        attempt.start()
    except RuntimeError:
        return True
    # Not to be left running: the interpreter may be gone the next moment.
    attempt.join()
    return False


def begin_call(stub: Any, request: Any, **options: Any) -> Call:
    """Begin a unary call; of one that cannot be begun without a thread, wait for the end.

    gRPC answers a call that is begun on a thread of the channel, which it starts with the first
    one. Where it cannot, it counts that call all the same, and closing the channel would wait for
    it for ever: `ServiceClient.close` leaves it open then, as the process ends.
    """
    if not threads_are_refused():
        call: Call = stub.future(request, **options)
        return call
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
