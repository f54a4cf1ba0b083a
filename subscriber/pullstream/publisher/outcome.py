"""Results of publishing: the outcome of a request, and the futures of its messages."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pullstream.exceptions import ForkedProcess
from pullstream.runtime.callback_kinds import refuse_awaitable, require_plain
from pullstream.runtime.process import (
    Latch,
    no_result_yet,
    run_done_callback,
    use_state_lock,
)
from pullstream.runtime.repeated_errors import RepeatedErrors

from .exceptions import PublishError

if TYPE_CHECKING:
    from typing_extensions import Self

_errors = RepeatedErrors(logging.getLogger("pullstream.publisher"))

T = TypeVar("T")

DoneCallback = Callable[[Any], Any]
# The done callbacks of a resolved outcome, which the owner of the outcome must run.
Callbacks = list[tuple["OutcomeFuture[Any]", DoneCallback]]


def _nothing() -> None:
    """Do nothing."""


def _no_reason() -> str:
    return "the result is not there yet"


class _Entry:
    """Something to do when an outcome is resolved. Compared by identity."""

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what: Any = what


class Outcome:
    """The result of one request, which the futures of all its messages share. Thread-safe.

    A thousand messages share one outcome, so a future costs two attributes.

    No method takes a lock: a signal handler may interrupt each one at any instruction, raise an
    exception there, or call another method. Nothing is lost, because two threads do two steps in
    opposite order. A thread that adds an entry then reads `resolved`. `resolve` sets `resolved`,
    and then takes the entries. So at least one of the two sees the other; if both do, the one that
    removes the entry acts.

    Attributes:
        on_wait: Called when a caller waits for the outcome.
        waits_for: Returns the reason why the outcome is unresolved, as a clause.
        resolved: Whether there is a result. It never changes back.
        message_ids: The message IDs, in the order of the messages. Empty after an error.
        error: The error, or None.
    """

    __slots__ = (
        "_callbacks",
        "_futures",
        "_latches",
        "_waiters",
        "_watchers",
        "error",
        "message_ids",
        "on_wait",
        "resolved",
        "waits_for",
    )

    def __init__(self) -> None:
        self.on_wait: Callable[[], object] = _nothing
        self.waits_for: Callable[[], str] = _no_reason
        self.resolved: bool = False
        self.message_ids: Sequence[str] = ()
        self.error: BaseException | None = None
        # Of the threads that wait.
        self._latches: list[Latch] = []
        # Futures whose state a thread may wait for, by functions of `concurrent.futures`.
        self._futures: list[_Entry] = []
        self._callbacks: list[_Entry] = []
        self._waiters: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        self._watchers: list[_Entry] = []

    def resolve(self, message_ids: Sequence[str], error: BaseException | None = None) -> Callbacks:
        """Set the result, and wake all waiting callers. Call it once.

        Args:
            message_ids: The message IDs; empty after an error.
            error: The error, or None.

        Returns:
            The done callbacks, which the caller must run.
        """
        self.message_ids = message_ids
        self.error = error
        self.resolved = True
        for latch in tuple(self._latches):
            latch.set()
        for future in _taken(self._futures):
            future.finish_state()
        for loop, waiters in list(self._waiters.items()):
            # On a closed loop, nothing waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, waiters)
        callbacks: Callbacks = list(_taken(self._callbacks))
        for watcher in _taken(self._watchers):
            callbacks += watcher()
        self._waiters = {}
        self.on_wait, self.waits_for = _nothing, _no_reason
        return callbacks

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the result, and return whether there is one.

        Args:
            timeout: Seconds of real time. None (default): no limit.
        """
        latch = Latch()
        self._latches.append(latch)
        try:
            if not self.resolved:
                latch.wait(timeout)
        finally:
            self._latches.remove(latch)
        return self.resolved

    def add_callback(self, future: OutcomeFuture[Any], callback: DoneCallback) -> None:
        """Run `callback(future)` after the outcome is resolved, or now if it is."""
        if self._is_left(self._callbacks, (future, callback)):
            # On the calling thread, which SystemExit may end.
            try:
                refuse_awaitable(callback(future), callback)
            except Exception as error:
                _errors.report(error, f"done callback {callback!r} of a publish future raised")

    def add_watcher(self, watcher: Callable[[], Callbacks]) -> bool:
        """Call `watcher`, which must be short, when the outcome is resolved.

        Returns:
            Whether the watcher has been or will be called. If not, the outcome was resolved before.
        """
        return not self._is_left(self._watchers, watcher)

    def add_future(self, future: OutcomeFuture[Any]) -> None:
        """Give a future the state of `concurrent.futures.Future`, and set its result in time."""
        future.begin_state()
        if self._is_left(self._futures, future):
            future.finish_state()

    def waiter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
        """Return a future of the loop that ends with this outcome, or None if it is resolved."""
        waiter = loop.create_future()
        self._waiters.setdefault(loop, []).append(waiter)
        return None if self.resolved else waiter

    def fail_in_child(self, error: ForkedProcess) -> None:
        """Resolve the outcome in a forked child, where no thread and no request exists."""
        if self.resolved:
            return
        for entry in tuple(self._futures):
            # A thread of the parent may have held its lock.
            entry.what.renew_lock()
        self._waiters = {}
        run_callbacks(self.resolve((), error))

    def _is_left(self, entries: list[_Entry], what: object) -> bool:
        """Add an entry; return whether the caller must act, because the outcome is resolved."""
        entry = _Entry(what)
        entries.append(entry)
        if not self.resolved:
            return False
        try:
            entries.remove(entry)
        except ValueError:
            # `resolve` has taken it.
            return False
        return True


