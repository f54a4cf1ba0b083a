"""Handlers of followers that are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .record import Record


class CoroutineHandler:
    """Runs an `async def` handler on an event loop, one record at a time: the follower's thread
    waits for each. When the loop ends before the handler does, that is an error of the handler."""

    def __init__(
        self,
        handler: Callable[[Record], Coroutine[Any, Any, Any]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._handler = handler
        self._loop = loop

    def __call__(self, record: Record) -> None:
        coroutine = self._handler(record)
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The loop is closed, and nobody will await it.
            coroutine.close()
            raise
        running.result()
