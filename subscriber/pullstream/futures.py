"""Futures for users: of a running subscription or follower, and of one acknowledgement."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence

# The base class of all futures, under its name in the official client's `pubsub_v1.futures`.
from concurrent.futures import Future as Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pullstream_protocol import errors
from pullstream_protocol.clock import SYSTEM_CLOCK

from .runtime.lifecycle import SubscriptionState
from .runtime.process import SHUTDOWN_MARGIN, ForkCheck, InterruptibleFuture
from .runtime.validation import require_wait_time
from .statistics import Statistics

if TYPE_CHECKING:
    from .message import Message

# The broker's pytest fixtures listen to it: a test must not miss that a subscription has ended.
_log = logging.getLogger("pullstream.activity")

ShutdownMode = Literal["drain", "nack"]


class Subscription(Protocol):
    """The parts of a subscription that its StreamingPullFuture uses."""

    def stop(
        self,
        error: Exception | None = None,
        *,
        mode: ShutdownMode | None = None,
        timeout: float | None = None,
    ) -> None:
        """Begin the shutdown, with the error that caused it or None if the user asked for it."""

    def runs_here(self) -> bool:
        """Return whether the shutdown may have to wait for the calling thread."""

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters and the load."""

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        """Take over leases of another client; see `StreamingPullFuture.adopt`."""