def _taken(entries: list[_Entry]) -> Iterator[Any]:
    """Remove each entry and yield its content."""
    while entries:
        try:
            yield entries.pop(0).what
        except IndexError:
            # The thread that has added it was first.
            return


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def failed_outcome(error: BaseException) -> Outcome:
    """Return the outcome of messages that are not sent."""
    outcome = Outcome()
    outcome.resolve((), error)
    return outcome


def run_callbacks(callbacks: Callbacks) -> None:
    """Run the done callbacks of an outcome in their order. Their errors are logged."""
    for future, callback in callbacks:
        run_done_callback(callback, future)


class OutcomeFuture(Future[T], Generic[T]):
    """Base of the futures of an outcome.

    The state of `concurrent.futures.Future` costs 1.5 µs, so it is created when it is first used:
    `__getattr__` is called for the missing attributes. Most futures are only asked for a result
    that exists.
    """

    __slots__ = ("_outcome",)

    _outcome: Outcome

    _STATE = frozenset(
        ("_condition", "_done_callbacks", "_exception", "_result", "_state", "_waiters")
    )

    def __getattr__(self, name: str) -> Any:
        if name in self._STATE:
            self._outcome.add_future(self)
            return object.__getattribute__(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def begin_state(self) -> None:
        """Create the state of `concurrent.futures.Future`, except for the parts that exist.

        Two threads may come here with the same future. The first one that sets a part wins.
        """
        fresh: Future[T] = Future()
        use_state_lock(fresh)
        fresh.set_running_or_notify_cancel()
        for name, part in vars(fresh).items():
            self.__dict__.setdefault(name, part)

    def finish_state(self) -> None:
        """Set the result from the resolved outcome, unless another thread has set it."""
        error = self._error()
        with suppress(InvalidStateError):
            if error is None:
                self.set_result(self._value())
            else:
                self.set_exception(error)

    def renew_lock(self) -> None:
        """Replace the lock, which a thread that does not exist after a fork may have held."""
        use_state_lock(self)

    def _value(self) -> T:
        """Return the result of a success."""
        raise NotImplementedError

    def _error(self) -> BaseException | None:
        """Return the error of a failure, or None."""
        return self._outcome.error

    def result(self, timeout: float | None = None) -> T:
        """Wait for the server's answer and return the message ID, or the list of IDs.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: There is no answer yet. The text says what the message waits for.
            Exception: The error of the request.
        """
        if not self._outcome.resolved:
            self._wait(timeout)
        error = self._error()
        if error is not None:
            raise error
        return self._value()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the server's answer and return the error, or None.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: There is no answer yet.
        """
        if not self._outcome.resolved:
            self._wait(timeout)
        return self._error()

    def _wait(self, timeout: float | None) -> None:
        outcome = self._outcome
        outcome.on_wait()
        if not outcome.wait(timeout):
            raise no_result_yet(f"not confirmed after {timeout} s: {outcome.waits_for()}")

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._outcome.resolved

    def running(self) -> bool:
        """Return whether there is neither a result nor an error yet."""
        return not self._outcome.resolved

    def cancel(self) -> bool:
        """Return False: a message that was accepted cannot be withdrawn."""
        return False

    def cancelled(self) -> bool:
        """Return False; see `cancel`."""
        return False

    def add_done_callback(self, fn: Callable[[Self], Any]) -> None:
        """Call `fn(future)` when there is a result, on a thread of the client for callbacks.

        If there is a result already, `fn` runs on the calling thread. An error of `fn` is logged.

        Raises:
            TypeError: `fn` is an `async def`, which nothing would await.
        """
        require_plain("fn", fn)
        self._outcome.add_callback(self, fn)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result without blocking the event loop.

        If the waiting task is cancelled, the message is published all the same.
        """
        outcome = self._outcome
        if not outcome.resolved:
            outcome.on_wait()
            waiter = outcome.waiter(asyncio.get_running_loop())
            if waiter is not None:
                yield from waiter
        return self.result(0)

    def __repr__(self) -> str:
        error = self._error() if self.done() else None
        state = "pending" if not self.done() else "succeeded" if error is None else f"{error!r}"
        return f"<{type(self).__name__} {state}>"


class PublishFuture(OutcomeFuture[str]):
    """The result of `publish`: the message ID. It can be awaited.

    `result()` returns the ID once the server has confirmed the message, and raises the error
    otherwise. Every future is resolved, at the latest when the client is closed or the program
    ends.
    """

    __slots__ = ("_index",)

    def __init__(self, outcome: Outcome, index: int) -> None:
        """Create the future.

        Args:
            outcome: The outcome of the request with the message.
            index: Position of the message in the request.
        """
        self._outcome = outcome
        self._index = index

    def result(self, timeout: float | None = None) -> str:
        """Wait for the server's answer and return the message ID.

        Args:
            timeout: Seconds to wait. None (default): no limit.

        Raises:
            TimeoutError: There is no answer yet.
            Exception: The error of the request.
        """
        outcome = self._outcome
        if outcome.resolved and outcome.error is None:
            return outcome.message_ids[self._index]
        return super().result(timeout)

    def pass_on_to(self, outcome: Outcome) -> Callbacks:
        """Resolve another outcome, which has this message alone, when this future is resolved.

        Returns:
            The done callbacks to run now, if this future is resolved already.
        """
        outcome.waits_for = self._outcome.waits_for

        def resolve() -> Callbacks:
            error = self._error()
            return outcome.resolve(() if error else (self._value(),), error)

        return [] if self._outcome.add_watcher(resolve) else resolve()

    def _value(self) -> str:
        return self._outcome.message_ids[self._index]


class PublishManyFuture(OutcomeFuture[list[str]]):
    """The result of `publish_many`: the message IDs, in the order of the messages.

    If a request failed, `result()` raises a PublishError with the IDs of the other messages.
    """

    __slots__ = ("_failure", "_requests", "_resolved", "_total")

    def __init__(self, requests: Sequence[tuple[Outcome, Sequence[int]]], total: int) -> None:
        """Create the future.

        Args:
            requests: For each request its outcome, and the positions of its messages in the call.
            total: Number of messages.
        """
        self._requests = requests
        self._total = total
        self._failure: BaseException | None = None
        self._outcome = Outcome()
        self._outcome.on_wait = self._on_wait
        self._outcome.waits_for = self._waits_for
        # Counts the resolved requests, and this method. `next` is a single C call.
        self._resolved = itertools.count(1)
        for outcome, _ in requests:
            if not outcome.add_watcher(self._one_resolved):
                self._one_resolved()
        run_callbacks(self._one_resolved())

    def _on_wait(self) -> None:
        for outcome, _ in self._requests:
            outcome.on_wait()

    def _waits_for(self) -> str:
        waiting = [one for one in self._requests if not one[0].resolved]
        if not waiting:
            return _no_reason()
        messages = sum(len(positions) for _, positions in waiting)
        return f"{messages} of {self._total} messages wait: {waiting[0][0].waits_for()}"

    def _one_resolved(self) -> Callbacks:
        if next(self._resolved) <= len(self._requests):
            return []
        return self._outcome.resolve(())

    def _ids(self) -> list[str | None]:
        ids: list[str | None] = [None] * self._total
        for outcome, positions in self._requests:
            if outcome.error is not None:
                continue
            if isinstance(positions, range):
                ids[positions.start : positions.stop] = outcome.message_ids
                continue
            for position, message_id in zip(positions, outcome.message_ids, strict=True):
                ids[position] = message_id
        return ids

    def _value(self) -> list[str]:
        if len(self._requests) == 1:
            return list(self._requests[0][0].message_ids)
        # There is no None, because no request failed.
        return self._ids()  # type: ignore[return-value]

    def _error(self) -> BaseException | None:
        if self._failure is None:
            causes = [outcome.error for outcome, _ in self._requests if outcome.error is not None]
            if causes:
                ids = self._ids()
                self._failure = PublishError(
                    f"{ids.count(None)} of {self._total} messages are not confirmed: {causes[0]}",
                    ids,
                    causes,
                )
                self._failure.__cause__ = causes[0]
        return self._failure
