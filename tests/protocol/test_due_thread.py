"""A thread acts when something is due or it is woken, until it is stopped, in spite of errors."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pullstream_protocol.clock import ManualClock
from pullstream_protocol.due_thread import PAUSE_AFTER_ERROR, DueThread
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import started_since

NAME = "pullstream-test-due"


class Due:
    """A time at which something is due, once, and the times at which the thread acted."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.clock = ManualClock()
        self.at: float | None = None
        self.acted: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._act = act
        self.thread = DueThread(self.clock, lambda: self.at, self._note, name=NAME)

    def _note(self) -> None:
        if self.at is not None and self.at <= self.clock.monotonic():
            self.at = None
        self.acted.put(self.clock.monotonic())
        self._act()

    def next_act(self) -> float:
        return self.acted.get(timeout=TIMEOUT)


@contextmanager
def running(due: Due) -> Iterator[Due]:
    due.thread.start()
    try:
        yield due
    finally:
        due.thread.stop()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> "queue.SimpleQueue[threading.ExceptHookArgs]":
    """The errors that `threading.excepthook` receives."""
    errors: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", errors.put)
    return errors


def test_a_due_thread_runs_its_work_when_the_clock_reaches_the_due_time() -> None:
    """The thread also acts after a jump of the clock to an earlier time."""
    due = Due()
    due.at = 10.0
    with running(due):
        due.clock.advance(4)
        assert due.next_act() == 4
        due.clock.advance(6)
        assert due.next_act() == 10


def test_a_due_thread_runs_work_that_is_already_due_at_once() -> None:
    """The work may be due when the thread starts."""
    due = Due()
    due.at = 0.0
    with running(due):
        assert due.next_act() == 0


def test_a_due_thread_woken_before_its_start_runs_its_work_when_started() -> None:
    """The owner may have work before it starts the thread."""
    due = Due()
    due.thread.wake()
    with running(due):
        assert due.next_act() == 0


def test_events_posted_to_a_due_thread_run_on_that_thread_before_its_due_work() -> None:
    """The events keep the order in which they were posted."""
    ran: list[str] = []
    due = Due(lambda: ran.append("act"))
    due.thread.post(lambda: ran.append(threading.current_thread().name))
    due.thread.post(lambda: ran.append("second"))
    with running(due):
        due.next_act()
    assert ran[:3] == [NAME, "second", "act"]


def test_an_exception_in_the_work_of_a_due_thread_is_logged_and_does_not_end_the_thread(
    reported: "queue.SimpleQueue[threading.ExceptHookArgs]",
) -> None:
    """The next wake-up has its effect."""
    due = Due(lambda: [][0])
    with running(due):
        for _ in range(2):
            due.thread.wake()
            due.next_act()
            error = reported.get(timeout=TIMEOUT)
            assert error.exc_type is IndexError
            assert error.thread is not None
            assert error.thread.name == NAME


@pytest.mark.parametrize("error", [IndexError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_in_an_event_of_a_due_thread_does_not_prevent_other_events(
    reported: "queue.SimpleQueue[threading.ExceptHookArgs]", error: type[BaseException]
) -> None:
    """The other events run, and the thread acts, also after `sys.exit()`."""

    def fail() -> None:
        raise error

    ran: list[str] = []
    due = Due()
    due.thread.post(fail)
    due.thread.post(lambda: ran.append("second"))
    with running(due):
        due.next_act()
        due.thread.wake()
        due.next_act()
    assert ran == ["second"]
    assert reported.get(timeout=TIMEOUT).exc_type is error


def test_failing_work_of_a_due_thread_is_retried_after_a_pause(
    reported: "queue.SimpleQueue[threading.ExceptHookArgs]",
) -> None:
    """Without one, the thread would spin."""

    def fail() -> None:
        due.at = 0.0
        raise OSError

    due = Due(fail)
    due.at = 0.0
    with running(due):
        assert due.next_act() == 0
        assert reported.get(timeout=TIMEOUT).exc_type is OSError
        assert due.acted.empty()
        due.clock.advance(PAUSE_AFTER_ERROR)
        assert due.next_act() == PAUSE_AFTER_ERROR


def test_stopping_a_due_thread_ends_it_and_removes_its_clock_waker() -> None:
    """A second stop has no effect. Later events and wake-ups have no effect."""
    before, due = set(threading.enumerate()), Due()
    with running(due):
        due.thread.stop()
        assert not started_since(before, named=NAME)
        assert due.clock._wakers == []
        due.thread.post(lambda: due.acted.put(0.0))
        due.thread.wake()
    assert due.acted.empty()


def test_a_due_thread_can_be_stopped_by_its_own_work() -> None:
    """The thread cannot wait for itself; it ends after this work."""
    before = set(threading.enumerate())
    due = Due(lambda: due.thread.stop())
    with running(due):
        due.thread.wake()
        due.next_act()
        for thread in started_since(before, named=NAME):
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def test_stopping_a_thread_for_due_work_that_was_never_started_raises_no_error() -> None:
    """The thread leaves the clock, and does not start any more work."""
    due = Due()
    due.thread.stop()
    assert due.clock._wakers == []


def test_a_due_thread_that_fails_to_start_leaves_no_waker_at_its_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller gets the error."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    due = Due()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        due.thread.start()
    assert due.clock._wakers == []


def test_the_property_runs_here_of_a_due_thread_is_true_only_on_that_thread() -> None:
    """The owner of the thread uses it to detect calls from its own work."""
    here: queue.SimpleQueue[bool] = queue.SimpleQueue()
    due = Due()
    with running(due):
        due.thread.post(lambda: here.put(due.thread.runs_here()))
        assert here.get(timeout=TIMEOUT)
        assert not due.thread.runs_here()
