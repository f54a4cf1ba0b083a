"""`client.fetch`: messages by synchronous pulls, and what a subscription's pulls are doing."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import Cancelled
from protocol.messages import pulls_pb2 as pulls
from subscriber.background import BackgroundClient
from subscriber.exceptions import SubscriberClosed
from subscriber.futures import RunningFuture, ShutdownMode
from subscriber.rpc import CallOptions
from subscriber.steps import run, run_async

from .messages import AsyncFetchedMessages, FetchedMessages
from .rules import GIVE_BACK_TIME, Fetch, Wanted
from .settler import Settler

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CLOSED = "this client is closed; make a new one to fetch"


class FetchingClient(BackgroundClient):
    """Fetches messages when asked to, and in no other way: nothing is got in advance."""

    _clock: Clock = SYSTEM_CLOCK

    def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
    ) -> FetchedMessages:
        """1 to `max_messages` messages: those that are there, or else the first that come.

        The messages are leased for the subscription's ack deadline; see FetchedMessages for how to
        settle them, and for `with`, which extends their leases. Any number of threads may fetch at
        a time. A Ctrl-C ends the wait at once, and the server is told that nobody waits any more.

        Args:
            subscription: full name, `projects/P/subscriptions/S`.
            max_messages: 1 or more.
            timeout: seconds for all of it; above 0. None: for ever.
            min_messages: wait until there are so many. When the time is up, fewer are returned.
                Their leases are extended meanwhile.
            no_wait: return what is there at once, which may be nothing. `timeout` then only limits
                how long the server may take to answer.

        Returns:
            A list, whose `reason` says why it ended: "filled", "drained" or "timed_out".

        Raises:
            PullTimeout: no message came in time. It is a TimeoutError.
            ResourceExhausted: too many calls wait on the subscription.
            NotFound, PermissionDenied, Unavailable, ...: the server refused, or is gone.
            TypeError, ValueError: an argument is of the wrong kind, or out of its range.
            SubscriberClosed: this client is closed, or was while the call waited.
            ForkedProcess: this client was made before a fork, in the parent.
        """
        wanted = Wanted(subscription, max_messages, timeout, min_messages, no_wait)
        with self._fetching(wanted) as fetch:
            fetched = run(fetch.steps(), self._rpcs, self._clock)
        return FetchedMessages(
            fetched, subscription, self._rpcs, partial(self._settler, subscription), self._clock
        )

    async def fetch_async(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
    ) -> AsyncFetchedMessages:
        """As `fetch`, on the running event loop. A cancelled task withdraws its call at once."""
        wanted = Wanted(subscription, max_messages, timeout, min_messages, no_wait)
        with self._fetching(wanted) as fetch:
            fetched = await run_async(fetch.steps(), self._rpcs, self._clock)
        return AsyncFetchedMessages(
            fetched, subscription, self._rpcs, partial(self._settler, subscription), self._clock
        )

    def subscription_state(
        self, subscription: str, **options: Unpack[CallOptions]
    ) -> pulls.SubscriptionState:
        """How many messages wait, are leased, come again, and how many calls wait for them.

        Only pullstream's broker tells.

        Raises:
            NotFound: there is no such subscription.
            Unimplemented: the server is another one.
        """
        response = pulls.SubscriptionState
        fields = {"subscription": subscription}
        return self._call("GetSubscriptionState", response, None, options, **fields)

    def set_max_waiting(
        self, subscription: str, max_waiting: int, **options: Unpack[CallOptions]
    ) -> pulls.SubscriptionState:
        """Let so many calls wait on a subscription at a time, 1 to 100,000; by default 512.

        Only pullstream's broker can be told. Raises as `subscription_state`, and:

        Raises:
            InvalidArgument: the number is out of its range.
        """
        fields = {"subscription": subscription, "max_waiting": max_waiting}
        return self._call("SetMaxWaiting", pulls.SubscriptionState, None, options, **fields)

    def _settler(self, subscription: str) -> Settler:
        """The one of a subscription; it begins when first asked for.

        Two threads that ask at once may make two, which do as well.
        """
        settler = self._settlers.get(subscription)
        if settler is None:
            settler = self._keep(lambda: Settler(self._rpcs, subscription, self._clock))
            self._settlers[subscription] = settler
        return settler

    @cached_property
    def _settlers(self) -> dict[str, Settler]:
        return {}

    @contextmanager
    def _fetching(self, wanted: Wanted) -> Iterator[Fetch]:
        """A fetch, which ends when the client is closed."""
        if self.closed:
            raise SubscriberClosed(_CLOSED)
        fetch = Fetch(wanted, self._clock)
        running = _RunningFetch(fetch)
        try:
            # One that does not wait ends by itself.
            if not wanted.no_wait:
                self._keep(lambda: running)
            yield fetch
        except Cancelled as error:
            # By nobody here: the connection was closed.
            if self.closed:
                raise SubscriberClosed(_CLOSED) from error
            raise
        finally:
            running.set_result(True)


class _RunningFetch(RunningFuture):
    """A fetch that is to give back what it holds before the connection ends, and is to take
    nothing of what is given back beside it.

    Made by the thread that runs the fetch; any other may close it.
    """

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self._fetch = fetch
        self._thread = threading.current_thread()
        self._give_up_at = math.inf

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        self._give_up_at = min(self._give_up_at, SYSTEM_CLOCK.monotonic() + GIVE_BACK_TIME)
        self._fetch.cancel()

    def runs_here(self) -> bool:
        return threading.current_thread() is self._thread

    def wait_for_end(self, timeout: float | None = None) -> None:
        # A server that answers nothing does not hold up the end for longer, nor once for each.
        left = self._give_up_at - SYSTEM_CLOCK.monotonic()
        self._wait(left if timeout is None else min(left, timeout))
