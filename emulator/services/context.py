"""What a method that writes its own answer has of its call."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol


class Context(Protocol):
    """So much of grpc.aio.ServicerContext as methods use; a call over HTTP has it too."""

    def read(self) -> Awaitable[Any]: ...

    def write(self, response: Any, /) -> Awaitable[None]: ...

    def send_initial_metadata(self, metadata: Any, /) -> Awaitable[None]: ...

    def time_remaining(self) -> float | None: ...

    def peer(self) -> str: ...
