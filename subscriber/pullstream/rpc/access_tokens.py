"""Access tokens of google-auth: what happens to a call when there is none.

gRPC ends a call with UNAVAILABLE if it gets no token for it, whatever the reason is. The reason
decides whether the call may be repeated: a token server that cannot be reached may answer soon, a
revoked grant is never valid again. `AccessTokens` knows the exception, so it writes the text of the
error, and `local_errors` reads this text from the status of the call.
"""

from __future__ import annotations

import grpc

from .local_errors import NO_TOKEN, NO_TOKEN_NOW


class AccessTokens(grpc.AuthMetadataPlugin):
    """Adds an access token to every call, as google-auth's plugin does.

    gRPC calls it for each call, on another thread than the caller.

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
            reason = NO_TOKEN_NOW if may_pass(error) else NO_TOKEN
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
