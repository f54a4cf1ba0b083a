"""The lists of messages that `fetch` returns. They are settled one by one or as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pullstream.columns.portions import Unit
from pullstream.message import Disposition, Message, Reject, ResponseBatch
from pullstream.rpc.rpcs import Rpcs
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .background_settler import BackgroundSettler
from .settling import AsyncLeasingBlock, FetchedUnits, LeasingBlock, lease_of, seconds_of

if TYPE_CHECKING:
    from .protocol import Fetched


class _FetchedList(FetchedUnits, list[Message]):
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
        list.__init__(self)
        FetchedUnits.__init__(self, fetched.reason, subscription, rpcs, settler, clock)
        for received_at, response in fetched.responses:
            batch = ResponseBatch(self._dispositions, received_at, 0, response)
            batch.reject = reject
            self += batch.messages()

    def _received(self) -> Sequence[Unit]:
        return self


class FetchedMessages(_FetchedList, LeasingBlock):
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
        self._run(self._settle(Disposition.ACK))

    def nack(self, delay: float = 0) -> None:
        """Nack all unsettled messages, so that the server redelivers them.

        Args:
            delay: Seconds until the redelivery, 0 to 600, rounded up to whole seconds.

        Raises:
            AcknowledgeError: The server refused some or did not answer; they are still in
                `unsettled`.
            ValueError: The delay is out of range.
        """
        self._run(self._settle(Disposition.NACK, seconds_of("delay", delay)))

    def modify_ack_deadline(self, seconds: int) -> None:
        """Set the ack deadline of all unsettled messages.

        Args:
            seconds: The leases end this many seconds from now, 1 to 600.

        Raises:
            AcknowledgeError: The server refused some or did not answer.
            ValueError: The seconds are out of range.
        """
        self._run(self._settle(Disposition.EXTEND, lease_of("seconds", seconds)))


class AsyncFetchedMessages(_FetchedList, AsyncLeasingBlock):
    """FetchedMessages for an event loop.

    The methods of the list are coroutines, and the block is `async with`. The methods of a single
    message do not wait, and are plain methods.
    """

    async def ack(self) -> None:
        """Acknowledge all unsettled messages; see `FetchedMessages.ack`."""
        await self._run_async(self._settle(Disposition.ACK))

    async def nack(self, delay: float = 0) -> None:
        """Nack all unsettled messages; see `FetchedMessages.nack`."""
        seconds = seconds_of("delay", delay)
        await self._run_async(self._settle(Disposition.NACK, seconds))

    async def modify_ack_deadline(self, seconds: int) -> None:
        """Set the ack deadline; see `FetchedMessages.modify_ack_deadline`."""
        lease = lease_of("seconds", seconds)
        await self._run_async(self._settle(Disposition.EXTEND, lease))
