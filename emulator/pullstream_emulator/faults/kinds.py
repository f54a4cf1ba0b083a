"""The kinds of faults, and their effect on calls. `Faults` documents their use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import BY_CODE, RpcError, code_name

from .fault import Fault, FaultedCall
from .scope import Scope
from .waiter import Waiter


def fresh(error: RpcError, *, with_details: bool = True) -> RpcError:
    """Return a copy that was never raised, because each raise extends an error's traceback."""
    cls = BY_CODE[error.grpc_status_code]
    if not with_details or not error.reason:
        return cls(error.message)
    return cls(error.message, reason=error.reason, metadata=error.metadata)


class Delay(Fault):
    """Holds calls, or the responses of streams, for some time.

    Args:
        scope: The calls to delay.
        seconds: Length of the delay.
        clock: Measures the delay.
    """

    kind = "delay"

    def __init__(self, scope: Scope, seconds: float, clock: Clock) -> None:
        super().__init__(scope)
        self._seconds = seconds
        self._clock = clock

    def details(self) -> dict[str, object]:
        """Return the length of the delay."""
        return {"seconds": self._seconds}

    async def before(self, call: FaultedCall, request: Any) -> None:
        """Hold a call that is no stream."""
        if not call.is_stream:
            await self.hold(call, self._seconds, self._clock)

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """Hold a response of a stream; its headers are sent at once."""
        if call.is_stream and response is not None:
            await self.hold(call, self._seconds, self._clock)


class Refuse(Fault):
    """Refuses calls with an error, or with the result of a function of the request.

    Args:
        scope: The calls to refuse.
        error: The error, or a function that returns it for a request.
        with_details: Also send the error's reason and metadata.
    """

    kind = "error"

    def __init__(
        self,
        scope: Scope,
        error: RpcError | Callable[[Any], RpcError | None],
        with_details: bool,
    ) -> None:
        super().__init__(scope)
        self._error = error
        self._with_details = with_details

    def details(self) -> dict[str, object]:
        """Return code and message; nothing if a function chooses the error."""
        return _told(self._error) if isinstance(self._error, RpcError) else {}

    async def before(self, call: FaultedCall, request: Any) -> None:
        """Raise the error, or let the call process the ack ids that the error does not name."""
        if self.is_over:
            return
        chosen = self._error if isinstance(self._error, RpcError) else self._error(request)
        if chosen is None or not self.claim():
            return
        error = fresh(chosen, with_details=self._with_details)
        named = (error.metadata or {}).keys()
        ack_ids = getattr(request, "ack_ids", ())
        others = [ack_id for ack_id in ack_ids if ack_id not in named]
        if not others or len(others) == len(ack_ids):
            raise error
        # An error that names some ids implies that the others were processed.
        request.ack_ids[:] = others
        call.end(error)


class LoseReply(Fault):
    """Ends calls with an error after they were carried out."""

    kind = "lose-reply"

    def __init__(self, scope: Scope, error: RpcError) -> None:
        super().__init__(scope)
        self._error = error

    def details(self) -> dict[str, object]:
        """Return the code of the error."""
        return {"code": code_name(self._error)}

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """End the call with the error in place of its response."""
        if response is not None and self.claim():
            call.end(fresh(self._error))


class Drop(Fault):
    """Holds calls before they are carried out."""

    kind = "drop"

    async def before(self, call: FaultedCall, request: Any) -> None:
        """Hold the call until the fault is lifted or the caller gives up."""
        await self.hold(call)


class AbortStreams(Fault):
    """Ends open streams. `Faults` ends them; this class only counts."""

    kind = "abort-streams"


class CloseStreams(Fault):
    """Ends open streams with OK. `Faults` ends them; this class only counts."""

    kind = "close-streams"


class AbortAfter(Fault):
    """Ends streams with an error after some responses with messages.

    Args:
        scope: The streams to end.
        responses: Number of responses before the end.
        error: The error.
    """

    kind = "abort-streams-after"

    def __init__(self, scope: Scope, responses: int, error: RpcError) -> None:
        super().__init__(scope)
        self._responses = responses
        self._error = error
        self._sent: WeakKeyDictionary[FaultedCall, int] = WeakKeyDictionary()

    def details(self) -> dict[str, object]:
        """Return the number of responses, and code and message of the error."""
        return {"responses": self._responses, **_told(self._error)}

    def sent(self, call: FaultedCall, response: Any) -> None:
        """Count a stream's responses with messages, and end the stream after the last one."""
        if not call.is_stream or not response.received_messages:
            return
        self._sent[call] = self._sent.get(call, 0) + 1
        if self._sent[call] == self._responses and self.claim():
            call.end(fresh(self._error))


class LimitStreams(Fault):
    """Sends at most a number of bytes in a second on each stream.

    Args:
        scope: The streams.
        bytes_per_second: Bytes of responses.
        clock: Measures the second.
    """

    kind = "limit-streams"

    def __init__(self, scope: Scope, bytes_per_second: float, clock: Clock) -> None:
        super().__init__(scope)
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        # When the bytes that were sent on a stream have had their time.
        self._free_at: WeakKeyDictionary[FaultedCall, float] = WeakKeyDictionary()

    def details(self) -> dict[str, object]:
        """Return the limit."""
        return {"bytes_per_second": self._bytes_per_second}

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """Hold a response until the earlier ones have had their time."""
        if not call.is_stream or response is None:
            return
        now = self._clock.monotonic()
        begin = max(self._free_at.get(call, now), now)
        self._free_at[call] = begin + response.ByteSize() / self._bytes_per_second
        if begin > now:
            await self.hold(call, begin - now, self._clock)


class Silence(Fault):
    """Holds the responses of streams."""

    kind = "silence-streams"

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """Hold responses and headers until the fault is lifted."""
        await self.hold(call)


class BlackHole(Fault):
    """A broker without a relay does not answer any call."""

    kind = "black-hole"

    async def before(self, call: FaultedCall, request: Any) -> None:
        """Hold a new call until the fault is lifted."""
        await self.hold(call)

    async def sending(self, call: FaultedCall, response: Any) -> None:
        """Hold responses and headers until the fault is lifted."""
        await self.hold(call)


class ConnectionHole(Fault):
    """A broker behind a relay: no byte passes in either direction."""

    kind = "black-hole"

    async def relaying(self, connection: Waiter) -> None:
        """Hold the bytes of a connection until the fault is lifted."""
        await self.hold(connection)


def _told(error: RpcError) -> dict[str, object]:
    return {"code": code_name(error), "message": error.message}
