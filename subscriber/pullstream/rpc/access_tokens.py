"""Access tokens of google-auth: what happens to a call when there is none.

gRPC ends a call with UNAVAILABLE if it gets no token for it, whatever the reason is. The reason
decides whether the call may be repeated: a token server that cannot be reached may answer soon, a
revoked grant is never valid again. `AccessTokens` knows the exception, so it writes the text of the
error, and `token_error` reads this text from the status of the call.
"""

from __future__ import annotations

import grpc

from pullstream_protocol.errors import RpcError, Unauthenticated, Unavailable

# What `AccessTokens` writes in front of the exception's text.
_FOR_GOOD = "the credentials give no access token: "
_FOR_NOW = "the credentials give no access token at present: "


class TokenUnavailable(Unavailable):
    """There is no access token at present. The call was not sent, so every call may be repeated."""


class AccessTokens(grpc.AuthMetadataPlugin):
    """Adds an access token to every call, as google-auth's plugin does.

    gRPC calls it on a thread of its own for each call.

    Args:
        plugin: google-auth's plugin.
    """

    def __init__(self, plugin: grpc.AuthMetadataPlugin) -> None:
        self._plugin = plugin

    def __call__(
        self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        """Pass the headers of a call to `callback`, or an error whose text has the reason."""
        try:
            self._plugin(context, callback)
        except Exception as error:
            reason = _FOR_NOW if may_pass(error) else _FOR_GOOD
            callback((), Exception(f"{reason}{type(error).__name__}: {error}"))


def may_pass(error: BaseException) -> bool:
    """Return whether a later attempt to get a token may succeed.

    google-auth marks some errors as retryable. It raises TransportError if the token server cannot
    be reached, and for credentials of Compute Engine and GKE a RefreshError with that as the cause.
    """
    from google.auth.exceptions import TransportError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TransportError) or getattr(cause, "retryable", False):
            return True
        cause = cause.__cause__
    return False


def token_error(error: RpcError) -> RpcError:
    """Return the error of a call, or a more exact one if there was no access token for the call."""
    if isinstance(error, Unavailable):
        kinds: tuple[tuple[str, type[RpcError]], ...] = (
            (_FOR_NOW, TokenUnavailable),
            (_FOR_GOOD, Unauthenticated),
        )
        for text, kind in kinds:
            _, found, reason = error.message.partition(text)
            if found:
                return kind(found + reason)
    return error
