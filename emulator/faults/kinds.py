"""What each kind of fault does to a call. `Faults` says what they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from protocol.clock import Clock
from protocol.errors import BY_CODE, RpcError, code_name

from .call import Call
from .fault import Fault
from .scope import Scope
from .waiter import Waiter


def fresh(error: RpcError, *, with_details: bool = True) -> RpcError:
    """An error like `error` that was never raised: each raise adds to an exception's traceback."""
    cls = BY_CODE[error.grpc_status_code]
    if not with_details or not error.reason:
        return cls(error.message)
    return cls(error.message, reason=error.reason, metadata=error.metadata)


class Delay(Fault):
    kind = "delay"

    def __init__(self, scope: Scope, seconds: float, clock: Clock) -> None:
        super().__init__(scope)
        self._seconds = seconds
        self._clock = clock

    def details(self) -> dict[str, object]:
        return {"seconds": self._seconds}

    async def before(self, call: Call, request: Any) -> None:
        if not call.is_stream:
            await self.hold(call, self._seconds, self._clock)

    async def sending(self, call: Call, response: Any) -> None:
        if call.is_stream and response is not None:
            await self.hold(call, self._seconds, self._clock)


class Refuse(Fault):
    """With an error, or with what a function makes of the request."""

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
        return _told(self._error) if isinstance(self._error, RpcError) else {}

    async def before(self, call: Call, request: Any) -> None:
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
        # An answer that names some ids tells that the others were carried out.
        request.ack_ids[:] = others
        call.end(error)


class LoseReply(Fault):
    kind = "lose-reply"

    def __init__(self, scope: Scope, error: RpcError) -> None:
        super().__init__(scope)
        self._error = error

    def details(self) -> dict[str, object]:
        return {"code": code_name(self._error)}

    async def sending(self, call: Call, response: Any) -> None:
        if response is not None and self.claim():
            call.end(fresh(self._error))


class Drop(Fault):
    kind = "drop"

    async def before(self, call: Call, request: Any) -> None:
        await self.hold(call)


class AbortStreams(Fault):
    """Those that are open; `Faults` ends them, this only counts."""

    kind = "abort-streams"


class CloseStreams(Fault):
    """The same, with OK."""

    kind = "close-streams"


class AbortAfter(Fault):
    kind = "abort-streams-after"

    def __init__(self, scope: Scope, responses: int, error: RpcError) -> None:
        super().__init__(scope)
        self._responses = responses
        self._error = error
        self._sent: WeakKeyDictionary[Call, int] = WeakKeyDictionary()

    def details(self) -> dict[str, object]:
        return {"responses": self._responses, **_told(self._error)}

    def sent(self, call: Call, response: Any) -> None:
        if not call.is_stream or not response.received_messages:
            return
        self._sent[call] = self._sent.get(call, 0) + 1
        if self._sent[call] == self._responses and self.claim():
            call.end(fresh(self._error))


class Silence(Fault):
    kind = "silence-streams"

    async def sending(self, call: Call, response: Any) -> None:
        await self.hold(call)


class BlackHole(Fault):
    """For a broker without a relay: calls come, and none of them is answered."""

    kind = "black-hole"

    async def before(self, call: Call, request: Any) -> None:
        await self.hold(call)

    async def sending(self, call: Call, response: Any) -> None:
        await self.hold(call)


class ConnectionHole(Fault):
    """For a broker behind a relay: no byte passes, in either direction."""

    kind = "black-hole"

    async def relaying(self, connection: Waiter) -> None:
        await self.hold(connection)


def _told(error: RpcError) -> dict[str, object]:
    return {"code": code_name(error), "message": error.message}
