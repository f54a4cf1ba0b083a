"""The thread that runs all brokers of a process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")

# Time for the last tasks to end by themselves before they are cancelled, in seconds.
_LAST_TASKS = 1.0


class LoopThread:
    """The one event loop of all emulators in this process.

    grpc.aio has one poller per process; with two loops, each is woken for the events of the other.
    The first emulator starts the thread, and the last one ends it.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _current: ClassVar[LoopThread | None] = None
    _users: ClassVar[int] = 0

    @classmethod
    def acquire(cls) -> LoopThread:
        """Start the thread if there is none, and return it; call `release` after use."""
        with cls._lock:
            cls._users += 1
            if cls._current is None:
                cls._current = cls()
            return cls._current

    @classmethod
    def current(cls) -> LoopThread:
        """Return the running thread; raise RuntimeError if no emulator is running."""
        if cls._current is None:
            raise RuntimeError("no emulator is running in this process")
        return cls._current

    @classmethod
    def release(cls) -> None:
        """Give up one use of the thread; the last release ends it."""
        with cls._lock:
            cls._users -= 1
            if cls._users:
                return
            last, cls._current = cls._current, None
        if last is not None:
            last._close()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon thread: a test run that forgets to stop its emulator must still be able to exit.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pullstream-emulator", daemon=True
        )
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is this thread."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; block the calling thread meanwhile."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _close(self) -> None:
        self.run(_finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish() -> None:
    """Wait for the tasks that remain on the loop, such as calls that a server has just ended.

    If the loop were closed first, Python would report each of them as destroyed while pending.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, late = await asyncio.wait(left, timeout=_LAST_TASKS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
