"""The time limit of a shutdown, and its waiting for callbacks: both can only shrink."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pullstream.futures import ShutdownMode
from pullstream.streaming.shutdown import ShutdownDeadline
from pullstream_protocol.clock import ManualClock
from tests.subscriber.clocks import WatchedClock
from tests.subscriber.streaming.fakes import TIMEOUT


def test_without_a_timeout_each_step_of_a_subscription_shutdown_has_its_own_time_limit() -> None:
    """Callbacks may also take any time."""
    clock = ManualClock()
    terms = ShutdownDeadline(clock)
    terms.tighten("drain", None)
    clock.advance(1_000)
    assert (terms.drains, terms.left(10.0)) == (True, 10.0)


def test_all_steps_of_a_subscription_shutdown_share_one_deadline() -> None:
    """The time used by one step is missing for the next, and it is never negative."""
    clock = ManualClock()
    terms = ShutdownDeadline(clock)
    terms.tighten("drain", 12.0)
    assert terms.left(10.0) == 10.0
    clock.advance(7)
    assert terms.left(10.0) == 5.0
    clock.advance(7)
    assert terms.left(10.0) == 0.0


@pytest.mark.parametrize(
    ("asked", "drains", "left"),
    [
        ([("drain", 20.0), ("drain", 5.0)], True, 5.0),
        ([("drain", 5.0), ("drain", 20.0)], True, 5.0),
        ([("drain", 5.0), ("drain", None)], True, 5.0),
        ([("drain", None), ("nack", None)], False, 99.0),
        ([("nack", None), ("drain", None)], False, 99.0),
        ([("drain", None), ("nack", 3.0)], False, 3.0),
        ([("nack", 3.0), ("drain", 0.0)], False, 0.0),
    ],
)
def test_a_second_shutdown_request_can_only_shorten_a_subscriptions_shutdown(
    asked: list[tuple[ShutdownMode, float | None]], drains: bool, left: float
) -> None:
    """The earliest time limit and the mode without waiting win."""
    terms = ShutdownDeadline(ManualClock())
    for mode, timeout in asked:
        terms.tighten(mode, timeout)
    assert (terms.drains, terms.left(99.0)) == (drains, left)


def test_the_timeout_of_a_second_shutdown_request_counts_from_the_time_of_that_request() -> None:
    """The time counts from the new request, so either deadline may be the earlier one."""
    clock = ManualClock()
    terms = ShutdownDeadline(clock)
    terms.tighten("drain", 10.0)
    clock.advance(7)
    terms.tighten("drain", 5.0)
    assert terms.left(99.0) == 3.0
    terms.tighten("drain", 1.0)
    assert terms.left(99.0) == 1.0


class Waiting:
    """A thread that waits for callbacks."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.clock = WatchedClock()
        self.terms = ShutdownDeadline(self.clock)
        self.done = threading.Event()
        self._pool = pool

    def begin(self) -> Future[None]:
        """Return when the thread waits."""
        waiting = self._pool.submit(self.terms.wait_while_draining, self.done.is_set)
        self.clock.wait_until_watched()
        return waiting


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    with ThreadPoolExecutor(1) as pool:
        one = Waiting(pool)
        yield one
        one.done.set()
        one.terms.check_again()


def test_a_draining_shutdown_stops_waiting_when_all_callbacks_have_ended(waiting: Waiting) -> None:
    """A check before that changes nothing. Afterwards the clock has no timer."""
    wait = waiting.begin()
    waiting.terms.check_again()
    with pytest.raises(futures.TimeoutError):
        wait.result(timeout=0.05)
    waiting.done.set()
    waiting.terms.check_again()
    assert wait.result(TIMEOUT) is None
    assert waiting.clock._wakers == []


@pytest.mark.parametrize(("timeout", "reserve"), [(5.0, 1.0), (10.0, 2.0), (100.0, 2.0)])
def test_a_draining_shutdown_leaves_time_to_return_messages_to_the_server(
    waiting: Waiting, timeout: float, reserve: float
) -> None:
    """The wait leaves a fifth of the time, at most two seconds, to return the messages."""
    waiting.terms.tighten("drain", timeout)
    wait = waiting.begin()
    waiting.clock.advance(timeout - reserve - 0.1)
    with pytest.raises(futures.TimeoutError):
        wait.result(timeout=0.05)
    waiting.clock.advance(0.2)
    assert wait.result(TIMEOUT) is None
    assert waiting.terms.left(99.0) == pytest.approx(reserve - 0.1)


def test_a_draining_shutdown_waits_no_more_when_a_nack_shutdown_is_requested(
    waiting: Waiting,
) -> None:
    """The wait may have no time limit."""
    wait = waiting.begin()
    waiting.terms.tighten("nack", None)
    assert wait.result(TIMEOUT) is None


def test_a_draining_shutdown_stops_waiting_earlier_when_its_timeout_is_shortened(
    waiting: Waiting,
) -> None:
    """The waiting thread looks at the new time limit."""
    wait = waiting.begin()
    waiting.terms.tighten("drain", 100.0)
    with pytest.raises(futures.TimeoutError):
        wait.result(timeout=0.05)
    waiting.terms.tighten("drain", 0.0)
    assert wait.result(TIMEOUT) is None


def test_a_draining_shutdown_does_not_wait_if_all_callbacks_have_ended() -> None:
    """Without a drain there is no wait either."""
    terms = ShutdownDeadline(ManualClock())
    terms.wait_while_draining(lambda: True)
    terms.tighten("nack", None)
    terms.wait_while_draining(lambda: False)
