"""Requests reach the server: small enough, and repeated until the server has them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from pullstream import AcknowledgeError, AcknowledgeStatus, FlowControl, Hooks, Message
from pullstream.hooks import RequestKind
from pullstream.streaming.dispatcher import MAX_IN_FLIGHT
from pullstream_emulator.engine import Engine
from pullstream_protocol.errors import BY_CODE, InvalidArgument, PermissionDenied, RpcError
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Events, Log, Stage, keep
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

SERVER_LIMIT = 512 * 1024
PASSING_CODES = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
)

LARGE = FlowControl(max_messages=10_000)


def lengthen_ack_ids(engine: Engine) -> None:
    """Make the broker's ack ids as long as Google's sometimes are: about 230 characters."""
    leases = engine.registry.subscription(SUBSCRIPTION).leases
    leases._ack_ids.mark = "-" + "x" * 225


def subscribe(here: Stage, count: int, *hooks: Events) -> list[Message]:
    """Receive this many messages for the test to settle."""
    log = Log(keep)
    here.client.subscribe(SUBSCRIPTION, log, LARGE, hooks=hooks)
    here.publish(*[b"x"] * count)
    return log.wait_for(count)


def settle_in_few_requests(
    here: Stage, method: str, messages: list[Message], settle: Callable[[Message], Any]
) -> list[Any]:
    """Settle messages while all allowed calls are held, so that the rest shares requests."""
    results: list[Any] = []
    with here.faults.drop(method) as held:
        for number in range(MAX_IN_FLIGHT):
            results.append(settle(messages[number]))
            held.wait_for_hits(number + 1)
        results += [settle(message) for message in messages[MAX_IN_FLIGHT:]]
    return results


def test_the_broker_refuses_an_acknowledge_request_above_googles_size_limit(here: Stage) -> None:
    """The tests below rely on this limit."""
    here.emulator.inspect(lengthen_ack_ids)
    ack_ids = [message.ack_id for message in subscribe(here, 2_400)]
    with pytest.raises(InvalidArgument):
        here.other.acknowledge(subscription=SUBSCRIPTION, ack_ids=ack_ids)
    assert here.backlog == 2_400


@pytest.mark.parametrize(
    ("method", "settle"),
    [
        ("Acknowledge", Message.ack_with_response),
        ("ModifyAckDeadline", lambda message: message.nack_with_response(delay=600)),
    ],
)
def test_thousands_of_long_ack_ids_are_sent_in_requests_within_the_size_limit(
    here: Stage, method: str, settle: Callable[[Message], Any]
) -> None:
    """The requests are full, and none is refused for its size."""
    here.emulator.inspect(lengthen_ack_ids)
    sizes: list[int] = []
    events = Events()
    messages = subscribe(here, 4_000, events)

    def measure(request: Any) -> None:
        sizes.append(request.ByteSize())

    here.faults.error(method, measure)
    futures = settle_in_few_requests(here, method, messages, settle)
    for future in futures:
        assert future.result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert SERVER_LIMIT * 0.8 < max(sizes) <= SERVER_LIMIT
    assert events.request_errors == []


def test_an_ack_request_refused_as_too_large_is_split_until_it_fits(here: Stage) -> None:
    """A server may allow less than its documented limit."""

    def at_most_a_hundred(request: Any) -> RpcError | None:
        return InvalidArgument("too large") if len(request.ack_ids) > 100 else None

    future_of_all = subscribe(here, 1_000)
    here.faults.error("Acknowledge", at_most_a_hundred)
    futures = settle_in_few_requests(here, "Acknowledge", future_of_all, Message.ack_with_response)
    for future in futures:
        assert future.result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert here.backlog == 0


def test_one_bad_ack_id_does_not_fail_the_other_ack_ids_of_its_request(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the bad id fails. It is counted, passed to the hook, logged once, and in its future."""
    events = Events()
    messages = subscribe(here, 100, events)
    bad = messages[57]

    def refuse_bad(request: Any) -> RpcError | None:
        return InvalidArgument("bad ack id") if bad.ack_id in request.ack_ids else None

    here.faults.error("Acknowledge", refuse_bad)
    with caplog.at_level(logging.WARNING):
        futures = settle_in_few_requests(here, "Acknowledge", messages, Message.ack_with_response)
        errors = [future.exception(TIMEOUT) for future in futures]
        eventually(lambda: len(caplog.records) > 0)
    assert [i for i, error in enumerate(errors) if error is not None] == [57]
    assert isinstance(errors[57], AcknowledgeError)
    assert here.backlog == 1
    assert events.refused_ids == [bad.ack_id]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("code", PASSING_CODES)
