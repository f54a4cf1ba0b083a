"""Where no thread can be started: calls that need none, and channels that gRPC cannot close then.

The system refuses threads to a process that has too many, and Python 3.12 to one that ends, from
before its executors are waited for until the very end.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from .streaming.fork_barrier import BARRIER

if TYPE_CHECKING:
    from .rpc import Metadata, Rpcs
    from .streaming.dispatcher import Call

_log = logging.getLogger("pullstream.dispatcher")

# How long a call that is waited for may take, in seconds.
_TIMEOUT = 5.0

# Ids of the channels of `abandon`, which live for ever.
_abandoned: set[int] = set()


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


def start_or_undo(thread: threading.Thread, undo: Callable[[], object]) -> None:
    """Start it; where it is refused, `undo` what was begun for it, and raise RuntimeError."""
    try:
        thread.start()
    except RuntimeError:
        undo()
        raise


def abandon(channel: grpc.Channel) -> None:
    """Let a channel that was refused its thread live as long as the process, unused.

    gRPC answers the calls that were begun on a thread of the channel, which it starts with the
    first one. That it could not, it does not note: nothing that is begun on this channel later is
    answered either, and closing it waits for the first call for ever, as does deallocating it. So
    it gets a reference that nobody gives back, not even a dying interpreter, which empties modules.
    """
    if id(channel) not in _abandoned:
        _abandoned.add(id(channel))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(channel))


def has_its_thread(channel: grpc.Channel) -> bool:
    """Whether calls begun on it are answered, and closing it comes to an end.

    If not, the process's own end closes it as well.
    """
    return id(channel) not in _abandoned and not threads_are_refused()


def begin_or_wait(
    rpcs: Rpcs, method: str, request: Any, timeout: float, metadata: Metadata
) -> Call:
    """Begin a unary call; where there is no thread for that, make it, and wait for its end.

    A refused one may have reached the server all the same, and is made again for its answer: only
    for what may be done twice, as an acknowledgement.
    """
    if has_its_thread(rpcs.channel):
        try:
            call: Call = rpcs.begin(method, request, timeout=timeout, metadata=metadata)
            return call
        except RuntimeError as error:
            # The channel is abandoned now. That a program ends is no news to anybody.
            if "interpreter shutdown" not in str(error):
                _log.warning("%s: acknowledgements are made one at a time from now on", error)
    try:
        with BARRIER.waiting():
            rpcs.stub(method)(request, timeout=min(timeout, _TIMEOUT), metadata=metadata)
    except grpc.RpcError as error:
        return _EndedCall(error)
    return _EndedCall(None)


class _EndedCall:
    """A call that has been waited for."""

    def __init__(self, error: grpc.RpcError | None) -> None:
        self._error = error

    def add_done_callback(self, callback: Any) -> None:
        callback(self)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error

    def cancel(self) -> bool:
        return False