class RunningFuture(InterruptibleFuture[bool], ABC):
    """The future of an activity that runs in the background until it is stopped.

    `result()` blocks until the end. It returns True if the user stopped the activity, and raises
    the error that ended it otherwise. The future works only in the process that created it.

    Attributes:
        ends_last: Whether the client stops this activity after the others. True for activities that
            return messages to the server: an activity that still waits for messages would receive
            them.
    """

    ends_last: ClassVar[bool] = False

    def __init__(self, activity: str = "") -> None:
        """Create the future of an activity that has begun.

        Args:
            activity: Name of the activity for the log, if it ends with an error that nobody has
                asked for. Default: the error is not logged.
        """
        super().__init__()
        self._fork = ForkCheck()
        self._activity = activity
        self._began_at = SYSTEM_CLOCK.monotonic()
        self._is_asked = False

    @abstractmethod
    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Begin the shutdown, and return at once. Idempotent. Any thread may call it."""

    @abstractmethod
    def runs_here(self) -> bool:
        """Return whether the shutdown has to wait for the calling thread."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn(future)` when the activity has ended, or now if it has.

        An error of `fn` is logged, and does not stop the other callbacks.

        Args:
            fn: A plain function of the future. It must be short.

        Raises:
            TypeError: `fn` is an `async def`, which nothing would await.
        """
        self._is_asked = True
        super().add_done_callback(fn)

    def when_done(self, fn: Callable[[Any], object]) -> None:
        """Call `fn(future)` at the end; for the SDK itself, which does not handle the error."""
        super().add_done_callback(fn)

    def set_exception(self, exception: BaseException | None) -> None:
        """End the activity with an error, and log it if nobody has asked for the result."""
        if exception is not None and self._activity and not self.was_asked():
            _log.error(
                "%s has ended: %s. %s. The program has not asked for this result; it can handle "
                "such errors by result() or add_done_callback() of the future",
                self._activity,
                _reason_of(exception),
                _remedy_for(exception),
                extra={"was_asked": _Asked(self), "began_at": self._began_at},
            )
        super().set_exception(exception)

    def was_asked(self) -> bool:
        """Return whether anybody waits or has waited for the result, or has a done callback."""
        # `concurrent.futures.wait` and `as_completed` add themselves to the waiters.
        return self._is_asked or bool(self._waiters)

    def _waits_for(self) -> str:
        """Return that the activity runs, and how it ends."""
        return "the activity still runs; cancel() or close() ends it"

    def cancel(self) -> bool:
        """Begin the shutdown, and return True at once. `result()` returns when it is over."""
        self.begin_close()
        return True

    def _close_and_wait(self, timeout: float | None, mode: ShutdownMode | None = None) -> bool:
        """Begin the shutdown and wait for it, unless it has to wait for the calling thread.

        Returns:
            Whether the activity has ended.
        """
        self.begin_close(timeout, mode)
        if not self.runs_here():
            self.wait_for_end(timeout)
        return self.done()

    def wait_for_end(self, timeout: float | None = None) -> None:
        """Wait until a shutdown with this time limit is over. Its error is not raised.

        Args:
            timeout: Seconds that the shutdown may still take; below 0 if its time is up. None: no
                limit.
        """
        self.wait_until_done(None if timeout is None else timeout + SHUTDOWN_MARGIN)

    def __await__(self) -> Generator[Any, None, bool]:
        """Wait for the end without blocking the event loop; otherwise the same as `result()`.

        If the waiting task is cancelled, the activity continues. With `asyncio.wrap_future` it
        would be stopped. After `cancel()`, `asyncio.wrap_future` also raises CancelledError,
        because `cancelled()` is True.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell(_: object) -> None:
            # On a closed loop, nothing waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self.add_done_callback(tell)
        yield from ended.wait().__await__()
        return self.result(0)

    def result(self, timeout: float | None = None) -> bool:
        """Wait for the end and return True if the user stopped the activity.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: The activity still runs.
            ForkedProcess: Another process created the future.
            Exception: The error that ended the activity.
        """
        self._fork.refuse_child()
        self._is_asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error that ended the activity, or None.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: The activity still runs.
            ForkedProcess: Another process created the future.
        """
        self._fork.refuse_child()
        self._is_asked = True
        return super().exception(timeout)

    def set_running_or_notify_cancel(self) -> bool:
        """Raise NotImplementedError: this future is running from the beginning."""
        raise NotImplementedError("this future is already running")


class _Asked:
    """Tells whether the program has asked for the result of an activity, for records of the log.

    A handler may send a record to another process. There, this is the present answer, a bool.

    Args:
        future: The future of the activity.
    """

    def __init__(self, future: RunningFuture) -> None:
        self._future = future

    def __call__(self) -> bool:
        return self._future.was_asked()

    def __repr__(self) -> str:
        return repr(self())

    def __reduce__(self) -> tuple[type[bool], tuple[bool]]:
        return bool, (self(),)


# What to do about an error that ended an activity, by its type; see `_remedy_for`.
_REMEDIES: dict[type[BaseException], str] = {
    errors.NotFound: "Create it, or correct its name or project",
    errors.PermissionDenied: "Grant the role that the call needs, such as roles/pubsub.subscriber",
    errors.Unauthenticated: "Pass valid credentials",
    errors.InvalidArgument: "Correct the argument",
    errors.FailedPrecondition: "Change the state of the resource that does not allow the call",
    errors.Unimplemented: "Use a server that has the call",
}


def _reason_of(error: BaseException) -> str:
    """Return an error as one line: its type and text."""
    text = error.message if isinstance(error, errors.RpcError) else str(error)
    return f"{type(error).__name__}: {' '.join(str(text).split())}".rstrip(".")


def _remedy_for(error: BaseException) -> str:
    """Return what to do about an error that ended an activity."""
    for kind, remedy in _REMEDIES.items():
        if isinstance(error, kind):
            return remedy
    return "Start it again when the cause is removed"


class StreamingPullFuture(RunningFuture):
    """A running subscription.

    `result()` blocks until the subscription is shut down. It returns True if the user shut it down,
    and raises the error that ended the stream otherwise. A callback that raises does not end the
    subscription.
    """

    def __init__(self, subscription: Subscription, activity: str = "") -> None:
        super().__init__(activity)
        self._subscription = subscription
        self._cancelled = False

    def cancel(self) -> bool:
        """Begin the shutdown and return at once; `result()` returns when it is over.

        Messages whose callback has not begun are nacked. Any thread may call this, also inside a
        callback, and more than once.

        Returns:
            True, as in the official client.
        """
        self.begin_close()
        return True

    def close(self, timeout: float | None = None, mode: ShutdownMode = "drain") -> bool:
        """Shut the subscription down and wait until it is over.

        A second call may speed up a shutdown in progress (with a shorter time limit or with
        "nack"), but cannot slow it down. Inside a callback, this method only begins the shutdown,
        because the shutdown has to wait for the callback.

        Args:
            timeout: Seconds for the whole shutdown. If callbacks still run when this time is nearly
                over, their messages are nacked. None (default): wait until the callbacks end.
            mode: "drain" (default): running callbacks finish, and their acks are sent. "nack": the
                messages of running callbacks are returned at once. With both, messages whose
                callback has not begun are nacked.

        Returns:
            Whether the subscription has ended. `exception()` returns the error that ended it, if
            any.

        Raises:
            ValueError: An argument is invalid.
            ForkedProcess: Another process created the subscription.
        """
        return self._close_and_wait(timeout, mode)

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Begin the shutdown without waiting; see `close`. Without a mode, it acts as `cancel`.

        Args:
            timeout: Seconds for the whole shutdown. None (default): no limit.
            mode: "drain" or "nack"; see `close`. None (default): `await_callbacks_on_shutdown` of
                `subscribe` decides.

        Raises:
            ValueError: An argument is invalid.
            ForkedProcess: Another process created the subscription.
        """
        self._fork.refuse_child()
        require_wait_time("timeout", timeout)
        if mode not in ("drain", "nack", None):
            raise ValueError(f'mode is {mode!r}; it must be "drain" or "nack"')
        self._cancelled = True
        self._subscription.stop(mode=mode, timeout=timeout)

    def runs_here(self) -> bool:
        """Return whether the shutdown may have to wait for the calling thread."""
        return self._subscription.runs_here()

    def cancelled(self) -> bool:
        """Return whether `cancel()` or `close()` was called.

        The future is still `running()` until the shutdown is over.
        """
        return self._cancelled

    def _waits_for(self) -> str:
        """Return the state of the subscription, and how it ends."""
        return f"the subscription is {self.state.value}; cancel() or close() ends it"

    @property
    def state(self) -> SubscriptionState:
        """The state: connecting, streaming, reconnecting, closing or closed."""
        return self.statistics().state

    def statistics(self) -> Statistics:
        """Return the counters and the present load of the subscription. Works at any time."""
        self._fork.refuse_child()
        return self._subscription.statistics()

    def adopt(self, ack_ids: Sequence[str], size: int = 0) -> list[Message]:
        """Take over leases that the server granted to another client, such as a dead process.

        From now on the SDK extends these leases, and counts them for flow control, until the
        returned messages are settled, as for received messages. A shutdown returns the unsettled
        ones to the server. The content of the messages is unknown: everything except `ack_id` is
        empty.

        Args:
            ack_ids: The ack IDs of the deliveries.
            size: Bytes of all these messages, for flow control. Default: 0.

        Returns:
            A message for each ack ID.
        """
        self._fork.refuse_child()
        return self._subscription.adopt(ack_ids, size)
