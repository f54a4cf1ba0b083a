"""The result for each ack id of an answer: no success that the server did not report."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.exceptions import AcknowledgeStatus
from pullstream.rpc.rpcs import Rpcs
from pullstream.streaming.ack_requests import (
    AckRequest,
    AckResult,
    Purpose,
    SentAckIds,
    read_ack_result,
)
from pullstream_protocol.errors import BY_CODE, FailedPrecondition, RpcError

PASSING = {
    *("CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL"),
    *("UNAVAILABLE", "UNKNOWN"),
}
FINAL = {
    "PERMISSION_DENIED": AcknowledgeStatus.PERMISSION_DENIED,
    "FAILED_PRECONDITION": AcknowledgeStatus.FAILED_PRECONDITION,
    "INVALID_ARGUMENT": AcknowledgeStatus.OTHER,
    "NOT_FOUND": AcknowledgeStatus.OTHER,
    "ALREADY_EXISTS": AcknowledgeStatus.OTHER,
    "OUT_OF_RANGE": AcknowledgeStatus.OTHER,
    "UNIMPLEMENTED": AcknowledgeStatus.OTHER,
    "DATA_LOSS": AcknowledgeStatus.OTHER,
    "UNAUTHENTICATED": AcknowledgeStatus.OTHER,
}
PERMANENT = "PERMANENT_FAILURE_INVALID_ACK_ID"
TRANSIENT = "TRANSIENT_FAILURE_INVALID_ACK_ID"


def test_every_grpc_error_code_is_classified_as_a_transient_or_permanent_ack_failure() -> None:
    """A new code of gRPC needs a decision."""
    assert PASSING | FINAL.keys() == {code.name for code in BY_CODE}


@pytest.mark.parametrize("purpose", [Purpose.ACK, Purpose.LEASE])
def test_a_sent_request_has_its_ack_ids_only_in_its_bytes_and_can_be_sent_again(
    purpose: Purpose,
) -> None:
    ack_ids = [f"id-{number}" for number in range(3)]
    request = AckRequest(purpose, ack_ids, 60.0, 0 if purpose is Purpose.ACK else 10)
    first = request.call("projects/p/subscriptions/s", 1.0).request.SerializeToString()
    with grpc.insecure_channel("localhost:1") as channel:
        for _ in range(2):
            request.begin("projects/p/subscriptions/s", 1.0, Rpcs(channel)).cancel()
            assert isinstance(request.ack_ids, SentAckIds)
            assert list(request.ack_ids) == ack_ids
            assert len(request.ack_ids) == 3
            assert (request.ack_ids[1], request.ack_ids[1:]) == ("id-1", ack_ids[1:])
    assert request.call("projects/p/subscriptions/s", 1.0).request.SerializeToString() == first


def test_an_ack_request_answered_without_error_succeeds_for_every_ack_id() -> None:
    """The server says OK for a request as a whole."""
    assert read_ack_result(["a", "b"], None) == AckResult(succeeded=["a", "b"])


@pytest.mark.parametrize("code", sorted(PASSING))
def test_all_ack_ids_of_an_ack_request_with_a_transient_failure_are_retried(code: str) -> None:
    """All ids are retried if the server names none."""
    error = BY_CODE[grpc.StatusCode[code]]("some text")
    assert read_ack_result(["a", "b"], error) == AckResult(retry=["a", "b"])


@pytest.mark.parametrize(("code", "status"), FINAL.items())
def test_the_error_of_a_permanently_failed_ack_has_the_servers_status_and_text(
    code: str, status: AcknowledgeStatus
) -> None:
    """With a single id there is nothing left to split."""
    answer = read_ack_result(["a"], BY_CODE[grpc.StatusCode[code]]("some text"))
    assert answer.failed.keys() == {"a"}
    assert answer.succeeded == answer.retry == answer.split == []
    assert (answer.failed["a"].error_code, answer.failed["a"].info) == (status, "some text")


def test_an_ack_request_refused_as_invalid_is_split_into_smaller_requests() -> None:
    """The cause may be one of its ids or its size."""
    error = BY_CODE[grpc.StatusCode.INVALID_ARGUMENT]("some text")
    assert read_ack_result(["a", "b", "c"], error) == AckResult(split=["a", "b", "c"])


@pytest.mark.parametrize("code", BY_CODE)
def test_ack_ids_that_an_ack_error_does_not_name_get_no_result_from_that_answer(
    code: grpc.StatusCode,
) -> None:
    """Some servers have applied the request for the other ids, and some have not."""
    named = {"bad": PERMANENT, "busy": TRANSIENT, "odd": "PERMANENT_FAILURE_SOMETHING"}
    error = BY_CODE[code]("some text", reason="R", metadata=named)
    answer = read_ack_result(["good", "bad", "busy", "odd", "fine"], error)
    assert (answer.unnamed, answer.retry) == (["good", "fine"], ["busy"])
    assert answer.succeeded == answer.split == answer.too_early == []
    assert {ack_id: (e.error_code, e.info) for ack_id, e in answer.failed.items()} == {
        "bad": (AcknowledgeStatus.INVALID_ACK_ID, PERMANENT),
        "odd": (AcknowledgeStatus.OTHER, "PERMANENT_FAILURE_SOMETHING"),
    }


def test_an_ack_request_refused_without_naming_an_ack_id_fails_for_all_its_ack_ids() -> None:
    """The metadata belongs to another reason, so the status counts for all ids."""
    error = FailedPrecondition("some text", reason="R", metadata={"service": "pubsub"})
    answer = read_ack_result(["a", "b"], error)
    assert answer.succeeded == []
    assert answer.failed.keys() == {"a", "b"}


@given(
    ack_ids=st.lists(st.text("abc", min_size=1, max_size=3), unique=True, min_size=1),
    code=st.sampled_from(list(BY_CODE)),
    named=st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.sampled_from([PERMANENT, TRANSIENT, "X"])
    ),
)
def test_every_ack_id_of_a_failed_ack_request_has_exactly_one_result(
    ack_ids: list[str], code: grpc.StatusCode, named: dict[str, str]
) -> None:
    """No id succeeds by an error."""
    error: RpcError = BY_CODE[code]("some text", reason="R", metadata=named)
    answer = read_ack_result(ack_ids, error)
    outcomes = [*answer.unnamed, *answer.retry, *answer.split, *answer.failed]
    assert sorted(outcomes) == sorted(ack_ids)
    assert answer.succeeded == []
    assert named.keys().isdisjoint(answer.unnamed)
    assert not answer.unnamed or not named.keys().isdisjoint(ack_ids)
