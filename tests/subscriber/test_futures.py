"""The futures that a user holds behave as futures do, and the user cannot break them."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from pullstream import AckFuture, Message, StreamingPullFuture
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus, ForkedProcess
from pullstream.futures import ShutdownMode
from pullstream.publisher import PublishFuture
from pullstream.publisher.outcome import Outcome, PublishManyFuture
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.runtime.process import Latch
from pullstream.statistics import Statistics
from tests.subscriber.interruptions import interrupted
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import on_threads


class Subscription:
    """A subscription that records the shutdowns and questions of its future."""

    def __init__(self, *, ends: bool = False, here: bool = False) -> None:
        self.asked: list[tuple[ShutdownMode | None, float | None]] = []
        self.now = Statistics(SubscriptionState.STREAMING, since=5.0, received=3)
        self._ends = ends
        self._here = here
        self.future = StreamingPullFuture(self)

    def stop(
        self,
        error: Exception | None = None,
        *,
        mode: ShutdownMode | None = None,
        timeout: float | None = None,
    ) -> None:
        assert error is None
        self.asked.append((mode, timeout))
        if self._ends:
            self.future.set_result(True)

    def runs_here(self) -> bool:
        return self._here

    def statistics(self) -> Statistics:
        return self.now

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        raise NotImplementedError

    @property
    def stops(self) -> int:
        return len(self.asked)


class Interrupted(Exception):
    """The exception of a signal handler, like Python's own KeyboardInterrupt."""


def interrupt_asleep(sleeper: int) -> None:
    """Send a signal to this thread while the main thread sleeps on a future, without waking it.

    This happens if a signal comes between the main thread's last look and its sleep.
    """
    while sys._current_frames()[sleeper].f_code is not Latch.wait.__code__:
        os.sched_yield()
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)


@pytest.mark.parametrize("timeout", [None, 2 * TIMEOUT], ids=["forever", "with a timeout"])
@pytest.mark.parametrize("wait_with", ["result", "exception", "close"])
def test_a_wait_for_a_future_ends_for_a_signal_that_interrupts_no_system_call(
    wait_with: str, timeout: float | None
) -> None:
    def handle(*_: object) -> None:
        raise Interrupted

    future = Subscription().future
    rescue = threading.Timer(TIMEOUT, future.set_result, [True])
    other = threading.Thread(target=interrupt_asleep, args=[threading.get_ident()])
    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        rescue.start()
        other.start()
        with pytest.raises(Interrupted):
            getattr(future, wait_with)(timeout)
        assert not future.done(), "the signal was seen only when the wait was over"
    finally:
        other.join()
        rescue.cancel()
        signal.signal(signal.SIGUSR1, previous)


