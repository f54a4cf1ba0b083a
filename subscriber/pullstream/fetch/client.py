"""`client.fetch`: messages by unary pulls, and the state of a subscription's pulls."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from pullstream.dead_letters import DeadLetters
from pullstream.exceptions import SubscriberClosed
from pullstream.futures import RunningFuture, ShutdownMode
from pullstream.rpc.background_client import BackgroundClient
from pullstream.rpc.rpcs import CallOptions
from pullstream.rpc.sansio import run, run_async
from pullstream.runtime.validation import require_bool
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import Cancelled
from pullstream_protocol.messages import pulls_pb2 as pulls

from .background_settler import BackgroundSettler
from .columns import AsyncFetchedColumns, FetchedColumns
from .messages import AsyncFetchedMessages, FetchedMessages
from .protocol import RETURN_TIME, Fetch, Wanted

if TYPE_CHECKING:
    from typing_extensions import Unpack

AnyFetched = TypeVar("AnyFetched", AsyncFetchedMessages, AsyncFetchedColumns)

_CLOSED = "this client is closed; create a new one to fetch"


class FetchingClient(BackgroundClient):
    """Fetches messages only on request: no message is pulled in advance."""

    _clock: Clock = SYSTEM_CLOCK

    @cached_property
    def _dead_letters(self) -> DeadLetters:
        return DeadLetters(self._rpcs)

    @overload
    def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
        *,
        missing_ok: bool = False,
        columns: Literal[False] = False,
    ) -> FetchedMessages: ...

    @overload
    def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
        *,
        missing_ok: bool = False,
        columns: Literal[True],
    ) -> FetchedColumns: ...

    def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
        *,
        missing_ok: bool = False,
        columns: bool = False,
    ) -> FetchedMessages | FetchedColumns:
        """Fetch 1 to `max_messages` messages: the available ones, or else the first to arrive.

        The messages are leased for the subscription's ack deadline. FetchedMessages describes how
        to settle them, and `with`, which extends their leases. Any number of threads may fetch at a
        time. Ctrl-C ends the wait immediately and withdraws the call from the server.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            max_messages: Largest number of messages to return; 1 or more.
            timeout: Seconds for the whole fetch; above 0. None: no limit.
            min_messages: Wait for at least this many messages, and extend their leases meanwhile.
                When the time is up, fewer are returned.
            no_wait: Return the available messages immediately, possibly none. `timeout` then only
                limits how long the server may take to answer.
            missing_ok: If no message arrives in time, return an empty list instead of raising
                PullTimeout. It is still an error if the server does not answer at all.
            columns: Return FetchedColumns, which have no object for each message. Default: False.

        Returns:
            A list or columns, whose `reason` says why the fetch ended: "filled", "drained" or
            "timed_out".

        Raises:
            PullTimeout: No message arrived in time, and `missing_ok` is False; or the server has
                not answered. It is a TimeoutError.
            ResourceExhausted: Too many calls wait on the subscription.
            NotFound, PermissionDenied, Unavailable, ...: the server refused, or is unreachable.
            TypeError, ValueError: an argument has the wrong type, or is out of range.
            SubscriberClosed: This client is closed, or was closed while the call waited.
            ForkedProcess: This client was created in the parent, before a fork.
        """
        wanted = Wanted(subscription, max_messages, timeout, min_messages, no_wait, missing_ok)
        require_bool("columns", columns)
        with self._fetching(wanted) as fetch:
            fetched = run(fetch.steps(), self._rpcs, self._clock)
        kind = FetchedColumns if columns else FetchedMessages
        return kind(
            fetched,
            subscription,
            self._rpcs,
            partial(self._settler, subscription),
            self._clock,
            partial(self._dead_letters.publish, subscription),
        )

    def subscription_state(
        self, subscription: str, **options: Unpack[CallOptions]
    ) -> pulls.SubscriptionState:
        """Return the number of messages that wait, are leased or await redelivery, and of calls.

        Only pullstream's broker supports this.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            **options: Options of the call.

        Raises:
            NotFound: There is no such subscription.
            Unimplemented: The server is not pullstream's broker.
        """
        response = pulls.SubscriptionState
        fields = {"subscription": subscription}
        return self._call("GetSubscriptionState", response, None, options, **fields)

    def set_max_waiting(
        self, subscription: str, max_waiting: int, **options: Unpack[CallOptions]
    ) -> pulls.SubscriptionState:
        """Set how many calls may wait on a subscription at a time.

        Only pullstream's broker supports this.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            max_waiting: 1 to 100,000; 512 if it was never set.
            **options: Options of the call.

        Raises:
            InvalidArgument: The number is out of range.
            NotFound: There is no such subscription.
            Unimplemented: The server is not pullstream's broker.
        """
        fields = {"subscription": subscription, "max_waiting": max_waiting}
        return self._call("SetMaxWaiting", pulls.SubscriptionState, None, options, **fields)

    def _settler(self, subscription: str) -> BackgroundSettler:
        """Return the settler of a subscription, which starts with the first call.

        Two concurrent calls may create two settlers, which is harmless.
        """
        settler = self._settlers.get(subscription)
        if settler is None:
            rpcs, clock = self._rpcs, self._clock
            settler = self._keep(
                lambda: BackgroundSettler(rpcs, subscription, clock), outlives_client=False
            )
            # The fetched messages hold the client. Without them, there is nothing to do.
            weakref.finalize(self, settler.release).atexit = False
            self._settlers[subscription] = settler
        return settler

    @cached_property
    def _settlers(self) -> dict[str, BackgroundSettler]:
        return {}

    @contextmanager
    def _fetching(self, wanted: Wanted) -> Iterator[Fetch]:
        """Provide a fetch that ends when the client is closed."""
        if self.closed:
            raise SubscriberClosed(_CLOSED)
        fetch = Fetch(wanted, self._clock)
        running = _RunningFetch(fetch)
        try:
            # A fetch that does not wait ends without being cancelled.
            if not wanted.no_wait:
                self._keep(lambda: running)
            yield fetch
        except Cancelled as error:
            # No caller cancelled the call: the connection was closed.
            if self.closed:
                raise SubscriberClosed(_CLOSED) from error
            raise
        finally:
            running.set_result(True)


async def fetch_async(client: FetchingClient, wanted: Wanted, kind: type[AnyFetched]) -> AnyFetched:
    """Fetch on the running event loop. A cancelled task withdraws its call immediately.

    Args:
        client: The client whose connection is used, and whose `close` ends the fetch.
        wanted: The arguments of the fetch.
        kind: The class of the result.

    Returns:
        The messages, whose `reason` says why the fetch ended: "filled", "drained" or "timed_out".

    Raises:
        PullTimeout: As for `FetchingClient.fetch`; so are the other errors.
    """
    rpcs, clock, subscription = client._rpcs, client._clock, wanted.subscription
    with client._fetching(wanted) as fetch:
        fetched = await run_async(fetch.steps(), rpcs, clock)
    return kind(
        fetched,
        subscription,
        rpcs,
        partial(client._settler, subscription),
        clock,
        partial(client._dead_letters.publish, subscription),
    )


class _RunningFetch(RunningFuture):
    """A running fetch, as the client closes it.

    Closing cancels the fetch. It then returns its messages before the connection ends, and receives
    no messages that other fetches return at the same time. The thread that runs the fetch creates
    this object; any other thread may close it.
    """

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self._fetch = fetch
        self._thread = threading.current_thread()
        self._give_up_at = math.inf

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        self._give_up_at = min(self._give_up_at, SYSTEM_CLOCK.monotonic() + RETURN_TIME)
        self._fetch.cancel()

    def runs_here(self) -> bool:
        return threading.current_thread() is self._thread

    def wait_for_end(self, timeout: float | None = None) -> None:
        # Limited by one end time, so that a silent server delays the close only once, and not once
        # for each fetch.
        left = self._give_up_at - SYSTEM_CLOCK.monotonic()
        self.wait_until_done(left if timeout is None else min(left, timeout))
