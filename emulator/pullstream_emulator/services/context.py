"""Interface of a call, for service methods that write their response themselves."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol


class Context(Protocol):
    """The methods of grpc.aio.ServicerContext that services use. Calls over HTTP have them too."""

    def read(self) -> Awaitable[Any]: ...

    def write(self, response: Any, /) -> Awaitable[None]: ...

    def send_initial_metadata(self, metadata: Any, /) -> Awaitable[None]: ...

    def time_remaining(self) -> float | None: ...

    def peer(self) -> str: ...