def is_interrupted(call: Callable[[], object], instruction: int) -> bool:
    """Call a function, and raise KeyboardInterrupt at the given bytecode instruction.

    Returns:
        False if the call ended before it came to this instruction.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        with suppress(TimeoutError, futures.TimeoutError):
            interrupted(call, interrupt, instruction, code="")
    except KeyboardInterrupt:
        return True
    return False


def running_future() -> tuple[Future[Any], Callable[[], object]]:
    future = Subscription().future
    return future, lambda: future.set_result(True)


def ack_future() -> tuple[Future[Any], Callable[[], object]]:
    future = AckFuture()
    return future, lambda: future.set_result(AcknowledgeStatus.SUCCESS)


def publish_future() -> tuple[Future[Any], Callable[[], object]]:
    outcome = Outcome()
    return PublishFuture(outcome, 0), lambda: outcome.resolve(["7"])


def publish_many_future() -> tuple[Future[Any], Callable[[], object]]:
    outcome = Outcome()
    return PublishManyFuture([(outcome, range(1))], 1), lambda: outcome.resolve(["7"])


every_kind = pytest.mark.parametrize(
    "make",
    [running_future, ack_future, publish_future, publish_many_future],
    ids=["subscription", "ack", "publish", "publish_many"],
)


@every_kind
@pytest.mark.parametrize("method", ["result", "exception", "done", "running"])
def test_ctrl_c_at_any_instruction_of_a_future_leaves_the_future_usable(
    make: Callable[[], tuple[Future[Any], Callable[[], object]]], method: str
) -> None:
    """The waiting thread gets KeyboardInterrupt, and the thread with the result is not blocked."""
    arguments = [0.001] if method in ("result", "exception") else []
    for instruction in itertools.count():
        future, resolve = make()
        if not is_interrupted(partial(getattr(future, method), *arguments), instruction):
            break
        other = threading.Thread(target=resolve, daemon=True)
        other.start()
        other.join(TIMEOUT)
        assert not other.is_alive(), f"instruction {instruction}"
        assert future.result(timeout=TIMEOUT)
        assert future.exception(timeout=TIMEOUT) is None
    assert instruction > 0


@every_kind
def test_the_lock_of_a_future_has_no_python_code_that_ctrl_c_could_interrupt(
    make: Callable[[], tuple[Future[Any], Callable[[], object]]],
) -> None:
    """A function in Python, as of threading.Condition, would keep the lock after a Ctrl-C in it."""
    future, _ = make()
    kind = type(future._condition)
    assert not inspect.isfunction(kind.__enter__)
    assert not inspect.isfunction(kind.__exit__)


def test_an_interrupted_wait_for_a_future_does_not_block_other_threads_that_wait_for_it() -> None:
    """The interrupted waiter may keep the lock that the others wait for."""
    latch = Latch()
    with on_threads(latch.wait):
        latch.is_set = True


def test_a_subscription_future_is_done_only_after_the_shutdown_of_the_subscription() -> None:
    """The request of a shutdown is not the end."""
    subscription = Subscription()
    future = subscription.future
    assert (future.running(), future.cancelled(), future.done()) == (True, False, False)
    assert future.cancel() is True
    assert future.cancel() is True
    assert subscription.stops == 2
    assert (future.running(), future.cancelled(), future.done()) == (True, True, False)
    future.set_result(True)
    assert (future.running(), future.cancelled(), future.done()) == (False, True, True)
    assert future.result(timeout=0) is True


def test_a_timeout_of_the_result_of_a_subscription_future_does_not_end_the_subscription() -> None:
    """The error is the built-in one, and the subscription continues."""
    subscription = Subscription()
    with pytest.raises(futures.TimeoutError):
        subscription.future.result(timeout=0.001)
    with pytest.raises(futures.TimeoutError):
        subscription.future.exception(timeout=0.001)
    assert subscription.stops == 0


def test_done_callbacks_of_a_subscription_future_are_called_with_that_future() -> None:
    """The callbacks may be added before the end and after."""
    future = Subscription().future
    seen: list[Future[bool]] = []
    future.add_done_callback(seen.append)
    future.set_exception(ValueError("broken"))
    future.add_done_callback(seen.append)
    assert seen == [future, future]


def test_the_function_concurrent_futures_wait_accepts_a_subscription_future() -> None:
    """A subscription future is a normal future of concurrent.futures."""
    ended, running = Subscription().future, Subscription().future
    ended.set_result(True)
    assert wait([ended, running], timeout=0.001) == ({ended}, {running})


def test_a_subscription_future_can_be_awaited() -> None:
    """The await works after `cancel()` too, and from another event loop."""
    subscription = Subscription(ends=True)

    async def wait_for_the_end() -> bool:
        subscription.future.cancel()
        return await subscription.future

    assert asyncio.run(wait_for_the_end()) is True


async def test_awaiting_a_subscription_future_raises_the_error_of_the_subscription() -> None:
    future = Subscription().future
    threading.Timer(0.0, future.set_exception, [ValueError("broken")]).start()
    with pytest.raises(ValueError, match="broken"):
        await future


def test_a_cancelled_task_that_awaits_a_subscription_future_does_not_end_the_subscription() -> None:
    """The caller of `result()` may give up in the same way."""
    subscription = Subscription()

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(subscription.future, 0.001)

    asyncio.run(give_up())
    assert subscription.stops == 0
    subscription.future.set_result(True)


def test_cancelling_the_asyncio_wrapper_of_a_subscription_future_ends_the_subscription() -> None:
    """A subscription future is a normal future of concurrent.futures."""
    subscription = Subscription()

    async def give_up() -> None:
        waiter = asyncio.wrap_future(subscription.future)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    asyncio.run(give_up())
    assert subscription.stops == 1


def test_a_subscription_future_is_running_from_the_start_and_no_executor_can_start_it() -> None:
    """As in the official client, the future is running from the beginning."""
    with pytest.raises(NotImplementedError):
        Subscription().future.set_running_or_notify_cancel()


def test_closing_a_subscription_waits_for_its_end_by_default() -> None:
    """By default, the close has no time limit and waits for running callbacks."""
    subscription = Subscription(ends=True)
    assert subscription.future.close() is True
    assert subscription.asked == [("drain", None)]
    assert subscription.future.cancelled()


@pytest.mark.parametrize("mode", ["drain", "nack"])
def test_the_result_of_a_subscription_close_is_false_after_its_timeout(
    mode: ShutdownMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is False, and the shutdown continues."""
    monkeypatch.setattr("pullstream.futures.SHUTDOWN_MARGIN", 0.01)
    subscription = Subscription()
    assert subscription.future.close(0.0, mode) is False
    assert subscription.asked == [(mode, 0.0)]
    assert subscription.future.running()


