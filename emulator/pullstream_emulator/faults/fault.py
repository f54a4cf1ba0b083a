"""A fault, and a call on which faults act.

A test keeps a `Fault` as its handle, and each kind of fault overrides hooks that get the
`FaultedCall`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, ClassVar

import grpc.aio

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.rpcs import Kind, Rpc

from .scope import Scope, named
from .waiter import Waiter


class Fault:
    """A fault in force, until it has acted as often as its scope says or is lifted.

    A context manager: the end of the `with` block lifts the fault. Thread-safe.

    Attributes:
        kind: The kind's name on the command line and in the administration.
        number: Number of the fault in its broker, counted from 1; 0 until it is in force.
    """

    kind: ClassVar[str] = "fault"

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.number = 0
        self._left = scope.times
        self._on_lift: Callable[[Fault], None] = lambda fault: None
        self._changed = threading.Condition()
        self._hits = 0
        self._lifted = False
        self._held: set[Waiter] = set()
        self.dice = Random(0)

    @property
    def hits(self) -> int:
        """The number of times the fault has acted."""
        return self._hits

    def wait_for_hits(self, n: int = 1, timeout: float = 10.0) -> None:
        """Block until the fault has acted `n` times.

        Raises:
            TimeoutError: It has not done so within `timeout` seconds of real time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= n, timeout):
                raise TimeoutError(
                    f"{self.kind} of {self.scope.method} acted {self._hits} times "
                    f"within {timeout} s, not {n}"
                )

    def lift(self) -> None:
        """End the fault; held calls continue. A second call has no effect."""
        with self._changed:
            self._lifted = True
            held = list(self._held)
        self._on_lift(self)
        for waiter in held:
            waiter.wake()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def describe(self) -> dict[str, object]:
        """Return kind, scope and number of hits, as the administration reports them."""
        return {
            "id": self.number,
            "kind": self.kind,
            "method": self.scope.method,
            "resource": self.scope.resource,
            "probability": self.scope.probability,
            "times": self.scope.times,
            "hits": self._hits,
            **self.details(),
        }

    # ---- for the broker ------------------------------------------------------------------------

    def enforce(self, number: int, seed: int, on_lift: Callable[[Fault], None]) -> None:
        """Put the fault in force, until it calls `on_lift`.

        Args:
            number: Number of the fault in its broker.
            seed: Seed of the broker's random numbers.
            on_lift: Called with the fault when it is lifted.
        """
        self.number = number
        self._on_lift = on_lift
        # The same calls meet the same faults in every run; different faults are independent.
        self.dice = Random(f"{seed} {self.kind} {self.scope.method} {self.scope.resource}")

    @property
    def is_over(self) -> bool:
        """Whether the fault will not act again and holds no call."""
        return self._lifted or (self._left == 0 and not self._held)

    def claim(self) -> bool:
        """Decide at random, and count a hit; return whether the fault acts."""
        with self._changed:
            if self._lifted or self._left == 0:
                return False
            if self.scope.probability < 1 and self.dice.random() >= self.scope.probability:
                return False
            if self._left is not None:
                self._left -= 1
            self._hits += 1
            self._changed.notify_all()
            return True

    async def hold(
        self, waiter: Waiter, seconds: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """If the fault acts, wait until it is lifted or until `seconds` have passed.

        Args:
            waiter: The call or connection to hold. If it ends in the meantime, its error is raised.
            seconds: Longest time to hold, in seconds; None means until the fault is lifted.
            clock: Measures the seconds.
        """
        with self._changed:
            # Register before counting: a test that sees the hit can then lift the fault.
            self._held.add(waiter)
        try:
            if self.claim():
                await waiter.wait(lambda: self._lifted, seconds, clock)
        finally:
            with self._changed:
                self._held.discard(waiter)

    # Hooks for each kind of fault. All run on the broker's event loop, within the fault's scope.

    def details(self) -> dict[str, object]:
        """Return further arguments of this kind, for `describe`."""
        return {}

    async def before(self, call: FaultedCall, request: Any) -> None:
        """A request (of a stream: the first) has arrived, and was not processed yet."""

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """A response is about to be sent; None means a stream's headers. `call.end` stops it."""

    def sent(self, call: FaultedCall, response: Any) -> None:
        """A response of a stream was sent."""

    async def relaying(self, connection: Waiter) -> None:
        """Bytes are about to pass the relay. They belong to no method."""


class StreamClosed(Exception):
    """The broker closes a stream with OK."""


class FaultedCall(Waiter):
    """Sits between a method and its gRPC context; without a fault it passes everything through.

    Args:
        rpc: The call's method.
        context: The gRPC context.
        active: Returns the faults that are in force now.
    """

    def __init__(
        self,
        rpc: Rpc,
        context: grpc.aio.ServicerContext[Any, Any],
        active: Callable[[], tuple[Fault, ...]],
    ) -> None:
        super().__init__()
        self.method = rpc.method
        self.is_stream = rpc.kind is Kind.BIDI
        self._writes_many = rpc.kind is Kind.SERVER_STREAM
        self._context = context
        self._active = active
        self._begun = False
        self._request: Any = None
        self._reading: asyncio.Task[Any] | None = None

    def end(self, error: Exception) -> None:
        """End the call with `error`, unless it has ended already; interrupt a stream's `read`."""
        super().end(error)
        # A stream's reader waits in `read` nearly always; the exception it raises ends the stream.
        if self._reading is not None:
            self._reading.cancel()

    async def begin(self, request: Any) -> None:
        """Handle a request that has arrived; raise the error that refuses it."""
        self._begun = True
        self._request = request
        for fault in self._faults():
            await fault.before(self, request)

    def joined(self, refusal: RpcError) -> RpcError:
        """Return the error for a method that refused some of the ids that a fault has left.

        An error that names some ids implies that the others were processed. It must therefore
        name the ids refused by the fault as well as the ids refused by the method.
        """
        fault = self.ended
        if not isinstance(fault, RpcError) or not fault.metadata or not refusal.metadata:
            return refusal
        both = {**fault.metadata, **refusal.metadata}
        return type(refusal)(refusal.message, reason=refusal.reason, metadata=both)

    async def finish(self, response: Any) -> None:
        """Handle the response of a unary call; raise if the caller must not receive it."""
        await self._sending(response)
        self.check()

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that the request (of a stream: the first) names; empty before it."""
        return () if self._request is None else named(self._request)

    def _faults(self) -> list[Fault]:
        return [f for f in self._active() if f.scope.covers(self.method, self.resources)]

    async def _sending(self, response: Any) -> None:
        for fault in self._faults():
            await fault.sending(self, response)

    # ---- as the method's context ---------------------------------------------------------------

    async def read(self) -> Any:
        """Return the next request of a stream, or EOF; raise the error of a fault that ended it."""
        self.check()
        self._reading = asyncio.current_task()
        try:
            request = await self._context.read()
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            self._reading = None
        if not self._begun and request is not grpc.aio.EOF:
            await self.begin(request)
        return request

    def write(self, response: Any) -> Awaitable[None]:
        """Send a response of a stream, unless a fault delays it or ends the call."""
        if self.ended is None and not self._active():
            return self._context.write(response)
        return self._write(response)

    async def _write(self, response: Any) -> None:
        self.check()
        await self._sending(response)
        if self.ended is None:
            await self._context.write(response)
            for fault in self._faults():
                fault.sent(self, response)
        elif self._writes_many or self.is_stream:
            # The method must learn that the response was not sent.
            self.check()

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Send the headers of a stream, after any delay by a fault."""
        await self._sending(None)
        await self._context.send_initial_metadata(metadata)

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline; None if it set none."""
        return self._context.time_remaining()

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        """Return the headers of the call."""
        metadata: Iterable[tuple[str, Any]] = self._context.invocation_metadata() or ()
        return metadata

    def peer(self) -> str:
        """Return the address of the caller's connection."""
        peer: str = self._context.peer()
        return peer
