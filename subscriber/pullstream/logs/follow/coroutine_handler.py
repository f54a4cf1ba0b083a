"""Coroutine handlers for followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from contextvars import ContextVar
from typing import Any

from pullstream.runtime.callback_kinds import refuse_awaitable

from .record import Record

# While a follower waits for its handler, it checks at this interval that the event loop is still
# open, in seconds.
_LOOK_SECONDS = 1.0

# Set inside a handler, and in the code that it awaits: the CoroutineHandler that runs it.
_running: ContextVar[CoroutineHandler | None] = ContextVar("pullstream_handler", default=None)


class CoroutineHandler:
    """Runs an `async def` handler on an event loop, one record at a time.

    The follower's thread waits for each record. If the loop is closed before the handler has ended,
    this counts as an error of the handler.
    """

    def __init__(
        self,
        handler: Callable[[Record], Coroutine[Any, Any, Any]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._handler = handler
        self._loop = loop

    def __call__(self, record: Record) -> None:
        """Run the handler for a record, wait for its end, and raise its error."""
        coroutine = self._handle(record)
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            while not wait([running], _LOOK_SECONDS).done:
                # A loop that is closed drops callbacks that have not started, without an error.
                if self._loop.is_closed():
                    raise RuntimeError("the event loop was closed before the handler had ended")
        except RuntimeError:
            # The coroutine will not be awaited.
            coroutine.close()
            raise
        running.result()

    def runs_here(self) -> bool:
        """Return whether the handler cannot end while the caller blocks or is awaited."""
        if _running.get() is self:
            return True
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _handle(self, record: Record) -> None:
        _running.set(self)
        refuse_awaitable(await self._handler(record), self._handler)
