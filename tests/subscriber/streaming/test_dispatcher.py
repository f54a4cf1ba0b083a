"""The dispatcher's thread: outcomes in, calls out, several under way, every future resolved."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from protocol.clock import ManualClock
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.message import Message, Verdict
from subscriber.streaming import dispatcher as dispatcher_module
from subscriber.streaming.dispatcher import MAX_IN_FLIGHT, Call, Dispatcher
from subscriber.streaming.outbox import Request
from tests.failed_call import FailedCall
from tests.subscriber.streaming.fakes import PATIENCE, Server, ids, received


class CountingClock(ManualClock):
    """Counts how often somebody asks how long to wait: a busy loop asks all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def timeout(self, deadline: float | None) -> float | None:
        self.questions += 1
        return super().timeout(deadline)


class Rig:
    """A dispatcher between messages made by hand and a server played by hand."""

    def __init__(self, server: Server | None = None) -> None:
        self.clock = CountingClock()
        self.server = server or Server()
        self.finished: queue.SimpleQueue[tuple[list[str], list[str]]] = queue.SimpleQueue()
        self.dispatcher = Dispatcher(
            self.clock, send=self._send, finished=self._finished, max_messages=1
        )

    def _send(self, request: Request) -> Call:
        return self.server.send(request)

    def _finished(self, settled: Sequence[Message], acked: Sequence[Message]) -> None:
        self.finished.put((ids(settled), ids(acked)))

    def settle(self) -> None:
        """Return when the dispatcher has handled all that it was told so far."""
        self.message("settle").drop()
        while "settle" not in self.finished.get(timeout=PATIENCE)[0]:
            pass

    def message(self, ack_id: str) -> Message:
        return Message(received(ack_id), self.dispatcher, 0.0, share=0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.server.automatic = True
    rig.dispatcher.stop(timeout=0.0)


def test_an_acknowledgement_is_reported_and_sent(rig: Rig) -> None:
    """To the leases at once, without waiting for the server's answer."""
    rig.message("a").ack()
    assert rig.finished.get(timeout=PATIENCE) == (["a"], ["a"])
    call = rig.server.next_call()
    assert (call.request.is_ack, call.request.ack_ids) == (True, ["a"])
    call.answer()


def test_each_verdict_does_what_it_says(rig: Rig) -> None:
    """A nack is a deadline of 0, a drop tells the server nothing, an extension settles nothing."""
    rig.message("nacked").nack()
    assert rig.finished.get(timeout=PATIENCE) == (["nacked"], [])
    assert rig.server.next_call().request.seconds == 0
    rig.message("extended").modify_ack_deadline(30)
    request = rig.server.next_call().request
    assert (request.seconds, request.ack_ids) == (30, ["extended"])
    rig.message("dropped").drop()
    assert rig.finished.get(timeout=PATIENCE) == (["dropped"], [])
    rig.dispatcher.extend(["leased", "too"], 15)
    request = rig.server.next_call().request
    assert (request.seconds, request.ack_ids) == (15, ["leased", "too"])


def test_several_calls_are_under_way_at_a_time(rig: Rig) -> None:
    """No answer is waited for; beyond the limit outcomes gather into one larger request."""
    calls = []
    for number in range(MAX_IN_FLIGHT):
        rig.message(str(number)).ack()
        calls.append(rig.server.next_call())
    for number in range(100):
        rig.message(f"more-{number}").ack()
    rig.settle()
    assert rig.server.calls_waiting == 0
    calls[3].answer()
    assert len(rig.server.next_call().request.ack_ids) == 100


def test_with_all_calls_under_way_it_waits_without_spinning(rig: Rig) -> None:
    """Even when another try is due: nothing can be sent before an answer comes."""
    calls = []
    for number in range(MAX_IN_FLIGHT):
        rig.message(str(number)).ack()
        calls.append(rig.server.next_call())
    calls[0].answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
    rig.message("another").ack()
    calls[0] = rig.server.next_call()
    rig.settle()
    rig.clock.advance(5)
    rig.settle()
    before = rig.clock.questions
    for _ in range(3):
        # As long as a busy loop would need for hundreds of rounds.
        threading.Event().wait(0.01)
    assert rig.clock.questions - before <= 2
    calls[1].answer()
    assert rig.server.next_call().request.ack_ids == ["0"]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_success_is_told_only_when_the_server_said_so(rig: Rig, exactly_once: bool) -> None:
    """With exactly-once delivery or without: an answer is an answer."""
    rig.dispatcher.exactly_once = exactly_once
    message = rig.message("a")
    assert message.exactly_once_enabled is exactly_once
    future = message.ack_with_response()
    call = rig.server.next_call()
    assert not future.done()
    call.answer()
    assert future.result(PATIENCE) is AcknowledgeStatus.SUCCESS


def test_a_failure_is_told_counted_and_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for a request, however many messages it had."""
    with caplog.at_level(logging.WARNING):
        futures = [rig.message(str(number)).nack_with_response() for number in range(3)]
        sent = 0
        while sent < 3:
            call = rig.server.next_call()
            sent += len(call.request.ack_ids)
            call.answer(FailedCall(grpc.StatusCode.PERMISSION_DENIED, "not yours"))
        errors = [future.exception(PATIENCE) for future in futures]
        rig.settle()
    assert [str(error) for error in errors] == ["PERMISSION_DENIED: not yours"] * 3
    assert rig.dispatcher.failures == 3
    assert 1 <= len(caplog.records) <= 3
    assert "not yours" in caplog.text


def test_a_passing_failure_is_tried_again_when_its_pause_is_over(rig: Rig) -> None:
    """Also one that grpc calls cancelled."""
    future = rig.message("a").ack_with_response()
    rig.server.next_call().answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
    rig.settle()
    rig.clock.advance(1)
    rig.server.next_call().cancel()
    rig.settle()
    rig.clock.advance(1)
    call = rig.server.next_call()
    assert not future.done()
    call.answer()
    assert future.result(PATIENCE) is AcknowledgeStatus.SUCCESS


def test_stop_sends_what_is_left_and_waits_for_the_answers() -> None:
    """Then the thread is gone, and the clock has no trace of it."""
    rig = Rig()
    future = rig.message("a").ack_with_response()
    call = rig.server.next_call()
    rig.message("b").ack()
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(rig.dispatcher.stop, PATIENCE)
        rig.server.next_call().answer()
        call.answer()
        stopping.result(PATIENCE)
    assert future.result(timeout=0) is AcknowledgeStatus.SUCCESS
    assert not rig.dispatcher._thread.is_alive()
    assert rig.clock._wakers == []
    assert rig.dispatcher.failures == 0


def test_stop_gives_up_calls_that_hang_and_resolves_every_future(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Under way, waiting for another try, or not sent at all; and it says how many."""
    rig = Rig()
    retried = rig.message("retried").ack_with_response()
    rig.server.next_call().answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
    hanging = []
    futures = [retried]
    for number in range(MAX_IN_FLIGHT):
        futures.append(rig.message(str(number)).ack_with_response())
        hanging.append(rig.server.next_call())
    futures.append(rig.message("not sent").nack_with_response())
    with caplog.at_level(logging.WARNING):
        rig.dispatcher.stop(timeout=0.0)
    for future in futures:
        error = future.exception(timeout=0)
        assert isinstance(error, AcknowledgeError)
        assert error.error_code is AcknowledgeStatus.OTHER
    assert all(call.cancelled for call in hanging)
    assert not rig.dispatcher._thread.is_alive()
    assert "was told about 2 messages" in caplog.text


def test_stop_does_not_wait_for_a_channel_that_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be begun has failed; there is nothing to wait for."""

    class ClosedServer(Server):
        def send(self, request: Request) -> Call:  # type: ignore[override]
            raise ValueError("Cannot invoke RPC on closed channel!")

    rig = Rig(ClosedServer())
    future = rig.message("a").ack_with_response()
    with caplog.at_level(logging.WARNING):
        rig.dispatcher.stop(timeout=PATIENCE)
    assert not rig.dispatcher._thread.is_alive()
    assert "closed channel" in str(future.exception(timeout=0))
    assert rig.dispatcher.failures == 1


def test_outcomes_after_stop_are_refused_and_say_so() -> None:
    """A late callback gets an answer to `ack_with_response`, and no error from `ack`."""
    rig = Rig(Server(automatic=True))
    late = rig.message("late")
    rig.dispatcher.stop(timeout=PATIENCE)
    rig.dispatcher.stop(timeout=PATIENCE)
    late.ack()
    error = late.ack_with_response().exception(timeout=0)
    assert isinstance(error, AcknowledgeError)
    assert "the server was not told" in str(error)


def test_outcomes_that_race_with_stop_all_resolve() -> None:
    """Each is either sent or refused, with several threads acknowledging meanwhile."""
    rig = Rig(Server(automatic=True))
    begin = threading.Barrier(5)
    futures = []

    def acknowledge(start: int) -> None:
        begin.wait()
        for number in range(start, start + 500):
            futures.append(rig.message(str(number)).ack_with_response())

    threads = [threading.Thread(target=acknowledge, args=(1000 * start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    begin.wait()
    rig.dispatcher.stop(timeout=PATIENCE)
    for thread in threads:
        thread.join()
    assert len(futures) == 2000
    assert all(future.done() for future in futures)


def test_a_done_callback_that_blocks_does_not_hang_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on the dispatcher's thread; `stop` ends all the same, and knows that thread."""
    monkeypatch.setattr(dispatcher_module, "GIVE_UP_WAIT", 0.05)
    rig = Rig()
    release, here = threading.Event(), threading.Event()
    knows_itself: list[bool] = []

    def block(future: object) -> None:
        knows_itself.append(rig.dispatcher.runs_here())
        here.set()
        release.wait(PATIENCE)

    future = rig.message("a").ack_with_response()
    future.add_done_callback(block)
    rig.server.next_call().answer()
    assert here.wait(PATIENCE)
    rig.dispatcher.stop(timeout=0.0)
    release.set()
    rig.dispatcher._thread.join(PATIENCE)
    assert not rig.dispatcher._thread.is_alive()
    assert knows_itself == [True]
    assert not rig.dispatcher.runs_here()


def test_giving_back_settles_as_a_nack(rig: Rig) -> None:
    """So that whoever else holds the message knows that it is not ours any more."""
    messages = [rig.message("a"), rig.message("b")]
    rig.dispatcher.nack(messages)
    assert [message.settled for message in messages] == [Verdict.NACK, Verdict.NACK]
    sent = 0
    while sent < 2:
        request = rig.server.next_call().request
        assert request.seconds == 0
        sent += len(request.ack_ids)
