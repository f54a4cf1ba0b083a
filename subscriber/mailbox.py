"""From the SDK's threads to an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items on their way from the SDK's threads to an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[T] = deque()
        self._news = asyncio.Event()
        # Whether a wake-up is on its way, so that a crowd of items needs but one.
        self._called = False

    def put(self, item: T) -> None:
        """From any thread."""
        self._items.append(item)
        if not self._called:
            self._called = True
            self.wake()

    def wake(self) -> None:
        """From any thread: let a `wait` return."""
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # First the flag, then the event: an item that comes after this calls again.
        self._called = False
        self._news.set()

    async def wait(self) -> None:
        await self._news.wait()
        self._news.clear()

    def withdraw(self) -> bool:
        """From any thread: take the oldest item out again; whether nobody had got it yet."""
        try:
            self._items.popleft()
        except IndexError:
            return False
        return True

    async def get(self, *, until: Callable[[], bool]) -> T | None:
        """The next item; None when there is none and `until` holds."""
        while not self._items:
            if until():
                return None
            await self.wait()
        return self._items.popleft()
