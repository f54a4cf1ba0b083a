"""What `fetch` returns: a list of messages, to be settled one by one or as a whole."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import PullstreamError
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.futures import AckFuture
from subscriber.message import Batch, Message, Verdict, ack_ids_of
from subscriber.rpc import Rpcs
from subscriber.steps import Steps, run, run_async
from subscriber.streaming.requests import ACK

from .settle import PATIENCE, settle
from .settler import Settler, Verdicts

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .rules import Fetched, Reason

_log = logging.getLogger("pullstream.fetch")

# A signal between a thread's last look and its going to sleep wakes nobody: it looks up this often,
# in seconds.
_LOOK_SECONDS = 0.5


class _Fetched(list[Message]):
    """What the two kinds of list have alike; see FetchedMessages."""

    def __init__(
        self,
        fetched: Fetched,
        subscription: str,
        rpcs: Rpcs,
        settler: Callable[[], Settler],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._verdicts = Verdicts(settler)
        for received_at, response in fetched.responses:
            self += Batch(self._verdicts, received_at, 0, response).messages()
        self.reason: Reason = fetched.reason
        self._subscription = subscription
        self._rpcs = rpcs
        self._settler = settler
        self._clock = clock
        # Who keeps the leases inside a `with`, and by what number.
        self._held: tuple[Settler, int] | None = None

    @property
    def unsettled(self) -> list[Message]:
        """Those about which nothing was decided, or nothing that the server took for the list."""
        return [message for message in self if message.settled is None]

    def _settle(self, verdict: Verdict, seconds: int) -> Steps[None]:
        messages = self.unsettled
        if not messages:
            return
        ack_ids = ack_ids_of(messages)
        failed = yield from settle(self._subscription, seconds, ack_ids, self._clock)
        if verdict is not Verdict.EXTEND:
            for message, ack_id in zip(messages, ack_ids, strict=True):
                if ack_id not in failed:
                    message.settled = verdict
        if failed:
            raise _refused(verdict, failed, len(messages))

    def _hold(self) -> None:
        if self._held is not None:
            raise RuntimeError("these messages are in a `with` block already")
        settler = self._settler()
        self._held = settler, settler.hold(self)

    def _let_go(self) -> Steps[None]:
        """The block has ended: give back what is not settled."""
        if self._held is not None:
            settler, number = self._held
            settler.let_go(number)
            self._held = None
        try:
            yield from self._settle(Verdict.NACK, 0)
        except PullstreamError as error:
            # In vain, then: their leases end by themselves.
            _log.warning("could not give back all fetched messages: %s", error)


class FetchedMessages(_Fetched):
    """The messages of one fetch.

    reason: why it ended: "filled", there were as many as were asked for; "drained", the server had
        no more at the moment; "timed_out", the time was up before either, or before there were
        `min_messages`.

    `ack()`, `nack()` and `modify_ack_deadline()` are one call for the whole list, and return when
    the server has answered. Those of a single message return at once and are sent in the
    background; `with_response` tells what became of them. Nothing is extended by itself, except:

        with client.fetch(subscription, 100) as messages:
            for message in messages:
                handle(message)
                message.ack()

    Until the end of the block the leases of what is not settled are extended, for an hour at most.
    Then what is not settled is given back, and what was decided is waited for: the block raises
    AcknowledgeError if the server did not take it.
    """

    def ack(self) -> None:
        """Acknowledge all that are not settled.

        Raises:
            AcknowledgeError: some were not taken: those are still in `unsettled`.
        """
        run(self._settle(Verdict.ACK, ACK), self._rpcs, self._clock)

    def nack(self, delay: float = 0) -> None:
        """Give back all that are not settled, to be delivered again after `delay` seconds, 0 to
        600; raises as `ack`."""
        run(self._settle(Verdict.NACK, _seconds("delay", delay)), self._rpcs, self._clock)

    def modify_ack_deadline(self, seconds: int) -> None:
        """Let the leases of all that are not settled end `seconds` from now, 1 to 600; raises as
        `ack`."""
        run(self._settle(Verdict.EXTEND, _lease("seconds", seconds)), self._rpcs, self._clock)

    def __enter__(self) -> Self:
        self._hold()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run(self._let_go(), self._rpcs, self._clock)
        futures = self._verdicts.pending()
        _wait(futures)
        _check(futures, exc)


class AsyncFetchedMessages(_Fetched):
    """FetchedMessages for an event loop: the list's methods are coroutines, and the block is
    `async with`. Those of a single message do not wait, and are plain methods.
    """

    async def ack(self) -> None:
        """See `FetchedMessages.ack`."""
        await run_async(self._settle(Verdict.ACK, ACK), self._rpcs, self._clock)

    async def nack(self, delay: float = 0) -> None:
        """See `FetchedMessages.nack`."""
        seconds = _seconds("delay", delay)
        await run_async(self._settle(Verdict.NACK, seconds), self._rpcs, self._clock)

    async def modify_ack_deadline(self, seconds: int) -> None:
        """See `FetchedMessages.modify_ack_deadline`."""
        lease = _lease("seconds", seconds)
        await run_async(self._settle(Verdict.EXTEND, lease), self._rpcs, self._clock)

    async def __aenter__(self) -> Self:
        self._hold()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await run_async(self._let_go(), self._rpcs, self._clock)
        futures = self._verdicts.pending()
        if futures:
            awaited = [asyncio.wrap_future(future) for future in futures]
            done, _ = await asyncio.wait(awaited, timeout=PATIENCE)
            for each in done:
                # Looked at, or asyncio logs an error that nobody has.
                each.exception()
        _check(futures, exc)


def _wait(futures: Sequence[AckFuture]) -> None:
    """Return when all are done, or PATIENCE has passed."""
    left = PATIENCE
    while left > 0 and concurrent.futures.wait(futures, _LOOK_SECONDS).not_done:
        left -= _LOOK_SECONDS


def _check(futures: Sequence[AckFuture], exc: BaseException | None) -> None:
    """Raise the first failure, if nothing else is being raised; the dispatcher logs each."""
    if exc is not None:
        return
    for future in futures:
        if not future.done():
            info = f"the server has not answered within {PATIENCE:.0f} s"
            raise AcknowledgeError(AcknowledgeStatus.OTHER, info)
        error = future.exception()
        if error is not None:
            raise error


def _refused(
    verdict: Verdict, failed: Mapping[str, AcknowledgeError], asked: int
) -> AcknowledgeError:
    first = next(iter(failed.values()))
    info = f"{len(failed)} of {asked} messages were not taken ({verdict.value}): {first.info}"
    return AcknowledgeError(first.error_code, info)


def _seconds(name: str, seconds: float) -> int:
    if not 0 <= seconds <= 600:
        raise ValueError(f"{name} is {seconds}; it must be between 0 and 600 seconds")
    return math.ceil(seconds)


def _lease(name: str, seconds: int) -> int:
    if not 1 <= seconds <= 600:
        raise ValueError(f"{name} is {seconds}; it must be between 1 and 600 (nack() gives back)")
    return seconds
