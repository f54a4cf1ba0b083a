"""What posts requests: an HTTP client that is loaded when it is needed."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Protocol

from .envelope import Request

if TYPE_CHECKING:
    from .http_sender import HttpSender


class Sender(Protocol):
    """An HTTP client."""

    async def post(self, request: Request) -> bool:
        """Whether the endpoint took the message; waits as long as it takes."""

    async def close(self) -> None:
        """Close every connection."""


def is_available() -> bool:
    """Whether aiohttp is installed."""
    return importlib.util.find_spec("aiohttp") is not None


class LateSender:
    """An HttpSender that is loaded with the first request.

    Few brokers push, and aiohttp takes as long to load as all the rest of the broker: so long that
    other calls would notice. It is done aside.
    """

    def __init__(self) -> None:
        self._loading: asyncio.Task[HttpSender] | None = None

    async def post(self, request: Request) -> bool:
        if self._loading is None:
            self._loading = asyncio.create_task(_load())
        # Shielded: one request that is given up must not take the others' client along.
        sender = await asyncio.shield(self._loading)
        return await sender.post(request)

    async def close(self) -> None:
        if self._loading is not None:
            await (await self._loading).close()


async def _load() -> HttpSender:
    return (await asyncio.to_thread(_import))()


def _import() -> type[HttpSender]:
    from .http_sender import HttpSender

    return HttpSender
