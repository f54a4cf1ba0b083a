"""Error classes, and their conversion to and from gRPC statuses.

    PullstreamError
     +-- InvalidArgument, NotFound, AlreadyExists, ...   one class for each gRPC status code
     +-- (pullstream.exceptions adds AcknowledgeError and the SDK's other errors)

Each class of a status code is a subclass of google-api-core's class of that code. So code for the
official client, such as `except google.api_core.exceptions.NotFound`, also catches these errors.
The broker raises them, its gRPC layer converts them to a status (`status_of`), and the SDK
converts a status back to an error (`from_rpc_error`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import grpc
from google.api_core import exceptions as api
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

ERROR_DOMAIN = "pubsub.googleapis.com"
STATUS_DETAILS_KEY = "grpc-status-details-bin"

# Most bytes of headers that every client accepts in a response. gRPC's C core, and so Python, has
# this limit by default, and reports a response above it without details.
MAX_HEADER_BYTES = 8 * 1024

# Bytes of the headers beside the text and the details of a status: `:status`, `content-type`,
# `grpc-status`, encodings, and all names. HTTP/2 counts 32 bytes more for each header.
_OTHER_HEADER_BYTES = 400

# Longest text of a status, in characters and in bytes on the wire. It quotes the caller's values.
MAX_TEXT = 600
MAX_TEXT_BYTES = 1800

Trailers = tuple[tuple[str, bytes], ...]


class PullstreamError(Exception):
    """Base class of all errors that pullstream raises on purpose.

    Errors can be copied and pickled, with their text and attributes, for example by an executor of
    processes.
    """

    def __reduce__(self) -> tuple[Callable[..., PullstreamError], tuple[object, ...]]:
        # The default calls the constructor with `args`, which do not fit most constructors here.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    cls: type[PullstreamError], args: tuple[object, ...], attributes: dict[str, object]
) -> PullstreamError:
    error = cls.__new__(cls, *args)
    # An OSError does not have them yet.
    error.args = args
    error.__dict__.update(attributes)
    return error


class RpcError(PullstreamError, api.GoogleAPICallError):
    """A call ended with a gRPC status other than OK.

    `message` describes the error; `grpc_status_code` is the status. `reason` and `metadata` have
    the contents of the `google.rpc.ErrorInfo` that came with it, if any. With exactly-once
    delivery, `metadata` maps each ack ID to its failure code.

    Attributes:
        may_have_succeeded: Whether the server may have carried out the call all the same: this
            attempt or an earlier one was sent and had no definite answer. Always False for calls
            that only read.
    """

    grpc_status_code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self, message: str, *, reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        info = None
        if reason:
            info = error_details_pb2.ErrorInfo(
                reason=reason, domain=ERROR_DOMAIN, metadata=dict(metadata or {})
            )
        # google-api-core's constructor has no annotations.
        super().__init__(message, error_info=info)  # type: ignore[no-untyped-call]
        self.may_have_succeeded: bool = False

    def __str__(self) -> str:
        # Google's classes have no number for some codes, and would write "None".
        return self.message if self.code is None else f"{self.code} {self.message}"

    def restate(self, message: str) -> None:
        """Replace the text."""
        self.message: str = message
        self.args: tuple[object, ...] = (message,)


def restated(error: RpcError, message: str) -> RpcError:
    """Return a copy of an error with another text."""
    copy = type(error)(message, reason=error.reason or "", metadata=error.metadata)
    copy.may_have_succeeded = error.may_have_succeeded
    return copy


class Cancelled(RpcError, api.Cancelled):
    """The caller has cancelled the call or closed its client."""

    grpc_status_code = grpc.StatusCode.CANCELLED


class Unknown(RpcError, api.Unknown):
    """The call failed for a reason that no other status code describes."""

    grpc_status_code = grpc.StatusCode.UNKNOWN


class InvalidArgument(RpcError, api.InvalidArgument):
    """A field of the request is invalid, and the same request always fails."""

    grpc_status_code = grpc.StatusCode.INVALID_ARGUMENT


class DeadlineExceeded(RpcError, api.DeadlineExceeded):
    """The time limit of the call passed before the response arrived."""

    grpc_status_code = grpc.StatusCode.DEADLINE_EXCEEDED


class NotFound(RpcError, api.NotFound):
    """A resource that the request names does not exist."""

    grpc_status_code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(RpcError, api.AlreadyExists):
    """A resource with the name in the request exists already."""

    grpc_status_code = grpc.StatusCode.ALREADY_EXISTS


class PermissionDenied(RpcError, api.PermissionDenied):
    """The caller is authenticated, and may not make this call."""

    grpc_status_code = grpc.StatusCode.PERMISSION_DENIED


class ResourceExhausted(RpcError, api.ResourceExhausted):
    """A limit of the server is reached, such as the number of sessions."""

    grpc_status_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(RpcError, api.FailedPrecondition):
    """The state of a resource does not allow the call."""

    grpc_status_code = grpc.StatusCode.FAILED_PRECONDITION


class Aborted(RpcError, api.Aborted):
    """The call conflicts with a concurrent one; read the state again before a retry."""

    grpc_status_code = grpc.StatusCode.ABORTED


class OutOfRange(RpcError, api.OutOfRange):
    """A position in the request is outside the valid range."""

    grpc_status_code = grpc.StatusCode.OUT_OF_RANGE


class Unimplemented(RpcError, api.MethodNotImplemented):
    """The server does not have the method or the requested feature."""

    grpc_status_code = grpc.StatusCode.UNIMPLEMENTED


class Internal(RpcError, api.InternalServerError):
    """The server failed because of a defect in it."""

    grpc_status_code = grpc.StatusCode.INTERNAL


class Unavailable(RpcError, api.ServiceUnavailable):
    """The server cannot be reached or cannot serve now; a retry may succeed."""

    grpc_status_code = grpc.StatusCode.UNAVAILABLE


class DataLoss(RpcError, api.DataLoss):
    """The server has lost or damaged data, and cannot restore it."""

    grpc_status_code = grpc.StatusCode.DATA_LOSS


class Unauthenticated(RpcError, api.Unauthenticated):
    """The credentials of the call are missing or invalid."""

    grpc_status_code = grpc.StatusCode.UNAUTHENTICATED


BY_CODE: dict[grpc.StatusCode, type[RpcError]] = {
    cls.grpc_status_code: cls
    for cls in (
        Cancelled, Unknown, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists,
        PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted, OutOfRange,
        Unimplemented, Internal, Unavailable, DataLoss, Unauthenticated,
    )
}  # fmt: skip


def status_of(error: RpcError) -> tuple[grpc.StatusCode, str, Trailers]:
    """Return code, text and trailers with which a server ends a call: the arguments of `abort`.

    Every status has details, even if the error has no reason: with exactly-once delivery, Google's
    Python client takes an error without details for a success. Details that do not fit into
    MAX_HEADER_BYTES are left out (see `fits`), and a long text is cut.
    """
    text = _shortened(error.message)
    details = rich_status(error, text)
    if not _fit(text, details):
        details = rich_status(type(error)(text))
    return error.grpc_status_code, text, ((STATUS_DETAILS_KEY, details),)


def fits(error: RpcError) -> bool:
    """Return whether clients accept a response with all details of `error`."""
    text = _shortened(error.message)
    return _fit(text, rich_status(error, text))


def _fit(text: str, details: bytes) -> bool:
    # Binary headers are sent in base64 without padding.
    size = _percent_encoded_size(text) + -(-len(details) * 4 // 3)
    return size <= MAX_HEADER_BYTES - _OTHER_HEADER_BYTES


def _percent_encoded_size(text: str) -> int:
    """Return the size of a status's text on the wire, in bytes."""
    encoded = text.encode()
    return len(encoded) + 2 * sum(not 0x20 <= byte <= 0x7E or byte == 0x25 for byte in encoded)


