"""What an answer means for each ack id: never a success that the server did not tell."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import BY_CODE, FailedPrecondition, RpcError
from subscriber.exceptions import AcknowledgeStatus
from subscriber.streaming.verdicts import Answer, read_answer

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


def test_every_code_is_one_or_the_other() -> None:
    """A code that gRPC adds one day has to be thought about."""
    assert PASSING | FINAL.keys() == {code.name for code in BY_CODE}


def test_without_an_error_everything_succeeded() -> None:
    """The server says OK for a request as a whole."""
    assert read_answer(["a", "b"], None) == Answer(succeeded=["a", "b"])


@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_passing_failure_is_tried_again(code: str) -> None:
    """For all ids, when the server does not name any."""
    error = BY_CODE[grpc.StatusCode[code]]("some text")
    assert read_answer(["a", "b"], error) == Answer(retry=["a", "b"])


@pytest.mark.parametrize(("code", "status"), FINAL.items())
def test_a_final_failure_is_told_with_its_status_and_text(
    code: str, status: AcknowledgeStatus
) -> None:
    """One id alone, so that nothing is left to try."""
    answer = read_answer(["a"], BY_CODE[grpc.StatusCode[code]]("some text"))
    assert answer.failed.keys() == {"a"}
    assert answer.succeeded == answer.retry == answer.split == []
    assert (answer.failed["a"].error_code, answer.failed["a"].info) == (status, "some text")


def test_a_request_refused_as_invalid_is_split() -> None:
    """One of its ids may be the reason, or its size."""
    error = BY_CODE[grpc.StatusCode.INVALID_ARGUMENT]("some text")
    assert read_answer(["a", "b", "c"], error) == Answer(split=["a", "b", "c"])


@pytest.mark.parametrize("code", BY_CODE)
def test_where_the_server_names_ids_only_those_have_failed(code: grpc.StatusCode) -> None:
    """Whatever the status of the call: exactly-once applies what it does not name."""
    named = {"bad": PERMANENT, "busy": TRANSIENT, "odd": "PERMANENT_FAILURE_SOMETHING"}
    error = BY_CODE[code]("some text", reason="R", metadata=named)
    answer = read_answer(["good", "bad", "busy", "odd", "fine"], error)
    assert (answer.succeeded, answer.retry, answer.split) == (["good", "fine"], ["busy"], [])
    assert {ack_id: (e.error_code, e.info) for ack_id, e in answer.failed.items()} == {
        "bad": (AcknowledgeStatus.INVALID_ACK_ID, PERMANENT),
        "odd": (AcknowledgeStatus.OTHER, "PERMANENT_FAILURE_SOMETHING"),
    }


def test_details_that_name_no_id_of_the_request_do_not_make_it_a_success() -> None:
    """Some other reason's metadata; the status counts for all."""
    error = FailedPrecondition("some text", reason="R", metadata={"service": "pubsub"})
    answer = read_answer(["a", "b"], error)
    assert answer.succeeded == []
    assert answer.failed.keys() == {"a", "b"}


@given(
    ack_ids=st.lists(st.text("abc", min_size=1, max_size=3), unique=True, min_size=1),
    code=st.sampled_from(list(BY_CODE)),
    named=st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.sampled_from([PERMANENT, TRANSIENT, "X"])
    ),
)
def test_every_id_has_exactly_one_outcome(
    ack_ids: list[str], code: grpc.StatusCode, named: dict[str, str]
) -> None:
    """And none is a success unless the answer names failures, and not this one."""
    error: RpcError = BY_CODE[code]("some text", reason="R", metadata=named)
    answer = read_answer(ack_ids, error)
    outcomes = [*answer.succeeded, *answer.retry, *answer.split, *answer.failed]
    assert sorted(outcomes) == sorted(ack_ids)
    assert named.keys().isdisjoint(answer.succeeded)
    assert not answer.succeeded or not named.keys().isdisjoint(ack_ids)
