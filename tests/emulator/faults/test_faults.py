"""Faults of calls: delays, errors, lost replies and dropped calls."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.faults import Fault, Faults
from pullstream_emulator.faults.scope import Scope
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import (
    Aborted,
    Internal,
    NotFound,
    RpcError,
    Unavailable,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import TIMEOUT, Wire, ack_ids_of, data_of

GET_TOPIC = pubsub.GetTopicRequest(topic=TOPIC)
PULL = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=10)

pytestmark = pytest.mark.subscription(enable_exactly_once_delivery=True)

EXACTLY_ONCE_FAILURE = "EXACTLY_ONCE_ACKID_FAILURE"
TRANSIENT = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"


def acknowledging(*ack_ids: str) -> pubsub.AcknowledgeRequest:
    return pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)


# ---- delay ---------------------------------------------------------------------------------------


def test_a_delay_fault_holds_a_call_until_the_broker_clock_passes_the_delay(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """The call is carried out when its time has come, not earlier."""
    fault = faults.delay("CreateTopic", 3600)
    call = wire.start("CreateTopic", pubsub.Topic(name=f"{TOPIC}-late"))
    fault.wait_for_hits()
    clock.advance(3599.9)
    listed = wire.call("ListTopics", pubsub.ListTopicsRequest(project="projects/test"))
    assert [topic.name for topic in listed.topics] == [TOPIC]
    assert not call.done()
    clock.advance(0.1)
    assert call.result().name == f"{TOPIC}-late"


def test_a_delay_fault_on_the_real_clock_delays_the_answer_of_a_call() -> None:
    """A timer of the broker carries it out without any other call."""
    with Emulator() as emulator, Wire(emulator.endpoint) as wire:
        wire.create()
        before = emulator.clock.monotonic()
        with emulator.faults.delay("GetTopic", 0.2) as fault:
            assert wire.call("GetTopic", GET_TOPIC).name == TOPIC
        assert fault.hits == 1
        assert emulator.clock.monotonic() - before >= 0.2


def test_lifting_a_delay_fault_lets_the_delayed_calls_continue_at_once(
    faults: Faults, wire: Wire
) -> None:
    """The clock need not move."""
    with faults.delay("Pull", 3600) as fault:
        wire.publish("a")
        call = wire.start("Pull", PULL)
        fault.wait_for_hits()
    assert data_of(call.result().received_messages) == ["a"]


# ---- error ---------------------------------------------------------------------------------------


def test_a_call_refused_by_an_error_fault_is_not_carried_out_by_the_broker(
    faults: Faults, wire: Wire
) -> None:
    """The caller gets the error. Calls of other clients and methods succeed."""
    faults.error("Publish", Aborted("not today"))
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"a")])
    refused = wire.failure("Publish", request)
    assert isinstance(refused, Aborted)
    assert refused.message == "not today"
    faults.clear()
    wire.publish("b")
    assert data_of(wire.pull()) == ["b"]


def test_a_pull_that_an_error_fault_refuses_takes_no_message(faults: Faults, wire: Wire) -> None:
    """A call that encodes its own answer is refused like any other."""
    wire.publish("a")
    with faults.error("Pull", Unavailable("away"), times=1):
        assert isinstance(wire.failure("Pull", PULL), Unavailable)
    assert data_of(wire.pull(wait=False)) == ["a"]


def test_a_fault_with_a_count_affects_that_many_calls_and_no_more(
    faults: Faults, wire: Wire
) -> None:
    """Only calls that the fault affects count."""
    fault = faults.error("GetTopic", Unavailable("away"), times=2)
    for _ in range(2):
        assert isinstance(wire.failure("GetTopic", GET_TOPIC), Unavailable)
    assert wire.call("GetTopic", GET_TOPIC).name == TOPIC
    assert fault.hits == 2


def test_a_fault_set_for_the_wildcard_method_affects_calls_of_every_method(
    faults: Faults, wire: Wire
) -> None:
    """The fault affects unary calls, pulls and streams."""
    fault = faults.error("*", Unavailable("away"))
    assert isinstance(wire.failure("GetTopic", GET_TOPIC), Unavailable)
    assert isinstance(wire.failure("Pull", PULL), Unavailable)
    assert wire.stream().end() is grpc.StatusCode.UNAVAILABLE
    assert fault.hits == 3


@pytest.mark.parametrize("with_details", [True, False])
def test_an_error_fault_sends_the_error_details_given_to_the_fault(
    faults: Faults, wire: Wire, with_details: bool
) -> None:
    """The reason is an ErrorInfo in the trailers. By default there are only status and text."""
    error = Internal("broken", reason="WORN_OUT", metadata={"since": "1999"})
    faults.error("GetTopic", error, with_details=with_details)
    got = wire.failure("GetTopic", GET_TOPIC)
    assert (type(got), got.message) == (Internal, "broken")
    expected = ("WORN_OUT", {"since": "1999"}) if with_details else (None, {})
    assert (got.reason, dict(got.metadata or {})) == expected


def test_an_error_fault_may_choose_the_calls_to_refuse_by_their_request(
    faults: Faults, wire: Wire
) -> None:
    """Without an error the call is carried out and does not count as a hit."""
    missing = f"{TOPIC}-missing"
    fault = faults.error(
        "CreateTopic", lambda request: NotFound("gone") if request.name == missing else None
    )
    assert isinstance(wire.failure("CreateTopic", pubsub.Topic(name=missing)), NotFound)
    assert wire.call("CreateTopic", pubsub.Topic(name=f"{TOPIC}-2")).name == f"{TOPIC}-2"
    assert fault.hits == 1


def test_an_error_fault_may_report_a_different_failure_for_each_ack_id(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """None of the named IDs is acknowledged."""
    wire.publish("a", "b")
    ids = list(ack_ids_of(wire.pull()))

    def fail(request: pubsub.AcknowledgeRequest) -> RpcError:
        metadata = dict(zip(request.ack_ids, [TRANSIENT, INVALID], strict=True))
        return Aborted("some failed", reason=EXACTLY_ONCE_FAILURE, metadata=metadata)

    with faults.error("Acknowledge", fail, times=1):
        error = wire.failure("Acknowledge", acknowledging(*ids))
    assert dict(error.metadata or {}) == {ids[0]: TRANSIENT, ids[1]: INVALID}
    assert emulator.backlog(SUBSCRIPTION) == 2
    wire.acknowledge(*ids)
    assert emulator.backlog(SUBSCRIPTION) == 0


def test_the_error_of_an_error_fault_includes_ack_ids_that_the_broker_itself_refuses(
    emulator: Emulator, wire: Wire
) -> None:
    """Otherwise the client would believe that these IDs are acknowledged."""
    wire.create(enable_exactly_once_delivery=True, enable_message_ordering=True)
    for data in ("a", "b", "c"):
        emulator.publish(TOPIC, data, ordering_key="k")
    first, second, third = ack_ids_of(wire.pull())
    failed = {first: INVALID, third: INVALID}
    emulator.faults.error(
        "Acknowledge", Aborted("some failed", reason=EXACTLY_ONCE_FAILURE, metadata=failed)
    )
    error = wire.failure("Acknowledge", acknowledging(first, second, third))
    assert dict(error.metadata or {}) == {**failed, second: TRANSIENT}
    assert emulator.backlog(SUBSCRIPTION) == 3


def test_ack_ids_that_the_error_of_a_fault_does_not_name_are_acknowledged(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """The client takes the unnamed IDs for acknowledged."""
    wire.publish("a", "b", "c")
    first, *others = ack_ids_of(wire.pull())
    error = Aborted("one failed", reason=EXACTLY_ONCE_FAILURE, metadata={first: TRANSIENT})
    with faults.error("Acknowledge", error, times=1):
        got = wire.failure("Acknowledge", acknowledging(first, *others))
    assert dict(got.metadata or {}) == {first: TRANSIENT}
    assert emulator.backlog(SUBSCRIPTION) == 1
    wire.acknowledge(first)
    assert emulator.backlog(SUBSCRIPTION) == 0


# ---- lost replies --------------------------------------------------------------------------------


def test_under_the_lost_reply_fault_a_failed_call_has_taken_effect_on_the_broker(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """The caller cannot distinguish the call from one that was not carried out."""
    fault = faults.lose_reply("Publish", times=1)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"a")])
    assert isinstance(wire.failure("Publish", request), Unavailable)
    assert fault.hits == 1
    assert emulator.backlog(SUBSCRIPTION) == 1
    wire.call("Publish", request)
    assert emulator.backlog(SUBSCRIPTION) == 2


def test_messages_of_a_pull_with_a_lost_reply_stay_leased_until_the_ack_deadline(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """The messages are redelivered after their ack deadline."""
    wire.publish("a")
    with faults.lose_reply("Pull", code=grpc.StatusCode.DEADLINE_EXCEEDED):
        code = wire.start("Pull", PULL).code()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert wire.pull(wait=False) == []
    clock.advance(10)
    assert data_of(wire.pull(wait=False)) == ["a"]


def test_the_lost_reply_fault_does_not_replace_the_error_of_a_failed_call(
    faults: Faults, wire: Wire
) -> None:
    """The call's own error is returned instead."""
    fault = faults.lose_reply("GetTopic")
    request = pubsub.GetTopicRequest(topic=f"{TOPIC}-missing")
    assert isinstance(wire.failure("GetTopic", request), NotFound)
    assert fault.hits == 0


