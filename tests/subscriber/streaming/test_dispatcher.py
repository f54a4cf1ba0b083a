"""The dispatcher's thread: outcomes in, calls out, several under way, every future resolved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import grpc
import pytest

from subscriber.exceptions import AcknowledgeStatus
from subscriber.message import Verdict
from subscriber.streaming import dispatcher as dispatcher_module
from subscriber.streaming.dispatcher import MAX_IN_FLIGHT
from tests.failed_call import FailedCall
from tests.subscriber.streaming.dispatching import Rig
from tests.subscriber.streaming.fakes import PATIENCE


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


def test_outcomes_gather_unless_somebody_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in crowds, so a few go out together; a tracked one goes out at once."""
    monkeypatch.setattr(dispatcher_module, "LONGEST_LINGER", 3600.0)
    monkeypatch.setattr(dispatcher_module, "LINGER_PER_MESSAGE", 3600.0)
    rig = Rig()
    for number in range(10):
        rig.message(str(number)).ack()
    future = rig.message("10").ack_with_response()
    call = rig.server.next_call()
    assert call.request.ack_ids == [str(number) for number in range(11)]
    call.answer()
    rig.dispatcher.stop(PATIENCE)
    assert future.result(timeout=0) is AcknowledgeStatus.SUCCESS


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
