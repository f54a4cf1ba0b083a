"""The columns of messages that `fetch(columns=True)` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pullstream.columns.message_columns import ReceivedColumns
from pullstream.columns.portions import Portion, Unit
from pullstream.lazy_messages import RawResponse
from pullstream.message import Disposition, Reject, ResponseBatch
from pullstream.rpc.rpcs import Rpcs
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock

from .background_settler import BackgroundSettler
from .settling import AsyncLeasingBlock, FetchedUnits, LeasingBlock, lease_of, seconds_of

if TYPE_CHECKING:
    from .protocol import Fetched


class _FetchedColumns(FetchedUnits, ReceivedColumns):
    """Base of FetchedColumns and AsyncFetchedColumns."""

    def __init__(
        self,
        fetched: Fetched,
        subscription: str,
        rpcs: Rpcs,
        settler: Callable[[], BackgroundSettler],
        clock: Clock,
        reject: Reject | None = None,
    ) -> None:
        FetchedUnits.__init__(self, fetched.reason, subscription, rpcs, settler, clock)
        portions: list[Portion] = []
        lock = CallLock()
        for received_at, response in fetched.responses:
            raw = RawResponse(response.SerializeToString())
            batch = ResponseBatch(self._dispositions, received_at, 0, raw)
            batch.reject = reject
            portions.append(Portion(batch, 0, len(batch.received), lock))
        ReceivedColumns.__init__(self, portions)

    def _received(self) -> Sequence[Unit]:
        return self._units


class FetchedColumns(_FetchedColumns, LeasingBlock):
    """The columns of the messages of one fetch, without an object for each message.

    `ack()`, `nack()` and `modify_ack_deadline()` are one call for many messages, and return when
    the server has answered. Iterating yields ordinary messages. A `with` block extends the leases
    of unsettled messages, as for FetchedMessages:

        with client.fetch(subscription, 1000, columns=True) as columns:
            store(columns.to_arrow())
            columns.ack()

    Attributes:
        reason: Why the fetch ended, as in FetchedMessages.
    """

    def ack(self) -> None:
        """Acknowledge all unsettled messages.

        Raises:
            AcknowledgeError: The server refused some or did not answer. They stay unsettled.
        """
        self._run(self._settle(Disposition.ACK))

    def nack(self, mask: Iterable[bool] | None = None, *, delay: float = 0) -> None:
        """Nack unsettled messages, so that the server redelivers them.

        Args:
            mask: One bool for each message: whether to nack it. Also a numpy or Arrow array of
                bools. None (default): nack every message.
            delay: Seconds until the redelivery, 0 to 600, rounded up to whole seconds.

        Raises:
            AcknowledgeError: The server refused some or did not answer. They stay unsettled.
            TypeError: A value of the mask is not a bool.
            ValueError: The mask does not have one value for each message, or the delay is out of
                range.
        """
        seconds = seconds_of("delay", delay)
        self._run(self._settle(Disposition.NACK, seconds, self._chosen(mask)))

    def modify_ack_deadline(self, seconds: int) -> None:
        """Set the ack deadline of all unsettled messages.

        Args:
            seconds: The leases end this many seconds from now, 1 to 600.

        Raises:
            AcknowledgeError: The server refused some or did not answer.
            ValueError: The seconds are out of range.
        """
        self._run(self._settle(Disposition.EXTEND, lease_of("seconds", seconds)))


class AsyncFetchedColumns(_FetchedColumns, AsyncLeasingBlock):
    """FetchedColumns for an event loop: the methods are coroutines, and the block is `async with`.

    The methods of a single message do not wait, and are plain methods.
    """

    async def ack(self) -> None:
        """Acknowledge all unsettled messages; see `FetchedColumns.ack`."""
        await self._run_async(self._settle(Disposition.ACK))

    async def nack(self, mask: Iterable[bool] | None = None, *, delay: float = 0) -> None:
        """Nack unsettled messages; see `FetchedColumns.nack`."""
        seconds = seconds_of("delay", delay)
        await self._run_async(self._settle(Disposition.NACK, seconds, self._chosen(mask)))

    async def modify_ack_deadline(self, seconds: int) -> None:
        """Set the ack deadline; see `FetchedColumns.modify_ack_deadline`."""
        await self._run_async(self._settle(Disposition.EXTEND, lease_of("seconds", seconds)))
