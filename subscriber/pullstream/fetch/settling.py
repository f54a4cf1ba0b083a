"""Settling of the messages of one fetch, and the block that keeps their leases."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pullstream.ack_future import AckFuture
from pullstream.columns.portions import (
    Portion,
    Unit,
    ack_ids_in,
    messages_of,
    size_of,
    unsettled_in,
)
from pullstream.exceptions import AcknowledgeError
from pullstream.message import Disposition, Message
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

    from .protocol import Reason

_log = logging.getLogger("pullstream.fetch")

# Other dispositions change the ack deadline at the user's request.
_PURPOSES = {Disposition.ACK: Purpose.ACK, Disposition.RETURN: Purpose.RETURN}


class FetchedUnits:
    """The messages of one fetch, as a list or as columns; see FetchedMessages.

    Args:
        reason: Why the fetch ended.
        subscription: Full name.
        rpcs: Makes the calls of the list.
        settler: Returns the settler of single messages; see FetchedDispositions.
        clock: Measures time.

    Attributes:
        reason: Why the fetch ended.
    """

    def __init__(
        self,
        reason: Reason,
        subscription: str,
        rpcs: Rpcs,
        settler: Callable[[], BackgroundSettler],
        clock: Clock,
    ) -> None:
        self._dispositions = FetchedDispositions(settler)
        self.reason: Reason = reason
        self._subscription = subscription
        self._rpcs = rpcs
        self._settler = settler
        self._clock = clock
        # The settler that keeps the leases inside a `with` block, and its number for this list.
        self._kept: tuple[BackgroundSettler, int] | None = None

    def _received(self) -> Sequence[Unit]:
        """Return all messages."""
        raise NotImplementedError

    @property
    def unsettled(self) -> list[Message]:
        """Messages that are not settled, including those for which a call failed."""
        return messages_of(unsettled_in(self._received()))

    def _run(self, steps: Steps[None]) -> None:
        run(steps, self._rpcs, self._clock)

    async def _run_async(self, steps: Steps[None]) -> None:
        await run_async(steps, self._rpcs, self._clock)

    def _settle(
        self, disposition: Disposition, seconds: int = 0, units: Sequence[Unit] | None = None
    ) -> Steps[None]:
        """Settle the unsettled ones of the given messages, or of all if `units` is None."""
        units = unsettled_in(self._received() if units is None else units)
        if not units:
            return
        ack_ids = ack_ids_in(units)
        purpose = _PURPOSES.get(disposition, Purpose.USER)
        failed = yield from settle(
            self._subscription, purpose, ack_ids, self._clock, seconds=seconds
        )
        if disposition is not Disposition.EXTEND:
            start = 0
            for unit in units:
                stop = start + size_of([unit])
                _mark(unit, disposition, ack_ids[start:stop], failed)
                start = stop
        if failed:
            raise _refused(disposition, failed, len(ack_ids))

    def _keep_leases(self) -> None:
        if self._kept is not None:
            raise RuntimeError("these messages are already in a `with` block")
        settler = self._settler()
        self._kept = settler, settler.keep_leases(self._received())

    def _return_unsettled(self, raised: BaseException | None) -> Steps[None]:
        """Return the unsettled messages at the end of the block.

        If the block raised an error, the first unsettled message counts as the cause and is nacked.
        The block has not reached the other messages.
        """
        if self._kept is not None:
            settler, number = self._kept
            settler.stop_leases(number)
            self._kept = None
        unsettled = unsettled_in(self._received())
        failed: list[Unit] = []
        if unsettled and isinstance(raised, Exception):
            first, *others = messages_of(unsettled[:1])
            failed, unsettled = [first], [*others, *unsettled[1:]]
        for disposition, units in ((Disposition.NACK, failed), (Disposition.RETURN, unsettled)):
            try:
                yield from self._settle(disposition, 0, units)
            except PullstreamError as error:
                # The server redelivers these messages when their leases end.
                _log.warning("could not return all fetched messages: %s", error)


class LeasingBlock(FetchedUnits):
    """The `with` block of fetched messages."""

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


class AsyncLeasingBlock(FetchedUnits):
    """The `async with` block of fetched messages."""

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


def _mark(
    unit: Unit, disposition: Disposition, ack_ids: Sequence[str], failed: Mapping[str, object]
) -> None:
    """Note the disposition of the messages that the server did not refuse."""
    is_whole = failed.keys().isdisjoint(ack_ids)
    if isinstance(unit, Portion) and is_whole and unit.settle(disposition):
        return
    for message, ack_id in zip(messages_of([unit]), ack_ids, strict=True):
        if ack_id not in failed:
            message.settled = disposition


def seconds_of(name: str, seconds: float) -> int:
    """Return a delay in whole seconds, rounded up; raise ValueError if it is out of range."""
    if not 0 <= seconds <= 600:
        raise ValueError(f"{name} is {seconds}; it must be between 0 and 600 seconds")
    return math.ceil(seconds)


def lease_of(name: str, seconds: int) -> int:
    """Return the length of a lease; raise ValueError if it is out of range."""
    if not 1 <= seconds <= 600:
        raise ValueError(f"{name} is {seconds}; it must be between 1 and 600 (for 0 use nack())")
    return seconds
