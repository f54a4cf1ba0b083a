"""The dispatcher's thread: dispositions in, concurrent calls out, every future resolved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial

import grpc
import pytest

from pullstream.ack_future import AckFuture
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.message import Disposition, Message, MessageBatch, return_messages
from pullstream.streaming import dispatcher as dispatcher_module
from pullstream.streaming.ack_lease_keepalive import KEEP_FOR
from pullstream.streaming.ack_requests import Purpose
from pullstream.streaming.dispatcher import MAX_IN_FLIGHT, MAX_UNANSWERED_ACKS
from pullstream_protocol.errors import FailedPrecondition
from tests.failed_call import FailedCall
from tests.subscriber.streaming.dispatching import Rig, Settled
from tests.subscriber.streaming.fakes import TIMEOUT, ClosedServer, Server
from tests.threads import run_on_threads


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.server.automatic = True
    rig.dispatcher.stop(timeout=0.0)


def test_an_ack_ends_the_lease_of_its_message_at_once_and_is_sent_to_the_server(rig: Rig) -> None:
    """The leases are released at once, without waiting for the server's answer."""
    rig.message("a").ack()
    assert rig.finished.get(timeout=TIMEOUT) == Settled(acked=("a",))
    call = rig.server.next_call()
    assert (call.request.is_ack, call.request.ack_ids) == (True, ["a"])
    call.answer()


def test_acknowledging_a_list_of_messages_sends_one_ack_request(rig: Rig) -> None:
    """The dispatcher may be asleep meanwhile."""
    for number in range(2):
        names = [f"{number}-{name}" for name in "abc"]
        rig.dispatcher.ack_all([rig.message(name) for name in names])
        assert rig.finished.get(timeout=TIMEOUT) == Settled(acked=tuple(names))
        call = rig.server.next_call()
        assert (call.request.is_ack, call.request.ack_ids) == (True, names)
        call.answer()


def test_nacks_and_deadline_changes_each_send_a_request_and_a_drop_sends_none(
    rig: Rig,
) -> None:
    """A nack is a deadline of 0, a drop sends nothing, and an extension settles nothing."""
    rig.message("nacked").nack()
    assert rig.finished.get(timeout=TIMEOUT) == Settled(nacked=("nacked",))
    assert rig.server.next_call().request.seconds == 0
    rig.message("later").nack(delay=20)
    assert rig.finished.get(timeout=TIMEOUT) == Settled(nacked=("later",))
    request = rig.server.next_call().request
    assert (request.seconds, request.ack_ids) == (20, ["later"])
    rig.message("extended").modify_ack_deadline(30)
    request = rig.server.next_call().request
    assert (request.seconds, request.ack_ids) == (30, ["extended"])
    rig.message("dropped").drop()
    assert rig.finished.get(timeout=TIMEOUT) == Settled(dropped=("dropped",))
    rig.dispatcher.extend_leases(["leased", "too"], 15)
    request = rig.server.next_call().request
    assert (request.seconds, request.ack_ids) == (15, ["leased", "too"])


def test_the_dispatcher_sends_ack_requests_before_the_answers_to_earlier_requests(rig: Rig) -> None:
    """No call waits for another. Above the limit, dispositions share one larger request."""
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


def test_more_acks_than_the_limit_wait_for_answers_and_then_go_out_together(rig: Rig) -> None:
    """A slow server or gRPC thread finds the rest in one request."""
    first = [rig.message(f"first-{number}") for number in range(MAX_UNANSWERED_ACKS)]
    rig.dispatcher.ack_all(first)
    call = rig.server.next_call()
    assert len(call.request.ack_ids) == MAX_UNANSWERED_ACKS
    for number in range(100):
        rig.message(f"more-{number}").ack()
    rig.settle()
    assert rig.server.calls_waiting == 0
    call.answer()
    assert len(rig.server.next_call().request.ack_ids) == 100


def test_lease_extensions_are_sent_while_ack_requests_have_no_answer(rig: Rig) -> None:
    """Otherwise messages that are still handled would be redelivered."""
    for number in range(MAX_IN_FLIGHT):
        rig.message(str(number)).ack()
        rig.server.next_call()
    rig.message("another").ack()
    rig.dispatcher.extend_leases(["held"], 10)
    request = rig.server.next_call().request
    assert (request.seconds, request.ack_ids) == (10, ["held"])
    rig.dispatcher.send_receipts(["new"], 60)
    assert rig.server.next_call().request.ack_ids == ["new"]
    assert rig.server.calls_waiting == 0


