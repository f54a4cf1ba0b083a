"""The futures that a user holds behave as futures do, and cannot be broken by holding them."""

from __future__ import annotations

import asyncio
from concurrent import futures
from concurrent.futures import Future, wait

import pytest

from subscriber import AckFuture, StreamingPullFuture
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus


class Subscription:
    """What a future shuts down."""

    def __init__(self) -> None:
        self.stops = 0
        self.future = StreamingPullFuture(self.stop)

    def stop(self) -> None:
        self.stops += 1


def test_a_subscription_runs_until_it_is_shut_down() -> None:
    """Asking for the shutdown is not yet its end."""
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


def test_waiting_for_a_running_subscription_ends_with_the_timeout() -> None:
    """With the built-in error, and the subscription goes on."""
    subscription = Subscription()
    with pytest.raises(futures.TimeoutError):
        subscription.future.result(timeout=0.001)
    with pytest.raises(futures.TimeoutError):
        subscription.future.exception(timeout=0.001)
    assert subscription.stops == 0


def test_done_callbacks_are_called_with_it() -> None:
    """Before its end and after."""
    future = Subscription().future
    seen: list[Future[bool]] = []
    future.add_done_callback(seen.append)
    future.set_exception(ValueError("broken"))
    future.add_done_callback(seen.append)
    assert seen == [future, future]


def test_it_can_be_waited_for_with_others() -> None:
    """As any future of concurrent.futures."""
    ended, running = Subscription().future, Subscription().future
    ended.set_result(True)
    assert wait([ended, running], timeout=0.001) == ({ended}, {running})


def test_it_can_be_awaited() -> None:
    """Cancelling the waiter asks for the shutdown."""
    subscription = Subscription()

    async def give_up() -> None:
        waiter = asyncio.wrap_future(subscription.future)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    asyncio.run(give_up())
    assert subscription.stops == 1


def test_it_is_not_an_executors_future() -> None:
    """As with the official client; it is running from the first."""
    with pytest.raises(NotImplementedError):
        Subscription().future.set_running_or_notify_cancel()


def test_an_acknowledgement_cannot_be_called_back() -> None:
    """The request is on its way, and its result will be told."""
    future = AckFuture()
    assert future.cancel() is False
    assert not future.cancelled()
    future.set_result(AcknowledgeStatus.SUCCESS)
    assert future.result(timeout=0) is AcknowledgeStatus.SUCCESS


def test_a_failed_acknowledgement_tells_its_status_and_why() -> None:
    """In the error's attributes and in its text."""
    error = AcknowledgeError(AcknowledgeStatus.PERMISSION_DENIED, "not yours")
    assert (error.error_code, error.info) == (AcknowledgeStatus.PERMISSION_DENIED, "not yours")
    assert str(error) == "PERMISSION_DENIED: not yours"
    assert str(AcknowledgeError(AcknowledgeStatus.OTHER)) == "OTHER"
    assert "AcknowledgeStatus.OTHER" in repr(AcknowledgeError(AcknowledgeStatus.OTHER, "x"))
