"""The faults of one broker: what a test may ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import BY_CODE, RpcError
from protocol.rpcs import BY_METHOD, Rpc

from .call import Call, StreamClosed
from .fault import Fault
from .kinds import (
    AbortAfter,
    BlackHole,
    ConnectionHole,
    Delay,
    Drop,
    LoseReply,
    Refuse,
    Silence,
    fresh,
)
from .waiter import Waiter

Choice = Callable[[Any], RpcError | None]


class Faults:
    """Makes a broker misbehave, on request.

    A `method` is a name of protocol/rpcs.py, such as "Acknowledge", or "*" for all. A fault acts
    `times` times, or until it is lifted (None, the default). It holds for calls that begin after
    it was set, and for the next responses of open streams. Several faults act in the order in which
    they were set. Each method returns a `Fault`, to lift the fault and to wait until it has acted,
    and raises ValueError for an argument that makes no sense.

    Thread-safe. Belongs to one broker, which may be stopped and started again.

    Args:
        clock: what `delay` goes by.
        relayed: whether connections come through a relay, so that `black_hole` can swallow them.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, relayed: bool = False) -> None:
        self.relayed = relayed
        self._clock = clock
        self._lock = threading.Lock()
        # Replaced and never changed, so that the broker reads it without the lock.
        self._active: tuple[Fault, ...] = ()
        self._calls: set[Call] = set()

    # ---- calls ---------------------------------------------------------------------------------

    def delay(self, method: str, seconds: float, times: int | None = None) -> Fault:
        """Wait before a call is carried out; on a stream, before each of its responses."""
        if seconds < 0:
            raise ValueError(f"seconds must be 0 or more, not {seconds}")
        return self._set(
            Delay(_known(method), seconds, _positive(times), self._clock, self._forget)
        )

    def error(
        self,
        method: str,
        error: RpcError | Choice,
        times: int | None = None,
        with_details: bool = True,
    ) -> Fault:
        """Refuse a call: it has no effect, its caller gets `error`.

        `error` may be a function of the request (of a stream, the first): what it returns, None for
        no fault. It runs on the broker's event loop. If the error's metadata names some of a
        request's ack ids, as exactly-once delivery has it, the request is carried out for the
        others.

        with_details: also send the error's reason and metadata (ErrorInfo), if it has any.
        """
        choose = (lambda request: error) if isinstance(error, RpcError) else error
        return self._set(
            Refuse(_known(method), choose, _positive(times), with_details, self._forget)
        )

    def lose_reply(
        self,
        method: str,
        times: int | None = None,
        code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
    ) -> Fault:
        """Carry a call out, and end it with `code` instead of the answer.

        What a Pull took stays leased. A stream ends in the place of its next response, and gives
        its messages back. A call that fails by itself keeps its own error and does not count.
        """
        if code not in BY_CODE:
            raise ValueError(f"code must be a grpc.StatusCode other than OK, not {code!r}")
        error = BY_CODE[code]("The reply was lost.")
        return self._set(LoseReply(_known(method), error, _positive(times), self._forget))

    def drop(self, method: str, times: int | None = None) -> Fault:
        """Leave a call without an answer, not carried out, until it is lifted; then it goes on."""
        return self._set(Drop(_known(method), _positive(times), self._forget))

    # ---- streams -------------------------------------------------------------------------------

    def abort_streams(self, error: RpcError) -> Fault:
        """End every open StreamingPull with `error`; `hits` tells how many."""
        return self._end_streams(lambda: fresh(error))

    def close_streams(self) -> Fault:
        """End every open StreamingPull with OK; `hits` tells how many. Messages are given back."""
        return self._end_streams(StreamClosed)

    def abort_streams_after(
        self, responses: int, error: RpcError, times: int | None = None
    ) -> Fault:
        """End a StreamingPull with `error` after so many responses with messages.

        Counted from now, for each stream by itself. `times` counts streams.
        """
        if responses < 1:
            raise ValueError(f"responses must be 1 or more, not {responses}")
        return self._set(AbortAfter(responses, error, _positive(times), self._forget))

    def silence_streams(self) -> Fault:
        """Send nothing at all on any StreamingPull, open or new, until lifted.

        The broker does not know of it: requests are carried out, and one response with messages may
        be under way in vain. They stay leased until their deadline or until the client gives the
        stream up. When lifted, the stream goes on with that response.
        """
        return self._set(Silence("StreamingPull", None, self._forget))

    # ---- everything ----------------------------------------------------------------------------

    def black_hole(self) -> Fault:
        """Answer nothing on any method or stream, open or new, until lifted.

        With `Emulator(relay=True)` it is the network that is dead: no byte passes in either
        direction, HTTP/2's own pings included, and the broker does not know. Otherwise it is the
        broker that hangs: connections stand, and calls are neither carried out nor answered.
        """
        kind = ConnectionHole if self.relayed else BlackHole
        return self._set(kind("*", None, self._forget))

    def clear(self) -> None:
        """Lift every fault."""
        for fault in self._active:
            fault.lift()

    # ---- for the broker ------------------------------------------------------------------------

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults in force; some may have no hit left."""
        return self._active

    @contextmanager
    def call(self, rpc: Rpc, context: grpc.aio.ServicerContext[Any, Any]) -> Iterator[Call]:
        """The call that begins now, for as long as the `with` block lasts."""
        call = Call(rpc, context, lambda: self._active)
        with self._lock:
            self._calls.add(call)
        try:
            yield call
        finally:
            with self._lock:
                self._calls.discard(call)

    async def relaying(self, connection: Waiter) -> None:
        """Bytes of a connection are about to pass the relay: return when they may."""
        for fault in self._active:
            await fault.relaying(connection)

    def end_calls(self, reason: RpcError) -> None:
        """End every call that faults hold; on the broker's loop, when it stops."""
        for call in list(self._calls):
            call.end(fresh(reason))

    # ---- the list ------------------------------------------------------------------------------

    def _set(self, fault: Fault) -> Fault:
        with self._lock:
            self._active = (*(f for f in self._active if not f.is_over), fault)
        return fault

    def _forget(self, fault: Fault) -> None:
        with self._lock:
            self._active = tuple(f for f in self._active if f is not fault)

    def _end_streams(self, reason: Callable[[], Exception]) -> Fault:
        fault = Fault("StreamingPull")
        with self._lock:
            streams = [call for call in self._calls if call.is_stream]
        for stream in streams:
            fault.claim()
            stream.end_soon(reason())
        return fault


def _known(method: str) -> str:
    if method != "*" and method not in BY_METHOD:
        raise ValueError(f"method must be the name of an RPC such as 'Publish', or '*': {method!r}")
    return method


def _positive(times: int | None) -> int | None:
    if times is not None and times < 1:
        raise ValueError(f"times must be 1 or more, or None: {times}")
    return times
