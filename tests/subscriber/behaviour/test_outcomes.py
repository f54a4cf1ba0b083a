"""The futures of `ack_with_response` and similar methods, for each answer and for none."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from pullstream import AckFuture, AcknowledgeError, AcknowledgeStatus, FlowControl, Message
from pullstream.streaming.ack_requests import ACK_RETRY_FOR, NACK_RETRY_FOR
from pullstream.streaming.dispatcher import MAX_IN_FLIGHT
from pullstream_protocol.errors import BY_CODE, Aborted, PermissionDenied, RpcError, Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Log, Stage, keep, stage
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

OTHER = AcknowledgeStatus.OTHER

# The meaning of each code as the server's final answer. None: the request is retried.
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
    """Return this many messages, confirmed if required, for the test to settle."""
    log = Log(keep)
    here.client.subscribe(SUBSCRIPTION, log)
    here.publish(*[b"%d" % number for number in range(count)])
    return sorted(log.wait_for(count), key=lambda message: int(message.data))


def status(future: AckFuture) -> AcknowledgeStatus:
    """Return the result of a future or its error code."""
    try:
        return future.result(TIMEOUT)
    except AcknowledgeError as error:
        return error.error_code


def test_the_table_of_ack_statuses_lists_every_grpc_status_code() -> None:
    """Otherwise the next test would leave one out."""
    assert MEANING.keys() == BY_CODE.keys()


@pytest.mark.parametrize("rich", [False, True], ids=["bare", "rich"])
@pytest.mark.parametrize("code", MEANING)
def test_no_grpc_error_code_lets_the_future_of_an_ack_report_success(
    here: Stage, code: grpc.StatusCode, rich: bool
) -> None:
    """No error code counts as success.

    A transient code is retried until the answer is known. Every other code is the outcome, also
    when the server gives no details, or details about something else.
    """
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


def test_each_ack_id_of_an_ack_request_is_accepted_retried_or_failed_on_its_own(
    exactly_once: Stage,
) -> None:
    """One request has accepted ids, ids to be sent again, and refused ids."""
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


def test_the_statistics_count_an_ack_before_its_future_has_the_result(here: Stage) -> None:
    """A failed one counts as failed, and neither waits for an answer any more."""
    seen: list[tuple[int, int]] = []
    log = Log(keep)
    subscription = here.client.subscribe(SUBSCRIPTION, log)
    here.publish(b"0", b"1")

    def look(_: Future[Any]) -> None:
        statistics = subscription.statistics()
        seen.append((statistics.failed, statistics.unanswered))

    first, second = log.wait_for(2)
    with here.faults.error("Acknowledge", PermissionDenied("not yours"), times=1):
        future = first.ack_with_response()
        future.add_done_callback(look)
        assert status(future) is AcknowledgeStatus.PERMISSION_DENIED
    future = second.ack_with_response()
    future.add_done_callback(look)
    assert status(future) is AcknowledgeStatus.SUCCESS
    eventually(lambda: len(seen) == 2)
    assert seen == [(1, 0), (1, 0)]


def test_both_acks_of_a_message_that_is_acknowledged_twice_succeed(here: Stage) -> None:
    """A second acknowledgement at the same time or later does no harm.

    The first one counts, the message is released once, and the subscription continues.
    """
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


def test_two_acks_of_a_message_in_one_request_both_succeed(here: Stage) -> None:
    """Both futures get the same result."""
    *before, message = receive(here, MAX_IN_FLIGHT + 1)
    with here.faults.drop("Acknowledge") as held:
        for number, other in enumerate(before, start=1):
            other.ack()
            held.wait_for_hits(number)
        # All allowed calls are open, so these two share the next request.
        futures = [message.ack_with_response(), message.ack_with_response()]
    assert [status(future) for future in futures] == [AcknowledgeStatus.SUCCESS] * 2


@pytest.mark.parametrize("code", [code for code, meaning in MEANING.items() if meaning is None])
def test_an_ack_whose_answer_from_the_server_is_lost_is_retried(
    here: Stage, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    """An acknowledgement whose answer is lost is repeated.

    The message is acknowledged. With exactly-once delivery, the broker also accepts the repeated
    acknowledgement of an id. No log mentions a redelivery.
    """
    log = Log(keep)
    here.client.subscribe(SUBSCRIPTION, log)
    here.publish(b"0")
    (message,) = log.wait_for(1)
    lost = here.faults.lose_reply("Acknowledge", times=1, code=code)
    assert status(message.ack_with_response()) is AcknowledgeStatus.SUCCESS
    assert lost.hits == 1
    assert here.backlog == 0
    assert len(log.messages) == 1
    assert "delivered again" not in caplog.text


@pytest.mark.parametrize(
    ("method", "limit"), [("Acknowledge", ACK_RETRY_FOR), ("ModifyAckDeadline", NACK_RETRY_FOR)]
)
def test_the_retries_of_an_ack_end_after_a_time_limit_and_its_future_fails(
    method: str, limit: float
) -> None:
    """After a time limit with growing pauses, the future fails and the failure is counted."""
    clock, ended = PacedClock(), list[float]()
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

        here.pass_time(clock, future.done)
        assert status(future) is OTHER
        # A future calls its callbacks after it has its result.
        eventually(lambda: bool(ended))
        assert limit * 0.4 < ended[0] < limit * 1.2
        assert fault.hits <= 60
        assert manager.future.statistics().failed == 1
