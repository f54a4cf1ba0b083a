"""The faults of one broker, as a test sets them."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import BY_CODE, RpcError
from pullstream_protocol.rpcs import Rpc

from .deliveries import Duplicate, Expire, ExpireLeases, Shuffle
from .fault import Fault, FaultedCall, StreamClosed
from .kinds import (
    AbortAfter,
    AbortStreams,
    BlackHole,
    CloseStreams,
    ConnectionHole,
    Delay,
    Drop,
    LimitStreams,
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
    """Do nothing: for faults without a broker."""


class Faults:
    """Makes a broker misbehave, on request.

    A fault acts on each call that it covers with `probability`, `times` times, or until it is
    lifted. It applies to calls that begin after it was set, and to the next responses of open
    streams. Several faults act in the order in which they were set. Each method returns a `Fault`,
    for lifting the fault and for waiting until it has acted, and raises ValueError for an invalid
    argument.

    Thread-safe. Belongs to one broker, which may be stopped and started again.

    These arguments are common to the methods:

    - `method`: A name of pullstream_protocol/rpcs.py, such as "Acknowledge", or "*" for all.
    - `times`: How often the fault acts. None, the default, means until it is lifted.
    - `resource`: The full name of a topic, a subscription and so on, or its id, or a pattern of
      either such as "orders-*". The fault covers calls whose request names it. The default is all.
    - `probability`: The probability with which the fault acts, above 0 and at most 1. The default
      is 1.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        relayed: bool = False,
        seed: int = 0,
        expire: Expire = _expire_nothing,
    ) -> None:
        """Create the faults of one broker; none is set.

        Args:
            clock: Measures the time of `delay`.
            relayed: Connections come through a relay, so that `black_hole` can stop their bytes.
            seed: Seed of the random numbers for `probability`. With the same seed, the same calls
                in the same order meet the same faults.
            expire: Ends leases, for `expire_leases`; called on the broker's event loop.
        """
        self.relayed = relayed
        self._clock = clock
        self._seed = seed
        self._expire = expire
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        # Replaced and never modified, so that the broker can read it without the lock.
        self._active: tuple[Fault, ...] = ()
        self._calls: set[FaultedCall] = set()

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
        """Wait before a call is carried out; on a stream, before each of its responses.

        Args:
            method: Name of the RPC, or "*".
            seconds: Length of the delay, on the broker's clock.
            times: How often the fault acts; None means until it is lifted.
            resource: Name, id or pattern of the resource.
            probability: Probability with which the fault acts.
        """
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
        """Refuse a call: it has no effect, and its caller gets `error`.

        If the error's metadata names some of a request's ack ids, as with exactly-once delivery,
        the request is carried out for the other ids.

        Args:
            method: Name of the RPC, or "*".
            error: The error. It may also be a function of the request (of a stream: the first)
                that returns the error, or None for no fault. It runs on the broker's event loop.
            times: How often the fault acts; None means until it is lifted.
            with_details: Also send the error's reason and metadata (ErrorInfo), if it has any.
            resource: Name, id or pattern of the resource.
            probability: Probability with which the fault acts.
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
        """Carry out a call, and end it with `code` instead of its response.

        Messages taken by a Pull stay leased. A stream ends instead of sending its next response,
        and gives its messages back. A call that fails by itself keeps its error and does not
        count.

        Args:
            method: Name of the RPC, or "*".
            times: How often the fault acts; None means until it is lifted.
            code: Status that the caller gets; any but OK.
            resource: Name, id or pattern of the resource.
            probability: Probability with which the fault acts.
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
        """Hold a call without carrying it out, until the fault is lifted; then it continues.

        Args:
            method: Name of the RPC, or "*".
            times: How often the fault acts; None means until it is lifted.
            resource: Name, id or pattern of the resource.
            probability: Probability with which the fault acts.
        """
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
        """End every open StreamingPull with `error`; `hits` is the number of streams ended.

        Args:
            error: The error that the clients get.
            times: Maximum number of streams to end; None means all.
            resource: Name, id or pattern of the subscription.
            probability: Probability with which each stream is ended.
        """
        scope = Scope(_STREAM, resource, probability, times)
        return self._end_streams(AbortStreams(scope), lambda: fresh(error))

    def close_streams(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """End every open StreamingPull with OK; `hits` is the number of streams ended.

        The streams give their messages back.

        Args:
            times: Maximum number of streams to end; None means all.
            resource: Name, id or pattern of the subscription.
            probability: Probability with which each stream is ended.
        """
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
        """End a StreamingPull with `error` after a number of responses with messages.

        Responses are counted from now on, separately for each stream.

        Args:
            responses: Number of responses with messages; 1 or more.
            error: The error that the client gets.
            times: Maximum number of streams to end; None means until the fault is lifted.
            resource: Name, id or pattern of the subscription.
            probability: Probability with which each stream is ended.
        """
        if responses < 1:
            raise ValueError(f"responses must be 1 or more, not {responses}")
        return self._set(AbortAfter(Scope(_STREAM, resource, probability, times), responses, error))

    def silence_streams(self, *, resource: str = EVERY) -> Fault:
        """Send nothing on any StreamingPull, open or new, until lifted.

        The broker does not know about the silence. It carries out requests, and may write one
        response with messages that does not get through. These messages stay leased until their
        deadline or until the client closes the stream. When the fault is lifted, the stream
        continues with that response.

        Args:
            resource: Name, id or pattern of the subscription.
        """
        return self._set(Silence(Scope(_STREAM, resource)))

    def limit_streams(self, bytes_per_second: float, *, resource: str = EVERY) -> Fault:
        """Send at most this many bytes a second on each StreamingPull, open or new, until lifted.

        Google Cloud allows 10 MB a second. A response is sent whole, and the next one waits until
        its bytes have had their time. `hits` is the number of responses that waited.

        Args:
            bytes_per_second: Bytes of responses, above 0, on the broker's clock.
            resource: Name, id or pattern of the subscription.
        """
        if not 0 < bytes_per_second < math.inf:
            raise ValueError(f"bytes_per_second must be above 0, not {bytes_per_second}")
        return self._set(LimitStreams(Scope(_STREAM, resource), bytes_per_second, self._clock))

    # ---- deliveries ----------------------------------------------------------------------------

    def duplicate_deliveries(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """Deliver a message twice in one response, by a stream or a Pull.

        The second copy has a different ack id, which the broker treats as expired. Only the
        acknowledgement of the first copy counts.

        Args:
            times: Maximum number of messages to duplicate; None means until the fault is lifted.
            resource: Name, id or pattern of the subscription.
            probability: Probability with which each message is duplicated.
        """
        return self._set(Duplicate(Scope(EVERY, resource, probability, times)))

    def shuffle_deliveries(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """Change the order of the messages in a response; those with an ordering key stay in place.

        A response with fewer than two messages without a key is not changed, and does not count.

        Args:
            times: Maximum number of responses to change; None means until the fault is lifted.
            resource: Name, id or pattern of the subscription.
            probability: Probability with which each response is changed.
        """
        return self._set(Shuffle(Scope(EVERY, resource, probability, times)))

    def expire_leases(
        self, times: int | None = None, *, resource: str = EVERY, probability: float = 1.0
    ) -> Fault:
        """End the lease of a message as soon as it has been sent.

        The message is redelivered at once or as the subscription's retry policy says. The
        redelivery has another ack id and counts as another delivery attempt. Without `times` or
        `probability` this never ends.

        Args:
            times: Maximum number of messages; None means until the fault is lifted.
            resource: Name, id or pattern of the subscription.
            probability: Probability with which each lease is ended.
        """
        scope = Scope(EVERY, resource, probability, times)
        return self._set(ExpireLeases(scope, self._expire))

    # ---- everything ----------------------------------------------------------------------------

    def black_hole(self) -> Fault:
        """Answer nothing on any method or stream, open or new, until lifted.

        With `Emulator(relay=True)` the network fails: no byte passes in either direction, including
        HTTP/2 pings, and the broker does not know it. Otherwise the broker hangs: connections stay
        open, but calls are neither carried out nor answered.
        """
        return self._set((ConnectionHole if self.relayed else BlackHole)(Scope()))

    def clear(self) -> None:
        """Lift every fault."""
        for fault in self._active:
            fault.lift()

    # ---- for the broker ------------------------------------------------------------------------

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults in force; some may have no hits left."""
        return self._active

    @contextmanager
    def call(self, rpc: Rpc, context: grpc.aio.ServicerContext[Any, Any]) -> Iterator[FaultedCall]:
        """Provide the call that begins now, for the duration of the `with` block."""
        call = FaultedCall(rpc, context, lambda: self._active)
        with self._lock:
            self._calls.add(call)
        try:
            yield call
        finally:
            with self._lock:
                self._calls.discard(call)

    async def relaying(self, connection: Waiter) -> None:
        """Return when bytes of a connection may pass the relay."""
        for fault in self._active:
            await fault.relaying(connection)

    def end_calls(self, reason: RpcError) -> None:
        """End every call that faults hold. Called on the broker's loop when it stops."""
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
