"""Handlers of followers that are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from contextvars import ContextVar
from typing import Any

from .record import Record

# How often a follower that waits for its handler looks whether there is still an event loop, in
# seconds.
_LOOK_SECONDS = 1.0

# In a handler, and in what it awaits: whose.
_running: ContextVar[CoroutineHandler | None] = ContextVar("pullstream_handler", default=None)


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
        coroutine = self._handle(record)
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            while not wait([running], _LOOK_SECONDS).done:
                # What it had not begun when it was closed it has dropped without a word.
                if self._loop.is_closed():
                    raise RuntimeError("the event loop was closed before the handler had ended")
        except RuntimeError:
            # Nobody will await it.
            coroutine.close()
            raise
        running.result()

    def runs_here(self) -> bool:
        """Whether the handler cannot end while the caller blocks, or is awaited."""
        if _running.get() is self:
            return True
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _handle(self, record: Record) -> None:
        _running.set(self)
        await self._handler(record)