@pytest.mark.parametrize("method", ["Acknowledge", "ModifyAckDeadline"])
def test_an_ack_request_refused_with_a_transient_error_is_retried(
    here: Stage, code: grpc.StatusCode, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The request is repeated. Nothing counts as failed, and nothing is logged."""
    fault = here.faults.error(method, BY_CODE[code]("busy"), times=2)
    log = Log(keep)
    future = here.client.subscribe(SUBSCRIPTION, log)
    here.publish(*[b"x"] * 20)
    messages = log.wait_for(20)
    with caplog.at_level(logging.WARNING):
        if method == "Acknowledge":
            for message in messages:
                message.ack()
            eventually(lambda: here.backlog == 0)
        else:
            for message in messages:
                message.nack()
            for message in log.wait_for(40)[20:]:
                message.ack()
            eventually(lambda: here.backlog == 0)
    assert fault.hits == 2
    assert future.statistics().failed == 0
    assert caplog.records == []


class HeldDispatcher(Hooks):
    """Holds the dispatcher's thread at the end of an acknowledgement, so that later ones gather."""

    def __init__(self) -> None:
        self.is_held = threading.Event()
        self.go_on = threading.Event()

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        if kind == "acknowledge":
            self.is_held.set()
            assert self.go_on.wait(TIMEOUT)


@pytest.mark.parametrize("count", [1, 50])
def test_a_permanently_refused_ack_request_is_logged_once_and_every_ack_fails(
    here: Stage, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The request has one line in the log, and every future has the error."""
    log, held = Log(keep), HeldDispatcher()
    future = here.client.subscribe(SUBSCRIPTION, log, hooks=held)
    here.publish(*[b"x"] * (count + 1))
    first, *messages = log.wait_for(count + 1)
    first.ack_with_response()
    assert held.is_held.wait(TIMEOUT)
    refused = here.faults.error("Acknowledge", PermissionDenied("not yours"))
    with caplog.at_level(logging.WARNING):
        acks = [message.ack_with_response() for message in messages]
        held.go_on.set()
        errors = [ack.exception(TIMEOUT) for ack in acks]
        eventually(lambda: future.statistics().failed == count)
        eventually(lambda: len(caplog.records) == refused.hits)
    assert {getattr(error, "error_code", None) for error in errors} == {
        AcknowledgeStatus.PERMISSION_DENIED
    }
    assert refused.hits == 1
    assert all("not yours" in record.message for record in caplog.records)


def test_an_ack_that_the_shutdown_could_not_send_fails_and_is_logged(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """An acknowledgement that the shutdown gave up counts as failed."""
    log = Log(keep)
    future = here.client.subscribe(SUBSCRIPTION, log)
    here.publish(b"x")
    (message,) = log.wait_for(1)
    here.faults.drop("Acknowledge")
    ack = message.ack_with_response()
    with caplog.at_level(logging.WARNING):
        future.begin_close(0.5, "drain")
        assert future.result(TIMEOUT) is True
    assert isinstance(ack.exception(0), AcknowledgeError)
    assert future.statistics().failed == 1
    assert len(caplog.records) == 1
