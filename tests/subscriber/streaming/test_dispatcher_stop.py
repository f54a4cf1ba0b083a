"""The end of a dispatcher: every disposition is sent or refused, every future resolved."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest

from pullstream.ack_future import AckFuture
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.streaming import dispatcher as dispatcher_module
from pullstream.streaming.dispatcher import MAX_IN_FLIGHT
from tests.failed_call import FailedCall
from tests.subscriber.streaming.dispatching import Rig
from tests.subscriber.streaming.fakes import TIMEOUT, ClosedServer, Server, eventually
from tests.threads import on_threads


def test_stopping_the_dispatcher_sends_all_remaining_acks_and_waits_for_the_answers() -> None:
    """Afterwards the thread has ended, and the clock has no timer of it."""
    rig = Rig()
    future = rig.message("a").ack_with_response()
    call = rig.server.next_call()
    rig.message("b").ack()
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(rig.dispatcher.stop, TIMEOUT)
        rig.server.next_call().answer()
        call.answer()
        stopping.result(TIMEOUT)
    assert future.result(timeout=0) is AcknowledgeStatus.SUCCESS
    assert not rig.dispatcher._thread.is_alive()
    assert rig.clock._wakers == []
    assert rig.dispatcher.failures == 0


def test_an_ack_made_in_a_done_callback_during_the_stop_of_the_dispatcher_fails() -> None:
    """A done callback of the last answer acknowledges a message, whose future resolves."""
    rig = Rig()
    late: list[AckFuture] = []

    def acknowledge_more(future: object) -> None:
        late.append(rig.message("late").ack_with_response())

    rig.message("a").ack_with_response().add_done_callback(acknowledge_more)
    call = rig.server.next_call()
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(rig.dispatcher.stop, TIMEOUT)
        eventually(lambda: rig.dispatcher._phase.value == "flushing")
        call.answer()
        stopping.result(TIMEOUT)
    assert isinstance(late[0].exception(timeout=0), AcknowledgeError)


def test_stopping_the_dispatcher_gives_up_unanswered_calls_and_resolves_every_ack_future(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each error says whether the request was sent and may have succeeded, and so does the log."""
    rig = Rig()
    retried = rig.message("retried").ack_with_response()
    rig.server.next_call().answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
    hanging = []
    futures = [retried]
    for number in range(MAX_IN_FLIGHT):
        futures.append(rig.message(str(number)).ack_with_response())
        hanging.append(rig.server.next_call())
    futures.append(rig.message("not sent").ack_with_response())
    with caplog.at_level(logging.WARNING):
        rig.dispatcher.stop(timeout=0.0)
    errors = [future.exception(timeout=0) for future in futures]
    for error in errors:
        assert isinstance(error, AcknowledgeError)
        assert error.error_code is AcknowledgeStatus.OTHER
        assert error.may_have_succeeded == (error is not errors[-1])
        assert ("it may have succeeded" in str(error)) == error.may_have_succeeded
    assert "not sent" in str(errors[-1])
    assert all(call.cancelled for call in hanging)
    assert not rig.dispatcher._thread.is_alive()
    assert "before the server confirmed 11 messages" in caplog.text
    assert "outcomes of 1 messages" in caplog.text
    assert rig.dispatcher.failures == 12
    abandoned = rig.abandoned.get(timeout=TIMEOUT)
    assert set(abandoned.values()) == set(errors)


def test_an_ack_answered_while_the_dispatcher_stops_succeeds() -> None:
    """`stop` gives up only requests without an answer."""
    rig = Rig()
    blocked, release = threading.Event(), threading.Event()

    def block(future: object) -> None:
        blocked.set()
        release.wait(TIMEOUT)

    first = rig.message("first").ack_with_response()
    first.add_done_callback(block)
    call = rig.server.next_call()
    second = rig.message("second").ack_with_response()
    other = rig.server.next_call()
    call.answer()
    assert blocked.wait(TIMEOUT)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(rig.dispatcher.stop, 0.0)
        eventually(lambda: rig.dispatcher._inbox._queue.qsize() == 2)
        other.answer()
        release.set()
        stopping.result(TIMEOUT)
    assert second.result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert rig.dispatcher.failures == 0


def test_stopping_the_dispatcher_does_not_wait_for_calls_on_a_closed_channel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call that cannot begin has failed, so there is nothing to wait for."""
    rig = Rig(ClosedServer())
    future = rig.message("a").ack_with_response()
    with caplog.at_level(logging.WARNING):
        rig.dispatcher.stop(timeout=TIMEOUT)
    assert not rig.dispatcher._thread.is_alive()
    assert "closed channel" in str(future.exception(timeout=0))
    assert rig.dispatcher.failures == 1


def test_acks_after_the_stop_of_the_dispatcher_fail_with_an_error() -> None:
    """A late callback gets an error from `ack_with_response`, and none from `ack`."""
    rig = Rig(Server(automatic=True))
    late = rig.message("late")
    rig.dispatcher.stop(timeout=TIMEOUT)
    rig.dispatcher.stop(timeout=TIMEOUT)
    late.ack()
    error = late.ack_with_response().exception(timeout=0)
    assert isinstance(error, AcknowledgeError)
    assert "not sent" in str(error)
    assert not error.may_have_succeeded


def test_ack_futures_of_acks_made_during_the_stop_of_the_dispatcher_all_resolve() -> None:
    """Several threads acknowledge meanwhile, and each id is sent or refused."""
    rig = Rig(Server(automatic=True))
    begin = threading.Barrier(5)
    futures = []

    def acknowledge(start: int) -> None:
        begin.wait()
        for number in range(start, start + 500):
            futures.append(rig.message(str(number)).ack_with_response())

    with on_threads(*(partial(acknowledge, 1000 * start) for start in range(4))):
        begin.wait()
        rig.dispatcher.stop(timeout=TIMEOUT)
    assert len(futures) == 2000
    assert all(future.done() for future in futures)


def test_a_blocking_done_callback_of_an_ack_does_not_hang_the_stop_of_the_dispatcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The callback runs on the dispatcher's thread. `stop` ends, and recognises that thread."""
    monkeypatch.setattr(dispatcher_module, "ABORT_WAIT", 0.05)
    rig = Rig()
    release, here = threading.Event(), threading.Event()
    knows_itself: list[bool] = []

    def block(future: object) -> None:
        knows_itself.append(rig.dispatcher.runs_here())
        here.set()
        release.wait(TIMEOUT)

    future = rig.message("a").ack_with_response()
    future.add_done_callback(block)
    rig.server.next_call().answer()
    assert here.wait(TIMEOUT)
    rig.dispatcher.stop(timeout=0.0)
    assert rig.dispatcher._thread.is_alive()
    release.set()
    rig.dispatcher._thread.join(TIMEOUT)
    assert not rig.dispatcher._thread.is_alive()
    assert knows_itself == [True]
    assert not rig.dispatcher.runs_here()
