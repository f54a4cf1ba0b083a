"""Errors are the same on both sides of the wire, and Google's clients understand them."""

import base64
import re
from urllib.parse import quote

import grpc
import pytest
from google.api_core import exceptions as google
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2

from pullstream_protocol import errors
from tests.failed_call import FailedCall

FAILURE_CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
# The ASCII characters that gRPC does not encode in the text of a status.
PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
ACK_FAILURES = {"ack-1": "PERMANENT_FAILURE_INVALID_ACK_ID", "ack-2": "TRANSIENT_FAILURE_BUSY"}


@pytest.mark.parametrize("code", FAILURE_CODES, ids=lambda code: code.name)
def test_each_grpc_status_has_a_pullstream_and_google_exception_class(
    code: grpc.StatusCode,
) -> None:
    """`except google.api_core.exceptions.NotFound` catches pullstream's NotFound, and only that."""
    error = errors.BY_CODE[code]("some text")
    assert isinstance(error, errors.PullstreamError)
    assert isinstance(error, type(google.from_grpc_status(code, "")))  # type: ignore[no-untyped-call]
    assert error.grpc_status_code is code
    assert error.message == "some text"
    assert errors.code_name(error) == code.name


@pytest.mark.parametrize("code", FAILURE_CODES, ids=lambda code: code.name)
def test_an_error_sent_over_grpc_is_received_with_the_same_class_text_and_details(
    code: grpc.StatusCode,
) -> None:
    """The test covers class, text, reason and the failures of single ack IDs."""
    sent = errors.BY_CODE[code]("some text", reason="ACK_FAILED", metadata=ACK_FAILURES)
    received = errors.from_rpc_error(FailedCall.of(sent))
    assert type(received) is type(sent)
    assert received.message == "some text"
    assert received.reason == "ACK_FAILED"
    assert received.metadata == ACK_FAILURES


def test_googles_api_core_reads_the_reason_and_metadata_of_pullstream_errors() -> None:
    """The client discards details whose code or message differs from that of the call."""
    sent = errors.FailedPrecondition("some text", reason="ACK_FAILED", metadata=ACK_FAILURES)
    received = google.from_grpc_error(FailedCall.of(sent))  # type: ignore[no-untyped-call]
    assert isinstance(received, google.FailedPrecondition)
    assert received.reason == "ACK_FAILED"
    assert received.metadata == ACK_FAILURES


def test_an_error_without_a_reason_is_sent_over_grpc_with_a_status_but_no_details() -> None:
    """Google's Python client takes an error without this trailer for a success."""
    received = errors.from_rpc_error(FailedCall.of(errors.NotFound("gone")))
    assert (type(received), received.message) == (errors.NotFound, "gone")
    assert not received.reason
    assert not received.metadata
    sent = status_pb2.Status.FromString(errors.rich_status(errors.NotFound("gone")))
    assert sent == status_pb2.Status(code=5, message="gone")


@pytest.mark.parametrize("character", ["x", "%", "\n", "ä", "漢", "😀", "\ud800"])
@pytest.mark.parametrize("named", [0, 20, 200])
def test_the_grpc_trailers_of_an_error_never_exceed_8_kib(character: str, named: int) -> None:
    """A long text is cut, and details that do not fit are left out. The status is always whole."""
    metadata = {f"ack-{number}": "TRANSIENT_FAILURE_INVALID_ACK_ID" for number in range(named)}
    error = errors.InvalidArgument(character * 5_000, reason="ACK_FAILED", metadata=metadata)
    code, text, trailers = errors.status_of(error)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    ((key, details),) = trailers
    sent = status_pb2.Status.FromString(details)
    assert (sent.code, sent.message) == (3, text)
    size = len(quote(text, safe=PLAIN)) + len(base64.b64encode(details)) + len(key)
    assert size <= 8 * 1024 - 300
    assert errors.error_info(trailers).metadata == ({} if named == 200 else metadata)
    assert errors.fits(error) == (named < 200)


def test_a_short_error_text_is_sent_over_grpc_without_being_cut() -> None:
    """600 characters are short."""
    _, text, _ = errors.status_of(errors.NotFound("x" * 600))
    assert text == "x" * 600


def test_error_details_of_pullstream_are_read_although_a_proxy_added_other_details() -> None:
    """Every detail of every trailer is examined."""
    status = status_pb2.Status(code=9, message="some text")
    for detail in (
        error_details_pb2.DebugInfo(detail="a proxy was here"),
        error_details_pb2.ErrorInfo(reason="ACK_FAILED", metadata=ACK_FAILURES),
    ):
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    call = FailedCall(
        grpc.StatusCode.FAILED_PRECONDITION,
        "some text",
        (("x-proxy", "1"), (errors.STATUS_DETAILS_KEY, status.SerializeToString())),
    )
    assert errors.from_rpc_error(call).metadata == ACK_FAILURES


def test_a_grpc_error_with_unreadable_details_keeps_its_status_code_and_text() -> None:
    """The content of the details is lost, but the failure is not."""
    call = FailedCall(
        grpc.StatusCode.NOT_FOUND, "gone", ((errors.STATUS_DETAILS_KEY, b"\xff\xff\xff"),)
    )
    error = errors.from_rpc_error(call)
    assert (type(error), error.message) == (errors.NotFound, "gone")


def test_the_message_of_a_grpc_error_without_text_is_the_name_of_its_status_code() -> None:
    """An empty message would be of no use in a log."""
    assert "NOT_FOUND" in errors.from_rpc_error(FailedCall(grpc.StatusCode.NOT_FOUND, None)).message


def test_an_rpc_error_without_a_status_code_is_converted_to_the_error_class_unknown() -> None:
    """In a few places grpc raises its bare base class."""
    error = errors.from_rpc_error(grpc.RpcError("out of the blue"))
    assert (type(error), error.message) == (errors.Unknown, "out of the blue")


@pytest.mark.parametrize("kind", errors.BY_CODE.values())
def test_str_of_an_error_begins_with_its_http_status_code_if_there_is_one(
    kind: type[errors.RpcError],
) -> None:
    """Google's classes have none for UNKNOWN and DATA_LOSS."""
    assert re.fullmatch(r"([1-5]\d\d )?the text", str(kind("the text")))
