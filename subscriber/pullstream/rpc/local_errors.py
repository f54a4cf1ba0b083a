"""Errors of calls that this side ends or does not send.

gRPC reports them as UNAVAILABLE, like the failures of the server. Their texts are written here, and
`local_error` reads them from the status of a call.
"""

from __future__ import annotations

from typing import Final

from pullstream_protocol.errors import RpcError, Unauthenticated, Unavailable

NO_TOKEN_NOW: Final = "the credentials give no access token at present: "
NO_TOKEN: Final = "the credentials give no access token: "
SILENT: Final = "the server has been silent, and the connection to it was replaced"


class TokenUnavailable(Unavailable):
    """There is no access token at present. The call was not sent, so every call may be repeated."""


class ConnectionReplaced(Unavailable):
    """The connection was silent and was replaced. The server may have executed the call."""


_KINDS: tuple[tuple[str, type[RpcError]], ...] = (
    (NO_TOKEN_NOW, TokenUnavailable),
    (NO_TOKEN, Unauthenticated),
    (SILENT, ConnectionReplaced),
)


def local_error(error: RpcError) -> RpcError:
    """Return the error of a call, or a more exact one if this side has ended the call."""
    if isinstance(error, Unavailable):
        for text, kind in _KINDS:
            _, found, rest = error.message.partition(text)
            if found:
                return kind(found if text is SILENT else found + rest)
    return error