def test_the_dispatcher_uses_no_cpu_time_while_it_waits_at_its_limit_of_unanswered_calls(
    rig: Rig,
) -> None:
    """A retry may be due, but nothing can be sent before an answer comes."""
    calls = []
    for number in range(MAX_IN_FLIGHT):
        rig.message(str(number)).ack()
        calls.append(rig.server.next_call())
    calls[0].answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
    rig.message("another").ack()
    calls[0] = rig.server.next_call()
    rig.settle()
    rig.clock.advance(5)
    # The lease of the waiting message is kept.
    kept = rig.server.next_call()
    assert len(kept.request.ack_ids) == MAX_IN_FLIGHT + 1
    kept.answer()
    rig.settle()
    before = rig.clock.questions
    for _ in range(3):
        # As long as a busy loop would need for hundreds of rounds.
        threading.Event().wait(0.01)
    assert rig.clock.questions - before <= 2
    calls[1].answer()
    assert rig.server.next_call().request.ack_ids == ["0"]


def test_acks_wait_to_share_a_request_and_an_ack_with_response_is_sent_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dispositions share a request because many come together. A tracked one is sent at once."""
    monkeypatch.setattr(dispatcher_module, "SHORTEST_LINGER", 3600.0)
    rig = Rig()
    for number in range(10):
        rig.message(str(number)).ack()
    future = rig.message("10").ack_with_response()
    call = rig.server.next_call()
    assert call.request.ack_ids == [str(number) for number in range(11)]
    call.answer()
    rig.dispatcher.stop(TIMEOUT)
    assert future.result(timeout=0) is AcknowledgeStatus.SUCCESS


@pytest.mark.parametrize("exactly_once", [False, True])
def test_an_ack_future_succeeds_only_after_the_servers_answer(rig: Rig, exactly_once: bool) -> None:
    """The same rule holds with exactly-once delivery and without."""
    rig.dispatcher.exactly_once = exactly_once
    message = rig.message("a")
    assert message.exactly_once_enabled is exactly_once
    future = message.ack_with_response()
    call = rig.server.next_call()
    assert not future.done()
    call.answer()
    assert future.result(TIMEOUT) is AcknowledgeStatus.SUCCESS


def test_a_failed_nack_request_is_logged_once_and_all_its_nacks_fail(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request has one line in the log, however many messages it had."""
    with caplog.at_level(logging.WARNING):
        futures = [rig.message(str(number)).nack_with_response() for number in range(3)]
        sent = 0
        while sent < 3:
            call = rig.server.next_call()
            sent += len(call.request.ack_ids)
            call.answer(FailedCall(grpc.StatusCode.PERMISSION_DENIED, "not yours"))
        errors = [future.exception(TIMEOUT) for future in futures]
        rig.settle()
    assert [str(error) for error in errors] == ["PERMISSION_DENIED: not yours"] * 3
    told = [rig.refused.get_nowait() for _ in range(rig.refused.qsize())]
    assert sorted(ack_id for _, failed in told for ack_id in failed) == ["0", "1", "2"]
    assert rig.dispatcher.failures == 3
    assert 1 <= len(caplog.records) <= 3
    assert "not yours" in caplog.text


