"""`ack_with_response` and its like tell the truth, whatever the server answers, or does not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from protocol.clock import ManualClock
from protocol.errors import BY_CODE, Aborted, RpcError, Unavailable
from subscriber import AckFuture, AcknowledgeError, AcknowledgeStatus, FlowControl, Message
from subscriber.streaming.dispatcher import MAX_IN_FLIGHT
from subscriber.streaming.requests import ACK_RETRY_FOR, NACK_RETRY_FOR
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Log, Stage, keep, stage
from tests.subscriber.streaming.fakes import PATIENCE, eventually

OTHER = AcknowledgeStatus.OTHER

# What each code means when it is the server's last word; None: it is not, and is asked again.
MEANING: dict[grpc.StatusCode, AcknowledgeStatus | None] = {
    grpc.StatusCode.CANCELLED: None,
    grpc.StatusCode.UNKNOWN: None,
    grpc.StatusCode.INVALID_ARGUMENT: OTHER,
    grpc.StatusCode.DEADLINE_EXCEEDED: None,
    grpc.StatusCode.NOT_FOUND: OTHER,
    grpc.StatusCode.ALREADY_EXISTS: OTHER,
    grpc.StatusCode.PERMISSION_DENIED: AcknowledgeStatus.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: None,
    grpc.StatusCode.FAILED_PRECONDITION: AcknowledgeStatus.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED: None,
    grpc.StatusCode.OUT_OF_RANGE: OTHER,
    grpc.StatusCode.UNIMPLEMENTED: OTHER,
    grpc.StatusCode.INTERNAL: None,
    grpc.StatusCode.UNAVAILABLE: None,
    grpc.StatusCode.DATA_LOSS: OTHER,
    grpc.StatusCode.UNAUTHENTICATED: OTHER,
}
EXACTLY_ONCE_FAILURE = "EXACTLY_ONCE_ACKID_FAILURE"
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def here(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(enable_exactly_once_delivery=request.param) as here:
        yield here


@pytest.fixture
def exactly_once() -> Iterator[Stage]:
    with stage(enable_exactly_once_delivery=True) as here:
        yield here


def receive(here: Stage, count: int) -> list[Message]:
    """So many messages, confirmed as ours where that is asked, to be settled by the test."""
    log = Log(keep)
    here.client.subscribe(SUBSCRIPTION, log)
    here.publish(*[b"%d" % number for number in range(count)])
    return sorted(log.wait_for(count), key=lambda message: int(message.data))


def status(future: AckFuture) -> AcknowledgeStatus:
    """How it ended, as one value."""
    try:
        return future.result(PATIENCE)
    except AcknowledgeError as error:
        return error.error_code


def test_every_code_is_listed() -> None:
    """Or the next test would leave one out."""
    assert MEANING.keys() == BY_CODE.keys()


@pytest.mark.parametrize("rich", [False, True], ids=["bare", "rich"])
@pytest.mark.parametrize("code", MEANING)
def test_no_code_is_taken_for_success(here: Stage, code: grpc.StatusCode, rich: bool) -> None:
    """A passing one is asked again until the answer is known; any other is the outcome, also when
    the server gives no details, or details about something else."""
    error = BY_CODE[code]("refused", reason="SOMETHING", metadata={"service": "pubsub"})
    acked, nacked, extended = receive(here, 3)
    refused = [
        here.faults.error(method, error, times=times, with_details=rich)
        for method, times in (("Acknowledge", 1), ("ModifyAckDeadline", 2))
    ]
    outcomes = [
        status(future)
        for future in (
            acked.ack_with_response(),
            nacked.nack_with_response(delay=300),
            extended.modify_ack_deadline_with_response(120),
        )
    ]
    assert outcomes == [MEANING[code] or AcknowledgeStatus.SUCCESS] * 3
    assert [fault.hits for fault in refused] == [1, 2]
    assert here.backlog == (2 if MEANING[code] is None else 3)


def test_each_ack_id_has_its_own_outcome(exactly_once: Stage) -> None:
    """One request in which some are taken, some are to be sent again, and some are refused."""
    here = exactly_once
    messages = receive(here, 5)
    verdicts = dict(
        zip(
            (message.ack_id for message in messages),
            (None, "TRANSIENT_FAILURE_UNORDERED_ACK_ID", INVALID, "PERMANENT_FAILURE_OTHER", None),
            strict=True,
        )
    )

    def judge(request: Any) -> RpcError | None:
        named = {i: verdict for i in request.ack_ids if (verdict := verdicts[i])}
        for ack_id, verdict in named.items():
            if verdict.startswith("TRANSIENT"):
                verdicts[ack_id] = None
        if not named:
            return None
        return Aborted("some failed", reason=EXACTLY_ONCE_FAILURE, metadata=named)

    here.faults.error("Acknowledge", judge)
    futures = [message.ack_with_response() for message in messages]
    assert [status(future) for future in futures] == [
        AcknowledgeStatus.SUCCESS,
        AcknowledgeStatus.SUCCESS,
        AcknowledgeStatus.INVALID_ACK_ID,
        AcknowledgeStatus.OTHER,
        AcknowledgeStatus.SUCCESS,
    ]
    assert here.backlog == 2


def test_acknowledging_again_does_no_harm(here: Stage) -> None:
    """At the same time or later: the first counts, the message is counted out once, and the
    subscription goes on."""
    log = Log(keep)
    future = here.client.subscribe(SUBSCRIPTION, log, FlowControl(max_messages=1))
    here.publish(b"0", b"1")
    (first,) = log.wait_for(1)
    together = [first.ack_with_response(), first.ack_with_response()]
    first.ack()
    assert status(together[0]) is AcknowledgeStatus.SUCCESS
    assert isinstance(status(together[1]), AcknowledgeStatus)
    second = log.wait_for(2)[1]
    assert isinstance(status(first.ack_with_response()), AcknowledgeStatus)
    assert future.statistics().leased == 1
    assert status(second.ack_with_response()) is AcknowledgeStatus.SUCCESS
    assert here.backlog == 0


def test_acknowledging_twice_in_one_request_succeeds_twice(here: Stage) -> None:
    """Both futures are told the same."""
    *before, message = receive(here, MAX_IN_FLIGHT + 1)
    with here.faults.drop("Acknowledge") as held:
        for number, other in enumerate(before, start=1):
            other.ack()
            held.wait_for_hits(number)
        # All calls that may be under way are: these two gather.
        futures = [message.ack_with_response(), message.ack_with_response()]
    assert [status(future) for future in futures] == [AcknowledgeStatus.SUCCESS] * 2


@pytest.mark.parametrize("code", [code for code, meaning in MEANING.items() if meaning is None])
def test_a_lost_answer_is_asked_for_again(here: Stage, code: grpc.StatusCode) -> None:
    """The message is gone and stays gone. With exactly-once delivery the second answer may be that
    the id is used up: then that is told, for it is all that is known."""
    log = Log(keep)
    here.client.subscribe(SUBSCRIPTION, log)
    here.publish(b"0")
    (message,) = log.wait_for(1)
    lost = here.faults.lose_reply("Acknowledge", times=1, code=code)
    outcome = status(message.ack_with_response())
    assert lost.hits == 1
    if message.exactly_once_enabled:
        assert outcome is AcknowledgeStatus.INVALID_ACK_ID
    else:
        assert outcome is AcknowledgeStatus.SUCCESS
    assert here.backlog == 0
    assert len(log.messages) == 1


@pytest.mark.parametrize(
    ("method", "limit"), [("Acknowledge", ACK_RETRY_FOR), ("ModifyAckDeadline", NACK_RETRY_FOR)]
)
def test_asking_again_comes_to_an_end(method: str, limit: float) -> None:
    """After so many seconds, in ever longer pauses, the future fails, and the loss is counted."""
    clock, ended = ManualClock(), list[float]()
    with stage() as here:
        log = Log(keep)
        manager = here.manage(log, clock=clock)
        here.publish(b"0")
        (message,) = log.wait_for(1)
        fault = here.faults.error(method, Unavailable("away"))
        ack = message.ack_with_response if method == "Acknowledge" else message.nack_with_response
        future = ack()

        def end(_: Future[Any]) -> None:
            ended.append(clock.monotonic())

        future.add_done_callback(end)
        fault.wait_for_hits()

        def goes_by() -> bool:
            clock.advance(1)
            return future.done()

        eventually(goes_by)
        assert status(future) is OTHER
        assert limit * 0.4 < ended[0] < limit * 1.2
        assert fault.hits <= 60
        assert manager.future.statistics().failed == 1
