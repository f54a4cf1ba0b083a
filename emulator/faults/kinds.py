"""What each kind of fault does to a call. `Faults` says what they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from protocol.clock import Clock
from protocol.errors import BY_CODE, RpcError

from .call import Call
from .fault import Fault
from .waiter import Waiter

Lifted = Callable[[Fault], None]


def fresh(error: RpcError, *, with_details: bool = True) -> RpcError:
    """An error like `error` that was never raised: each raise adds to an exception's traceback."""
    cls = BY_CODE[error.grpc_status_code]
    if not with_details or not error.reason:
        return cls(error.message)
    return cls(error.message, reason=error.reason, metadata=error.metadata)


class Delay(Fault):
    def __init__(
        self, method: str, seconds: float, times: int | None, clock: Clock, on_lift: Lifted
    ) -> None:
        super().__init__(method, times, on_lift)
        self._seconds = seconds
        self._clock = clock

    async def before(self, call: Call, request: Any) -> None:
        if not call.is_stream:
            await self.hold(call, self._seconds, self._clock)

    async def sending(self, call: Call, response: Any) -> None:
        if call.is_stream and response is not None:
            await self.hold(call, self._seconds, self._clock)


class Refuse(Fault):
    def __init__(
        self,
        method: str,
        choose: Callable[[Any], RpcError | None],
        times: int | None,
        with_details: bool,
        on_lift: Lifted,
    ) -> None:
        super().__init__(method, times, on_lift)
        self._choose = choose
        self._with_details = with_details

    async def before(self, call: Call, request: Any) -> None:
        if self.is_over:
            return
        chosen = self._choose(request)
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
    def __init__(self, method: str, error: RpcError, times: int | None, on_lift: Lifted) -> None:
        super().__init__(method, times, on_lift)
        self._error = error

    async def sending(self, call: Call, response: Any) -> None:
        if response is not None and self.claim():
            call.end(fresh(self._error))


class Drop(Fault):
    async def before(self, call: Call, request: Any) -> None:
        await self.hold(call)


class Silence(Fault):
    async def sending(self, call: Call, response: Any) -> None:
        await self.hold(call)


class AbortAfter(Fault):
    def __init__(self, responses: int, error: RpcError, times: int | None, on_lift: Lifted) -> None:
        super().__init__("StreamingPull", times, on_lift)
        self._responses = responses
        self._error = error
        self._sent: WeakKeyDictionary[Call, int] = WeakKeyDictionary()

    def sent(self, call: Call, response: Any) -> None:
        if not response.received_messages:
            return
        self._sent[call] = self._sent.get(call, 0) + 1
        if self._sent[call] >= self._responses and self.claim():
            call.end(fresh(self._error))


class BlackHole(Fault):
    """For a broker without a relay: calls come, and none of them is answered."""

    async def before(self, call: Call, request: Any) -> None:
        await self.hold(call)

    async def sending(self, call: Call, response: Any) -> None:
        await self.hold(call)


class ConnectionHole(Fault):
    """For a broker behind a relay: no byte passes, in either direction."""

    async def relaying(self, connection: Waiter) -> None:
        await self.hold(connection)
