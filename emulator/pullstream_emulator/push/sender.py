"""Interface for posting requests, and an HTTP client that is loaded on first use."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Protocol

from .envelope import PushAnswer, PushRequest

if TYPE_CHECKING:
    from .http_sender import HttpSender


class Sender(Protocol):
    """An HTTP client."""

    async def post(self, request: PushRequest) -> PushAnswer:
        """Post a request, and return the endpoint's answer. No time limit."""

    async def close(self) -> None:
        """Close every connection."""


def is_available() -> bool:
    """Return whether aiohttp is installed."""
    return importlib.util.find_spec("aiohttp") is not None


class LateSender:
    """An HttpSender that is loaded at the first request.

    Few brokers push, and aiohttp takes as long to load as the rest of the broker, which would delay
    other calls. It is therefore loaded in a thread.
    """

    def __init__(self) -> None:
        self._loading: asyncio.Task[HttpSender] | None = None

    async def post(self, request: PushRequest) -> PushAnswer:
        """Post a request; the first one waits until a thread has loaded aiohttp."""
        if self._loading is None:
            self._loading = asyncio.create_task(_load())
        # Shielded: cancelling one request must not cancel the loading for the others.
        sender = await asyncio.shield(self._loading)
        return await sender.post(request)

    async def close(self) -> None:
        """Close the connections of the loaded client, if there is one."""
        if self._loading is not None:
            await (await self._loading).close()


async def _load() -> HttpSender:
    return (await asyncio.to_thread(_import))()


def _import() -> type[HttpSender]:
    from .http_sender import HttpSender

    return HttpSender
