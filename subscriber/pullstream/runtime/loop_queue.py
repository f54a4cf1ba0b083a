"""LoopQueue: passes items from the SDK's threads to an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class LoopQueue(Generic[T]):
    """A queue from the SDK's threads to an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        # Whether a wake-up is on its way, so that many items need only one.
        self._called = False

    def put(self, item: T) -> None:
        """Add an item. Any thread may call it."""
        self._items.append(item)
        if not self._called:
            self._called = True
            self.wake()

    def wake(self) -> None:
        """Let a `wait` return. Any thread may call it."""
        # On a closed loop, nothing waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Clear the flag before setting the event: an item that arrives after this line requests
        # another wake-up.
        self._called = False
        self._changed.set()

    async def wait(self) -> None:
        """Wait for an item or a wake-up, unless one has come since the last wait."""
        await self._changed.wait()
        self._changed.clear()

    def withdraw(self) -> bool:
        """Remove the oldest item; return whether there was one. Any thread may call it."""
        try:
            self._items.popleft()
        except IndexError:
            return False
        return True

    async def get(self, *, until: Callable[[], bool]) -> T | None:
        """Return the next item, or None if there is none and `until()` is true."""
        while not self._items:
            if until():
                return None
            await self.wait()
        return self._items.popleft()
