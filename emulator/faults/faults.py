"""The faults of one broker: what a test may ask for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import BY_CODE, RpcError
from protocol.rpcs import Rpc

from .call import Call, StreamClosed
from .deliveries import Duplicate, Expire, ExpireLeases, Shuffle
from .fault import Fault
from .kinds import (
    AbortAfter,
    AbortStreams,
    BlackHole,
    CloseStreams,
    ConnectionHole,
    Delay,
    Drop,
    LoseReply,
    Refuse,
    Silence,
    fresh,
)
from .scope import EVERY, Scope
from .waiter import Waiter

Choice = Callable[[Any], RpcError | None]
F = TypeVar("F", bound=Fault)

_STREAM = "StreamingPull"


def _expire_nothing(subscription: str, ack_ids: list[str]) -> None:
    """Of faults without a broker."""


class Faults:
    """Makes a broker misbehave, on request.

    A `method` is a name of protocol/rpcs.py, such as "Acknowledge", or "*" for all. A `resource` is
    the full name of a topic, a subscription and so on, or its id, or a pattern of either such as
    "orders-*"; it covers the calls whose request names it. A fault acts on each call that it covers
    with `probability`, `times` times, or until it is lifted (None, the default). It holds for calls
    that begin after it was set, and for the next responses of open streams. Several faults act in
    the order in which they were set. Each method returns a `Fault`, to lift the fault and to wait
    until it has acted, and raises ValueError for an argument that makes no sense.

    Thread-safe. Belongs to one broker, which may be stopped and started again.

    Args:
        clock: what `delay` goes by.
        relayed: whether connections come through a relay, so that `black_hole` can swallow them.
        seed: of the dice that `probability` throws. With the same seed, the same calls in the same
            order meet the same faults.
        expire: ends leases, for `expire_leases`; called on the broker's event loop.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        relayed: bool = False,
        seed: int = 0,
        expire: Expire = _expire_nothing,
    ) -> None:
        self.relayed = relayed
        self._clock = clock
        self._seed = seed
        self._expire = expire
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        # Replaced and never changed, so that the broker reads it without the lock.
        self._active: tuple[Fault, ...] = ()
        self._calls: set[Call] = set()

    # ---- calls ---------------------------------------------------------------------------------

    def delay(
        self,
        method: str,
        seconds: float,
        times: int | None = None,
        *,
        resource: str = EVERY,
        probability: float = 1.0,
    ) -> Fault:
        """Wait before a call is carried out; on a stream, before each of its responses."""
        if not 0 <= seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"seconds must be 0 or more, not {seconds}")
        scope = Scope(method, resource, probability, times)
        return self._set(Delay(scope, seconds, self._clock))

    def error(
        self,
        method: str,
        error: RpcError | Choice,
        times: int | None = None,
        with_details: bool = True,
        *,
        resource: str = EVERY,
        probability: float = 1.0,
    ) -> Fault:
        """Refuse a call: it has no effect, its caller gets `error`.

        `error` may be a function of the request (of a stream, the first): what it returns, None for
        no fault. It runs on the broker's event loop. If the error's metadata names some of a
        request's ack ids, as exactly-once delivery has it, the request is carried out for the
        others.

        with_details: also send the error's reason and metadata (ErrorInfo), if it has any.
        """
        scope = Scope(method, resource, probability, times)
        return self._set(Refuse(scope, error, with_details))

    def lose_reply(
        self,
        method: str,
        times: int | None = None,
        code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
        *,
        resource: str = EVERY,
        probability: float = 1.0,
    ) -> Fault:
        """Carry a call out, and end it with `code` instead of the answer.

        What a Pull took stays leased. A stream ends in the place of its next response, and gives
        its messages back. A call that fails by itself keeps its own error and does not count.
        """
        if code not in BY_CODE:
            raise ValueError(f"code must be a grpc.StatusCode other than OK, not {code!r}")
        scope = Scope(method, resource, probability, times)
        return self._set(LoseReply(scope, BY_CODE[code]("The reply was lost.")))

    def drop(
        self,
        method: str,
        times: int | None = None,
        *,
        resource: str = EVERY,
        probability: float = 1.0,
    ) -> Fault:
        """Leave a call without an answer, not carried out, until it is lifted; then it goes on."""
        return self._set(Drop(Scope(method, resource, probability, times)))

    # ---- streams -------------------------------------------------------------------------------

    def abort_streams(
        self,
        error: RpcError,
        times: int | None = None,
        *,
        resource: str = EVERY,
        probability: float = 1.0,
    ) -> Fault:
        """End every open StreamingPull with `error`; `hits` tells how many."""
        scope = Scope(_STREAM, resource, probability, times)
        return self._end_streams(AbortStreams(scope), lambda: fresh(error))

    def close_streams(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """End every open StreamingPull with OK; `hits` tells how many. Messages are given back."""
        scope = Scope(_STREAM, resource, probability, times)
        return self._end_streams(CloseStreams(scope), StreamClosed)

    def abort_streams_after(
        self,
        responses: int,
        error: RpcError,
        times: int | None = None,
        *,
        resource: str = EVERY,
        probability: float = 1.0,
    ) -> Fault:
        """End a StreamingPull with `error` after so many responses with messages.

        Counted from now, for each stream by itself. `times` counts streams.
        """
        if responses < 1:
            raise ValueError(f"responses must be 1 or more, not {responses}")
        return self._set(AbortAfter(Scope(_STREAM, resource, probability, times), responses, error))

    def silence_streams(self, *, resource: str = EVERY) -> Fault:
        """Send nothing at all on any StreamingPull, open or new, until lifted.

        The broker does not know of it: requests are carried out, and one response with messages may
        be under way in vain. They stay leased until their deadline or until the client gives the
        stream up. When lifted, the stream goes on with that response.
        """
        return self._set(Silence(Scope(_STREAM, resource)))

    # ---- deliveries ----------------------------------------------------------------------------

    def duplicate_deliveries(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """Deliver a message twice, in one response, by a stream or a Pull. `times` counts messages.

        The second copy has an ack id of its own, which the broker takes for one that is no longer
        valid: what counts is the acknowledgement of the first.
        """
        return self._set(Duplicate(Scope(EVERY, resource, probability, times)))

    def shuffle_deliveries(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """Change the order of the messages in a response, those with an ordering key excepted.

        `times` counts responses. One with a single such message is left alone, and not counted.
        """
        return self._set(Shuffle(Scope(EVERY, resource, probability, times)))

    def expire_leases(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """End the lease of a message as soon as it has gone out. `times` counts messages.

        It is delivered again, under another ack id and counted as another attempt, at once or when
        the subscription's retry policy has it. Without `times` or `probability` that has no end.
        """
        scope = Scope(EVERY, resource, probability, times)
        return self._set(ExpireLeases(scope, self._expire))

    # ---- everything ----------------------------------------------------------------------------

    def black_hole(self) -> Fault:
        """Answer nothing on any method or stream, open or new, until lifted.

        With `Emulator(relay=True)` it is the network that is dead: no byte passes in either
        direction, HTTP/2's own pings included, and the broker does not know. Otherwise it is the
        broker that hangs: connections stand, and calls are neither carried out nor answered.
        """
        return self._set((ConnectionHole if self.relayed else BlackHole)(Scope()))

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

    def _set(self, fault: F) -> F:
        fault.enforce(next(self._numbers), self._seed, self._forget)
        with self._lock:
            self._active = (*(f for f in self._active if not f.is_over), fault)
        return fault

    def _forget(self, fault: Fault) -> None:
        with self._lock:
            self._active = tuple(f for f in self._active if f is not fault)

    def _end_streams(self, fault: Fault, reason: Callable[[], Exception]) -> Fault:
        fault.enforce(next(self._numbers), self._seed, self._forget)
        with self._lock:
            streams = [call for call in self._calls if call.is_stream]
        for stream in streams:
            if fault.scope.covers(stream.method, stream.resources) and fault.claim():
                stream.end_soon(reason())
        return fault
