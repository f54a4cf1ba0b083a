"""Interface of a call, for service methods that write their response themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

# Characters of a client's id that are enough to distinguish it.
_ID_LENGTH = 8


class Context(Protocol):
    """The methods of grpc.aio.ServicerContext that services use. Calls over HTTP have them too."""

    def read(self) -> Awaitable[Any]:
        """Return the next request of a stream; grpc.aio.EOF after the last one."""

    def write(self, response: Any, /) -> Awaitable[None]:
        """Send one response; raise an error if the caller is gone."""

    def send_initial_metadata(self, metadata: Any, /) -> Awaitable[None]:
        """Send the headers now, so that the caller sees an open stream before a response."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline; None if it set none."""

    def peer(self) -> str:
        """Return the address that all calls of one connection share; it may be empty."""

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        """Return the request's headers, by their names in lower case."""


def client_name(context: Context, client_id: str = "") -> str:
    """Return the name of the calling program, for people.

    Args:
        context: The call.
        client_id: The id that the client gives itself, if it does.
    """
    headers = dict(context.invocation_metadata() or ())
    # For example "grpc-python/1.80.0 grpc-c/53.0.0 (linux; chttp2)": the first product is enough.
    program = str(headers.get("user-agent", "")).partition(" ")[0]
    return " ".join(part for part in (program, client_id[:_ID_LENGTH]) if part)