def _shortened(text: str) -> str:
    """Return the text of a status, cut to the length that may be sent in a header."""
    # A text from JSON may have surrogates, which UTF-8 cannot encode.
    text = text.encode(errors="replace").decode()
    if len(text) <= MAX_TEXT and _percent_encoded_size(text) <= MAX_TEXT_BYTES:
        return text
    text = text[:MAX_TEXT]
    while _percent_encoded_size(text) > MAX_TEXT_BYTES:
        text = text[: len(text) * 9 // 10]
    return text + "..."


def rich_status(error: RpcError, text: str | None = None) -> bytes:
    """Return the `grpc-status-details-bin` trailer of `error`.

    The trailer has the code and text of the RPC's status, because the official Python client
    discards details that have another status.

    Args:
        error: The error.
        text: The text of the status; None means the message of `error`.
    """
    status = status_pb2.Status(
        code=error.grpc_status_code.value[0], message=error.message if text is None else text
    )
    if error.reason:
        status.details.add().Pack(
            error_details_pb2.ErrorInfo(
                reason=error.reason, domain=error.domain, metadata=dict(error.metadata or {})
            )
        )
    encoded: bytes = status.SerializeToString()
    return encoded


def from_rpc_error(error: grpc.RpcError) -> RpcError:
    """Return the exception for a failed call, with the ErrorInfo of its trailer if there is one.

    Raise it `from error` to keep the original as `__cause__`.
    """
    if not isinstance(error, grpc.Call):
        return Unknown(str(error))
    return from_status(error.code(), error.details() or str(error), error.trailing_metadata())


def from_status(
    code: grpc.StatusCode | None, details: str, trailers: Iterable[tuple[str, str | bytes]] | None
) -> RpcError:
    """Return the exception for a call with this status; see `from_rpc_error`.

    Args:
        code: The status code. None counts as UNKNOWN.
        details: The message of the status.
        trailers: The trailing metadata of the call.
    """
    info = error_info(trailers)
    cls = BY_CODE.get(code or grpc.StatusCode.UNKNOWN, Unknown)
    return cls(details, reason=info.reason, metadata=info.metadata)


def error_info(
    trailers: Iterable[tuple[str, str | bytes]] | None,
) -> error_details_pb2.ErrorInfo:
    """Return the ErrorInfo in a call's trailing metadata; an empty one if there is none.

    If there are several, the first one gives the reason and the domain, and the metadata of all are
    merged: a long list of failed ack IDs may be split over several, and proxies add theirs in
    front.
    """
    found: error_details_pb2.ErrorInfo | None = None
    for key, value in trailers or ():
        if key != STATUS_DETAILS_KEY:
            continue
        status = status_pb2.Status()
        try:
            status.ParseFromString(value)
        except DecodeError:
            # Ignore a trailer that is not a Status. The status code is still known.
            continue
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if not detail.Unpack(info):
                continue
            if found is None:
                found = info
            else:
                found.metadata.update(info.metadata)
    return found or error_details_pb2.ErrorInfo()


def code_name(error: RpcError) -> str:
    """Return the name of the status code (`INVALID_ARGUMENT`), for logs and the command line."""
    name: str = error.grpc_status_code.name
    return name
