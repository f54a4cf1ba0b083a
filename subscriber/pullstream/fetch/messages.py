"""The lists of messages that `fetch` returns. They are settled one by one or as a whole."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pullstream.ack_future import AckFuture
from pullstream.exceptions import AcknowledgeError
from pullstream.message import Disposition, Message, Reject, ResponseBatch, ack_ids_of
from pullstream.rpc.rpcs import Rpcs
from pullstream.rpc.sansio import Steps, run, run_async
from pullstream.streaming.ack_requests import Purpose, unconfirmed
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import PullstreamError

from .background_settler import BackgroundSettler, FetchedDispositions
from .settle_call import RETRY_FOR, settle

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .protocol import Fetched, Reason

_log = logging.getLogger("pullstream.fetch")

# Other dispositions change the ack deadline at the user's request.
_PURPOSES = {Disposition.ACK: Purpose.ACK, Disposition.RETURN: Purpose.RETURN}


class _Fetched(list[Message]):
    """Base of FetchedMessages and AsyncFetchedMessages."""

    def __init__(
        self,
        fetched: Fetched,
        subscription: str,
        rpcs: Rpcs,
        settler: Callable[[], BackgroundSettler],
        clock: Clock = SYSTEM_CLOCK,
        reject: Reject | None = None,
    ) -> None:
        self._dispositions = FetchedDispositions(settler)
        for received_at, response in fetched.responses:
            batch = ResponseBatch(self._dispositions, received_at, 0, response)
            batch.reject = reject
            self += batch.messages()
        self.reason: Reason = fetched.reason
        self._subscription = subscription
        self._rpcs = rpcs
        self._settler = settler
        self._clock = clock
        # The settler that keeps the leases inside a `with` block, and its number for this list.
        self._kept: tuple[BackgroundSettler, int] | None = None

    @property
    def unsettled(self) -> list[Message]:
        """Messages that are not settled, including those for which a call of the list failed."""
        return [message for message in self if message.settled is None]

    def _settle(
        self, disposition: Disposition, seconds: int = 0, messages: list[Message] | None = None
    ) -> Steps[None]:
        """Settle the given messages, or all unsettled ones if `messages` is None."""
        messages = self.unsettled if messages is None else messages
        if not messages:
            return
        ack_ids = ack_ids_of(messages)
        purpose = _PURPOSES.get(disposition, Purpose.USER)
        failed = yield from settle(
            self._subscription, purpose, ack_ids, self._clock, seconds=seconds
        )
        if disposition is not Disposition.EXTEND:
            for message, ack_id in zip(messages, ack_ids, strict=True):
                if ack_id not in failed:
                    message.settled = disposition
        if failed:
            raise _refused(disposition, failed, len(messages))

    def _keep_leases(self) -> None:
        if self._kept is not None:
            raise RuntimeError("these messages are already in a `with` block")
        settler = self._settler()
        self._kept = settler, settler.keep_leases(self)

    def _return_unsettled(self, raised: BaseException | None) -> Steps[None]:
        """Return the unsettled messages at the end of the block.

        If the block raised an error, the first unsettled message counts as the cause and is nacked.
        The block has not reached the other messages.
        """
        if self._kept is not None:
            settler, number = self._kept
            settler.stop_leases(number)
            self._kept = None
        unsettled = self.unsettled
        failed = 1 if isinstance(raised, Exception) else 0
        for disposition, messages in (
            (Disposition.NACK, unsettled[:failed]),
            (Disposition.RETURN, unsettled[failed:]),
        ):
            try:
                yield from self._settle(disposition, 0, messages)
            except PullstreamError as error:
                # The server redelivers these messages when their leases end.
                _log.warning("could not return all fetched messages: %s", error)


class FetchedMessages(_Fetched):
    """The messages of one fetch.

    `ack()`, `nack()` and `modify_ack_deadline()` are one call for the whole list, and return when
    the server has answered. The methods of a single message return immediately, and their requests
    are sent in the background. The variants with `_with_response` return a future of the result.
    Leases are extended only inside a `with` block:

        with client.fetch(subscription, 100) as messages:
            for message in messages:
                handle(message)
                message.ack()

    Until the end of the block the leases of unsettled messages are extended, for one hour at most.
    At the end, unsettled messages are returned. If the block raised an error, the first unsettled
    message is nacked. The block waits for the results of all acks and nacks, and raises
    AcknowledgeError if the server refused one or did not answer within a minute.

    Attributes:
        reason: Why the fetch ended. "filled": it got `max_messages` messages. "drained": the server
            had no more messages at the moment. "timed_out": the time was up before that, or before
            there were `min_messages`.
    """

    def ack(self) -> None:
        """Acknowledge all unsettled messages.

        Raises:
            AcknowledgeError: The server refused some or did not answer; they are still in
                `unsettled`.
        """
        run(self._settle(Disposition.ACK), self._rpcs, self._clock)

    def nack(self, delay: float = 0) -> None:
        """Nack all unsettled messages, so that the server redelivers them.

        Args:
            delay: Seconds until the redelivery, 0 to 600, rounded up to whole seconds.

        Raises:
            AcknowledgeError: The server refused some or did not answer; they are still in
                `unsettled`.
            ValueError: The delay is out of range.
        """
        run(self._settle(Disposition.NACK, _seconds("delay", delay)), self._rpcs, self._clock)

    def modify_ack_deadline(self, seconds: int) -> None:
        """Set the ack deadline of all unsettled messages.

        Args:
            seconds: The leases end this many seconds from now, 1 to 600.

        Raises:
            AcknowledgeError: The server refused some or did not answer.
            ValueError: The seconds are out of range.
        """
        run(self._settle(Disposition.EXTEND, _lease("seconds", seconds)), self._rpcs, self._clock)

    def __enter__(self) -> Self:
        self._keep_leases()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run(self._return_unsettled(exc), self._rpcs, self._clock)
        futures = self._dispositions.pending()
        _wait(futures)
        _check(futures, exc)


class AsyncFetchedMessages(_Fetched):
    """FetchedMessages for an event loop.

    The methods of the list are coroutines, and the block is `async with`. The methods of a single
    message do not wait, and are plain methods.
    """

    async def ack(self) -> None:
        """Acknowledge all unsettled messages; see `FetchedMessages.ack`."""
        await run_async(self._settle(Disposition.ACK), self._rpcs, self._clock)

    async def nack(self, delay: float = 0) -> None:
        """Nack all unsettled messages; see `FetchedMessages.nack`."""
        seconds = _seconds("delay", delay)
        await run_async(self._settle(Disposition.NACK, seconds), self._rpcs, self._clock)

    async def modify_ack_deadline(self, seconds: int) -> None:
        """Set the ack deadline; see `FetchedMessages.modify_ack_deadline`."""
        lease = _lease("seconds", seconds)
        await run_async(self._settle(Disposition.EXTEND, lease), self._rpcs, self._clock)

    async def __aenter__(self) -> Self:
        self._keep_leases()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await run_async(self._return_unsettled(exc), self._rpcs, self._clock)
        futures = self._dispositions.pending()
        if futures:
            awaited = [asyncio.wrap_future(future) for future in futures]
            done, _ = await asyncio.wait(awaited, timeout=RETRY_FOR)
            for each in done:
                # Retrieve the exception; otherwise asyncio logs that nobody did.
                each.exception()
        _check(futures, exc)


def _wait(futures: Sequence[AckFuture]) -> None:
    """Wait until all futures are done, for RETRY_FOR seconds at most."""
    deadline = SYSTEM_CLOCK.monotonic() + RETRY_FOR
    for future in futures:
        future.wait_until_done(max(deadline - SYSTEM_CLOCK.monotonic(), 0.0))


def _check(futures: Sequence[AckFuture], exc: BaseException | None) -> None:
    """Raise the first failure, unless the block raised an error. The dispatcher logs each one."""
    if exc is not None:
        return
    for future in futures:
        if not future.done():
            raise unconfirmed(f"the server has not answered within {RETRY_FOR:.0f} s")
        error = future.exception()
        if error is not None:
            raise error


def _refused(
    disposition: Disposition, failed: Mapping[str, AcknowledgeError], total: int
) -> AcknowledgeError:
    first = next(iter(failed.values()))
    action = f"could not be settled ({disposition.value})"
    info = f"{len(failed)} of {total} messages {action}: {first.info}"
    in_doubt = any(error.may_have_succeeded for error in failed.values())
    return AcknowledgeError(first.error_code, info, may_have_succeeded=in_doubt)


def _seconds(name: str, seconds: float) -> int:
    if not 0 <= seconds <= 600:
        raise ValueError(f"{name} is {seconds}; it must be between 0 and 600 seconds")
    return math.ceil(seconds)


def _lease(name: str, seconds: int) -> int:
    if not 1 <= seconds <= 600:
        raise ValueError(f"{name} is {seconds}; it must be between 1 and 600 (for 0 use nack())")
    return seconds
