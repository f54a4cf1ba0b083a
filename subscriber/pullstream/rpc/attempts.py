"""Decides whether an attempt of a failed call may have succeeded at the server."""

from __future__ import annotations

import grpc

from pullstream_protocol.errors import RpcError

from .local_errors import TokenUnavailable

# Codes by which a server, or the network, leaves open whether the call was carried out. With the
# others, the server has refused it.
_UNCLEAR_CODES = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
    }
)

# Texts of gRPC's UNAVAILABLE for a call that was not sent, because there was no connection.
_NOT_SENT = (
    "failed to connect to all addresses",
    "DNS resolution failed",
    "empty address list",
)

# Text of gRPC's RESOURCE_EXHAUSTED for an answer that the client does not accept.
_ANSWER_TOO_LARGE = "Received message larger than max"


def is_unclear(error: RpcError) -> bool:
    """Return whether an attempt that ended with this error may have been carried out."""
    if error.grpc_status_code in _UNCLEAR_CODES:
        is_sent = not isinstance(error, TokenUnavailable)
        return is_sent and not error.message.startswith(_NOT_SENT)
    return _ANSWER_TOO_LARGE in error.message


class Attempts:
    """Marks the error of an attempt if an earlier attempt of the call may have succeeded.

    Not thread-safe. The attempts of a call that only reads need none of this.
    """

    __slots__ = ("_unclear",)

    def __init__(self) -> None:
        # The error of the first attempt that may have succeeded.
        self._unclear: str = ""

    def failed(self, error: RpcError) -> None:
        """Record the error of an attempt, and set its `may_have_succeeded` and its text."""
        own = is_unclear(error)
        error.may_have_succeeded = own or bool(self._unclear)
        if self._unclear:
            error.restate(
                f"{error.message} (an earlier attempt may have succeeded; it ended with: "
                f"{self._unclear})"
            )
        elif own:
            self._unclear = str(error)