def test_an_ack_that_fails_with_a_transient_error_is_retried_after_a_pause(rig: Rig) -> None:
    """Calls that gRPC reports as cancelled are retried, too. The lease is kept meanwhile."""
    future = rig.message("a").ack_with_response()
    rig.server.next_call().answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
    rig.settle()
    rig.clock.advance(1)
    rig.server.next_call().cancel()
    lease = rig.server.next_call()
    assert (lease.request.seconds, lease.request.ack_ids) == (KEEP_FOR, ["a"])
    lease.answer(FailedCall(grpc.StatusCode.NOT_FOUND))
    rig.settle()
    rig.clock.advance(1)
    call = rig.server.next_call()
    assert not future.done()
    call.answer()
    assert future.result(TIMEOUT) is AcknowledgeStatus.SUCCESS


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_error_of_an_ack_refused_after_a_lost_answer_says_it_may_have_succeeded(
    rig: Rig, caplog: pytest.LogCaptureFixture, is_lost: bool
) -> None:
    """The server may refuse the id because the first try has acknowledged the message."""
    future = rig.message("a").ack_with_response()
    if is_lost:
        rig.server.next_call().answer(FailedCall(grpc.StatusCode.UNAVAILABLE))
        rig.settle()
        rig.clock.advance(1)
    invalid = {"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    rig.server.next_call().answer_with(FailedPrecondition("old", reason="R", metadata=invalid))
    error = future.exception(TIMEOUT)
    assert isinstance(error, AcknowledgeError)
    rig.settle()
    assert ("may be delivered again" in caplog.text) != is_lost
    assert ("may be acknowledged" in caplog.text) == is_lost
    assert error.may_have_succeeded == is_lost
    assert ("an earlier attempt" in str(error)) == is_lost


def test_a_message_returned_to_the_server_is_not_counted_as_a_nack_of_the_user(rig: Rig) -> None:
    """The server gets the messages that no callback has seen, and the listener gets the return."""
    unseen, seen, settled = rig.message("a"), rig.message("b"), rig.message("c")
    seen.begun = True
    settled.settled = Disposition.DROP
    return_messages([unseen, seen, settled])
    assert [one.settled for one in (unseen, seen)] == [Disposition.RETURN, Disposition.RETURN]
    requests = [rig.server.next_call().request for _ in range(2)]
    assert {(one.seconds, one.purpose, *one.ack_ids) for one in requests} == {
        (0, Purpose.RETURN, "a"),
        (0, Purpose.NACK, "b"),
    }
    returned: set[str] = set()
    while len(returned) < 2:
        returned.update(rig.finished.get(timeout=TIMEOUT).returned)
    assert returned == {"a", "b"}


@pytest.mark.parametrize("error", [None, FailedCall(grpc.StatusCode.NOT_FOUND)])
def test_the_wait_for_a_nack_answer_ends_when_the_server_accepts_or_refuses_the_nack(
    rig: Rig, error: FailedCall | None
) -> None:
    """The server has taken or refused the nack for good. Messages are held until then."""
    rig.message("a").nack(delay=7)
    rig.server.next_call().answer(error)
    assert rig.nacks.get(timeout=TIMEOUT) == (["a"], 7)


# ---- its listener ------------------------------------------------------------------------------


def test_the_dispatcher_measures_the_duration_of_each_attempt_of_an_ack_request(rig: Rig) -> None:
    """Each try counts, with its own duration."""
    rig.message("a").ack()
    call = rig.server.next_call()
    rig.clock.advance(0.5)
    call.answer(FailedCall(grpc.StatusCode.UNAVAILABLE, "down"))
    ack_ids, seconds, error = rig.calls_done.get(timeout=TIMEOUT)
    assert (ack_ids, seconds) == (["a"], 0.5)
    assert error is not None
    assert error.message == "down"
    rig.clock.advance(1)
    call = rig.server.next_call()
    rig.clock.advance(2)
    call.answer()
    assert rig.calls_done.get(timeout=TIMEOUT) == (["a"], 2.0, None)
    assert rig.refused.empty()


def test_the_answer_to_an_exactly_once_receipt_request_has_a_result_for_each_ack_id(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused receipts are not logged as failures, because the listener drops those messages.

    An id that the error does not name has no answer yet, and is asked for again.
    """
    rig.dispatcher.send_receipts(["ours", "over", "busy"], 60)
    call = rig.server.next_call()
    assert (call.request.seconds, call.request.is_receipt) == (60, True)
    named = {"over": "PERMANENT_FAILURE_INVALID_ACK_ID", "busy": "TRANSIENT_FAILURE_X"}
    with caplog.at_level(logging.WARNING):
        call.answer(FailedCall.of(FailedPrecondition("no", reason="R", metadata=named)))
        confirmed, refused = rig.receipts.get(timeout=TIMEOUT)
    assert confirmed == []
    assert refused["over"].error_code is AcknowledgeStatus.INVALID_ACK_ID
    assert list(refused) == ["over"]
    again = rig.server.next_call()
    assert again.request.ack_ids == ["ours"]
    again.answer()
    assert rig.receipts.get(timeout=TIMEOUT) == (["ours"], {})
    rig.clock.advance(1)
    rig.server.next_call().answer()
    assert rig.receipts.get(timeout=TIMEOUT) == (["busy"], {})
    assert (rig.refused.empty(), rig.dispatcher.failures, caplog.records) == (True, 0, [])


def test_exactly_once_receipts_on_a_closed_channel_are_treated_as_refused() -> None:
    """The channel is closed, so messages that wait for the answer are refused."""
    rig = Rig(ClosedServer())
    rig.dispatcher.send_receipts(["a"], 60)
    confirmed, refused = rig.receipts.get(timeout=TIMEOUT)
    assert (confirmed, list(refused)) == ([], ["a"])
    rig.dispatcher.stop(TIMEOUT)


LATE_DECISIONS: list[Callable[[Message], AckFuture]] = [
    Message.ack_with_response,
    Message.nack_with_response,
    lambda message: message.modify_ack_deadline_with_response(30),
]


@pytest.mark.parametrize("decide", LATE_DECISIONS, ids=["ack", "nack", "deadline"])
@pytest.mark.parametrize("lost", [Disposition.LOST, Disposition.DROP])
def test_an_ack_after_the_client_gave_up_the_lease_gets_the_servers_answer(
    rig: Rig, decide: Callable[[Message], AckFuture], lost: Disposition
) -> None:
    """The server may still accept it, because its lease ends later."""
    for refusal in (None, "PERMANENT_FAILURE_INVALID_ACK_ID"):
        late = rig.message("late")
        late.settled = lost
        future = decide(late)
        call = rig.server.next_call()
        assert call.request.ack_ids == ["late"]
        assert not future.done()
        if refusal is None:
            call.answer()
            assert future.result(TIMEOUT) is AcknowledgeStatus.SUCCESS
        else:
            named = {"late": refusal}
            call.answer_with(FailedPrecondition("over", reason="R", metadata=named))
            error = future.exception(TIMEOUT)
            assert isinstance(error, AcknowledgeError)
            assert error.error_code is AcknowledgeStatus.INVALID_ACK_ID
            assert not error.may_have_succeeded


def test_a_message_whose_lease_has_ended_can_still_be_rejected_to_the_dead_letter_topic(
    rig: Rig,
) -> None:
    """The callback has not settled it, and the server may accept the acknowledgement."""
    lost, dropped = rig.message("lost"), rig.message("dropped")
    lost.settled = Disposition.LOST
    lost.batch.reject = dropped.batch.reject = lambda message, reason, topic: f"copy, {reason}"
    assert lost.reject("bad") == "copy, bad"
    assert rig.server.next_call().request.ack_ids == ["lost"]
    dropped.drop()
    with pytest.raises(ValueError, match="is settled"):
        dropped.reject("bad")


def test_acknowledging_a_batch_includes_its_messages_whose_leases_have_ended(rig: Rig) -> None:
    """The server decides, as it does for a single message."""
    for settle, disposition in ((MessageBatch.ack, "acked"), (MessageBatch.nack, "nacked")):
        lost, settled = rig.message("lost"), rig.message("settled")
        lost.settled, settled.settled = Disposition.LOST, Disposition.DROP
        settle(MessageBatch([lost, settled]))
        assert rig.server.next_call().request.ack_ids == ["lost"]
        assert getattr(rig.finished.get(timeout=TIMEOUT), disposition) == ("lost",)


# ---- acknowledgements have their own path --------------------------------------------------------


def test_an_ack_made_as_the_dispatcher_thread_falls_asleep_is_sent() -> None:
    """Each ack comes just after the report of the previous one, when the thread begins to wait."""
    rig = Rig(Server(automatic=True))
    for number in range(2_000):
        rig.message(str(number)).ack()
        assert rig.finished.get(timeout=TIMEOUT) == Settled(acked=(str(number),))
    rig.dispatcher.stop(TIMEOUT)


def test_acks_made_by_many_threads_at_a_time_are_each_sent_once() -> None:
    """The threads append to one list while it is emptied."""
    rig = Rig(Server(automatic=True))
    begin = threading.Barrier(4)

    def acknowledge(name: str) -> None:
        begin.wait(TIMEOUT)
        for number in range(2_000):
            rig.message(f"{name}{number}").ack()

    run_on_threads(*(partial(acknowledge, name) for name in "abcd"))
    rig.dispatcher.stop(TIMEOUT)
    sent: list[str] = []
    while rig.server.calls_waiting:
        sent += rig.server.next_call().request.ack_ids
    assert sorted(sent) == sorted(f"{name}{number}" for name in "abcd" for number in range(2_000))
