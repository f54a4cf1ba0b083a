"""The futures a user holds: of what runs, such as a subscription, and of one acknowledgement."""

from __future__ import annotations

import asyncio
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from .exceptions import AcknowledgeStatus, forked
from .statistics import Statistics
from .streaming.state import SubscriptionState

if TYPE_CHECKING:
    from .message import Message

ShutdownMode = Literal["drain", "nack"]

# A shutdown keeps its own time limit; a waiting `close` allows it this much more, in seconds.
_SHUTDOWN_MARGIN = 1.0

# A signal between the main thread's last look and its going to sleep wakes nobody (Python notes it
# and runs its handler when that thread next does something), and without a timeout Ctrl-C would be
# lost for good. So a waiting thread looks up this often, in seconds.
_LOOK_SECONDS = 0.5


class Subscription(Protocol):
    """What a StreamingPullFuture asks of the subscription that it stands for."""

    def stop(
        self,
        error: Exception | None = None,
        *,
        mode: ShutdownMode | None = None,
        timeout: float | None = None,
    ) -> None: ...

    def runs_here(self) -> bool: ...

    def statistics(self) -> Statistics: ...

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]: ...


class AckFuture(Future[AcknowledgeStatus]):
    """The outcome of `ack_with_response()` and its like.

    `result()` returns AcknowledgeStatus.SUCCESS once the server has said so, and raises
    AcknowledgeError otherwise. It always resolves, at the latest when the subscription is shut
    down. It cannot be cancelled: the request is on its way. Done callbacks should be short: the
    thread that runs them has the other acknowledgements to see to.
    """

    def cancel(self) -> bool:
        return False


class RunningFuture(Future[bool], ABC):
    """Something that runs in the background until it is told to stop.

    `result()` blocks until then: it returns True when the user asked for the end, and raises the
    error that was the end otherwise. Of use in the process only that made it.

    ends_last: of what runs on a client it is told to stop when the others have been told. So it is
        with what gives messages back: those that still wait for messages would get them.
    """

    ends_last: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    @abstractmethod
    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Tell it to stop, and return at once. Idempotent, from any thread."""

    @abstractmethod
    def runs_here(self) -> bool:
        """Whether the calling thread is one that its end has to wait for."""

    def cancel(self) -> bool:
        """Tell it to stop, and return at once; `result()` tells when it has. Returns True."""
        self.begin_close()
        return True

    def _close_and_wait(self, timeout: float | None, mode: ShutdownMode | None = None) -> bool:
        """Tell it to stop and wait for the end, but not where the end has to wait for the caller.

        Returns whether it is over.
        """
        self.begin_close(timeout, mode)
        if not self.runs_here():
            self.wait_for_end(timeout)
        return self.done()

    def wait_for_end(self, timeout: float | None = None) -> None:
        """Wait until a shutdown with this time limit is over, however it ended."""
        self._wait(None if timeout is None else timeout + _SHUTDOWN_MARGIN)

    def __await__(self) -> Generator[Any, None, bool]:
        """On an event loop: as `result()`, without blocking it.

        To cancel whoever awaits it does not end what runs. (`asyncio.wrap_future` does that; and
        after `cancel()` it raises CancelledError, as `cancelled()` is true then.)
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell(_: object) -> None:
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self.add_done_callback(tell)
        yield from ended.wait().__await__()
        return self.result(0)

    def running(self) -> bool:
        return not self.done()

    def result(self, timeout: float | None = None) -> bool:
        self._check_process()
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_process()
        self._wait(timeout)
        return super().exception(0)

    def set_running_or_notify_cancel(self) -> bool:
        """Not for this future, which is running from the first."""
        raise NotImplementedError("this future stands for what runs already")

    def _wait(self, timeout: float | None) -> None:
        """Return when it is over, or after so many seconds of real time."""
        left = math.inf if timeout is None else timeout
        while left > 0 and not self.done():
            with suppress(TimeoutError, FutureTimeoutError):
                super().exception(min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise forked(self._process)


class StreamingPullFuture(RunningFuture):
    """A running subscription.

    `result()` blocks until the subscription is shut down: it returns True when the user asked for
    it, and raises the error that ended the stream otherwise. Callbacks that raise do not end it.
    """

    def __init__(self, subscription: Subscription) -> None:
        super().__init__()
        self._subscription = subscription
        self._cancelled = False

    def cancel(self) -> bool:
        """Begin the shutdown and return at once; `result()` tells when it is over.

        Messages whose callback has not begun are nacked. Safe from any thread, also from inside a
        callback, and more than once. Returns True, as the official client does.
        """
        self.begin_close()
        return True

    def close(self, timeout: float | None = None, mode: ShutdownMode = "drain") -> bool:
        """Shut down and wait until it is over.

        Args:
            timeout: seconds for the whole shutdown. When callbacks still run as it nears its end,
                their messages are nacked. None: for as long as callbacks run.
            mode: "drain" lets running callbacks finish, and what they acknowledge is acknowledged;
                "nack" gives their messages back at once. Messages whose callback has not begun are
                nacked in both.

        A second call may hurry a shutdown that is under way (a shorter time, or "nack"), not slow
        it down. Inside a callback it only begins the shutdown, which has to wait for the callback.

        Returns:
            Whether the subscription is over. The error that ended it, if any, is `exception()`.
        """
        return self._close_and_wait(timeout, mode)

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """As `close`, but without waiting. With no mode it does what `cancel` does."""
        self._check_process()
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout is {timeout}; it must not be negative")
        if mode not in ("drain", "nack", None):
            raise ValueError(f'mode is {mode!r}; it must be "drain" or "nack"')
        self._cancelled = True
        self._subscription.stop(mode=mode, timeout=timeout)

    def runs_here(self) -> bool:
        return self._subscription.runs_here()

    def cancelled(self) -> bool:
        """Whether `cancel()` or `close()` was called. The future is still `running()` until all is
        shut down."""
        return self._cancelled

    @property
    def state(self) -> SubscriptionState:
        """Whether it is connecting, streaming, reconnecting, closing or closed."""
        return self.statistics().state

    def statistics(self) -> Statistics:
        """What the subscription has done, and what it holds now. May be asked at any time."""
        self._check_process()
        return self._subscription.statistics()

    def adopt(self, ack_ids: Sequence[str], size: int = 0) -> list[Message]:
        """Take on leases that were granted to somebody else, such as a process that has died.

        From now on they are extended, and count for flow control with `size` bytes in all, until
        the messages returned are settled, each as if it had been received here; a shutdown gives
        back those that are not. What they contain is not known here: all but `ack_id` is empty.
        """
        self._check_process()
        return self._subscription.adopt(ack_ids, size)
