"""Interface of a call, for service methods that write their response themselves."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol


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