def test_closing_a_subscription_in_its_own_callback_does_not_wait_for_the_end() -> None:
    """Inside a callback, `close` only begins the shutdown and needs no limit."""
    subscription = Subscription(here=True)
    assert subscription.future.close() is False
    assert subscription.asked == [("drain", None)]


def test_the_result_of_closing_a_failed_subscription_is_true_and_raises_no_error() -> None:
    """The result of `close` is only whether the subscription is over."""
    future = Subscription().future
    future.set_exception(ValueError("broken"))
    assert future.close() is True
    assert str(future.exception()) == "broken"


@pytest.mark.parametrize(
    ("timeout", "mode", "problem"),
    [
        (-0.1, "drain", "timeout is -0.1; it must not be negative"),
        (None, "now", 'mode is \'now\'; it must be "drain" or "nack"'),
    ],
)
def test_closing_a_subscription_with_an_invalid_argument_raises_and_begins_no_shutdown(
    timeout: float | None, mode: ShutdownMode, problem: str
) -> None:
    """The error names the argument and the allowed values."""
    subscription = Subscription()
    with pytest.raises(ValueError, match=problem):
        subscription.future.close(timeout, mode)
    assert (subscription.stops, subscription.future.cancelled()) == (0, False)


def test_a_subscription_future_provides_the_statistics_and_the_state_of_its_subscription() -> None:
    """The future has all statistics, or the state alone."""
    subscription = Subscription()
    assert subscription.future.statistics() is subscription.now
    assert subscription.future.state is SubscriptionState.STREAMING


@pytest.mark.parametrize(
    "use",
    [
        StreamingPullFuture.cancel,
        StreamingPullFuture.close,
        StreamingPullFuture.result,
        StreamingPullFuture.exception,
    ],
)
def test_every_wait_for_a_subscription_future_in_a_forked_child_raises_an_error(
    use: Callable[[StreamingPullFuture], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child has no thread that could end the wait."""
    subscription = Subscription()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(ForkedProcess, match=f"made in process {here} and is used in .* {here + 1}"):
        use(subscription.future)
    assert (subscription.stops, subscription.future.cancelled()) == (0, False)


def test_an_acknowledgement_future_cannot_be_cancelled() -> None:
    """The request is on its way, and its result will be reported."""
    future = AckFuture()
    assert future.cancel() is False
    assert not future.cancelled()
    future.set_result(AcknowledgeStatus.SUCCESS)
    assert future.result(timeout=0) is AcknowledgeStatus.SUCCESS


def test_the_error_of_a_failed_acknowledgement_contains_status_and_reason() -> None:
    """The error's attributes and its text have both."""
    error = AcknowledgeError(AcknowledgeStatus.PERMISSION_DENIED, "not yours")
    assert (error.error_code, error.info) == (AcknowledgeStatus.PERMISSION_DENIED, "not yours")
    assert str(error) == "PERMISSION_DENIED: not yours"
    assert str(AcknowledgeError(AcknowledgeStatus.OTHER)) == "OTHER"
    assert "AcknowledgeStatus.OTHER" in repr(AcknowledgeError(AcknowledgeStatus.OTHER, "x"))


def test_the_timeout_error_of_a_future_names_the_event_that_the_future_waits_for() -> None:
    """A program that prints the error gets more than its name."""
    with pytest.raises(futures.TimeoutError, match="no result after 0 s: the server has not conf"):
        AckFuture().result(0)
    with pytest.raises(futures.TimeoutError, match="no result after 0 s: the subscription is stre"):
        Subscription().future.exception(0)