# ---- dropped calls -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "request_"),
    [("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC)), ("Pull", PULL)],
)
def test_a_call_held_by_the_drop_fault_ends_with_deadline_exceeded_and_has_no_effect(
    faults: Faults, wire: Wire, emulator: Emulator, method: str, request_: Any
) -> None:
    """The call is not carried out: the topic exists, and no message is leased."""
    wire.publish("a")
    with faults.drop(method) as fault:
        call = wire.start(method, request_, timeout=3)
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert fault.hits == 1
        assert emulator.inspect(lambda engine: engine.get_topic(TOPIC)).name == TOPIC
        assert emulator.history.deliveries() == []


def test_a_call_held_by_the_drop_fault_continues_when_the_fault_is_lifted(
    faults: Faults, wire: Wire
) -> None:
    """The rule includes the last call of the fault's count."""
    fault = faults.drop("GetTopic", times=1)
    held = wire.start("GetTopic", GET_TOPIC)
    fault.wait_for_hits()
    # The next call is not dropped.
    assert wire.call("GetTopic", GET_TOPIC).name == TOPIC
    # The held call is not forgotten when another fault is set.
    faults.drop("Publish")
    assert not held.done()
    faults.clear()
    assert held.result().name == TOPIC


def test_stopping_the_broker_ends_calls_that_are_held_by_a_fault() -> None:
    """The calls end with UNAVAILABLE at once."""
    with Emulator() as other:
        away = Wire(other.endpoint)
        fault = other.faults.drop("*")
        call = away.start("GetTopic", GET_TOPIC)
        pull = away.start("Pull", PULL)
        stream = away.stream()
        fault.wait_for_hits(3)
    assert call.code() is grpc.StatusCode.UNAVAILABLE
    assert pull.code() is grpc.StatusCode.UNAVAILABLE
    assert stream.end() is grpc.StatusCode.UNAVAILABLE
    assert call.details() == pull.details() == stream.details() == "The broker is shutting down."
    away.close()


# ---- handles -------------------------------------------------------------------------------------


def test_several_faults_of_a_method_act_on_a_call_in_the_order_in_which_they_were_set(
    faults: Faults, wire: Wire, clock: ManualClock
) -> None:
    """A late refusal is a delay followed by an error."""
    late = faults.delay("GetTopic", 3600)
    faults.error("GetTopic", Unavailable("away"))
    call = wire.start("GetTopic", GET_TOPIC)
    late.wait_for_hits()
    assert not call.done()
    clock.advance(3600)
    assert call.code() is grpc.StatusCode.UNAVAILABLE


def test_a_fault_used_in_a_with_statement_is_lifted_at_the_end_of_the_block(
    faults: Faults, wire: Wire
) -> None:
    """`lift` does the same, and can be called repeatedly."""
    with faults.error("GetTopic", Unavailable("away")) as fault:
        wire.failure("GetTopic", GET_TOPIC)
    fault.lift()
    assert wire.call("GetTopic", GET_TOPIC).name == TOPIC
    assert fault.hits == 1
    assert faults.active == ()


def test_waiting_for_more_hits_of_a_fault_than_occur_times_out(
    faults: Faults,
) -> None:
    """The error names the expected hits."""
    fault = faults.drop("Publish")
    with pytest.raises(TimeoutError, match=r"drop of Publish acted 0 times within 0\.01 s, not 2"):
        fault.wait_for_hits(2, timeout=0.01)


def test_faults_stay_active_across_a_restart_of_the_emulator() -> None:
    """Faults belong to the emulator, like its clock."""
    emulator = Emulator()
    emulator.faults.error("*", Aborted("no"))
    for _ in range(2):
        with emulator, Wire(emulator.endpoint) as wire:
            assert isinstance(wire.failure("GetTopic", GET_TOPIC), Aborted)


def test_a_fault_with_a_used_up_count_is_removed_from_the_list_of_active_faults(
    faults: Faults, wire: Wire
) -> None:
    """A long test may set thousands of faults."""
    for _ in range(5):
        faults.error("GetTopic", Unavailable("away"), times=1)
        wire.failure("GetTopic", GET_TOPIC)
    assert len(faults.active) == 1


@pytest.mark.parametrize(
    ("set_fault", "text"),
    [
        (lambda faults: faults.drop("Acknowledgement"), "method must be the name of an RPC"),
        (lambda faults: faults.drop("Publish", times=0), "times must be 1 or more"),
        (lambda faults: faults.delay("Publish", -1), "seconds must be 0 or more"),
        (lambda faults: faults.lose_reply("Publish", code=grpc.StatusCode.OK), "other than OK"),
        (lambda faults: faults.abort_streams_after(0, Aborted("")), "responses must be 1 or more"),
    ],
)
def test_setting_a_fault_with_an_invalid_argument_raises_a_value_error(
    set_fault: Any, text: str
) -> None:
    """The error names the argument. No fault is set."""
    faults = Faults()
    with pytest.raises(ValueError, match=text):
        set_fault(faults)
    assert faults.active == ()


def test_a_fault_reports_that_it_is_over_when_its_count_is_used_up() -> None:
    """The count needs no broker."""
    fault = Fault(Scope("Publish", times=1))
    assert [fault.claim(), fault.claim()] == [True, False]
    assert fault.is_over
    fault.wait_for_hits(1, timeout=TIMEOUT)


def test_a_lifted_fault_affects_no_more_calls() -> None:
    """The rule holds for a call that had met the fault before."""
    fault = Fault(Scope("Publish"))
    fault.lift()
    assert not fault.claim()
    assert fault.is_over
