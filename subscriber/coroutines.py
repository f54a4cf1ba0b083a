"""Where asynchronous callbacks run: as tasks on an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .arguments import count
from .message import Message
from .scheduler import Scheduler, messages_in

_log = logging.getLogger("pullstream.scheduler")

Coroutines = Callable[..., Coroutine[Any, Any, None]]


class CoroutineScheduler(Scheduler):
    """Runs `async def` callbacks as tasks, many at a time on one event loop.

    Any thread may schedule; everything else happens on the loop. `shutdown` must not be called on
    the loop when it is to wait.

    Args:
        loop: a running event loop, which is left running. Default: one of its own, on a thread of
            its own that ends when it is shut down and the last task has ended.
        max_tasks: callbacks at a time. Default: as many as flow control lets in.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, *, max_tasks: int | None = None
    ) -> None:
        if max_tasks is not None:
            count("max_tasks", max_tasks)
        self._loop = loop
        self._max_tasks = max_tasks
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work: deque[tuple[Coroutines, tuple[Any, ...]]] = deque()
        # The loop keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._quiet = threading.Event()

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        self._add([(callback, args)])

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        if messages:
            self._add([(callback, (message,)) for message in messages])

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        with self._lock:
            self._closed = True
            dropped = list(self._work)
            self._work.clear()
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._pump)
            except RuntimeError:
                # The user's loop is closed, and with it all tasks are gone.
                self._quiet.set()
            if await_msg_callbacks:
                self._quiet.wait()
        return [message for _, args in dropped for message in messages_in(args)]

    @property
    def waiting(self) -> int:
        return len(self._work)

    @property
    def running(self) -> int:
        return len(self._tasks)

    def runs_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _add(self, work: list[tuple[Coroutines, tuple[Any, ...]]]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("this scheduler is shut down; each subscription needs its own")
            if self._loop is None:
                self._loop = self._start_loop()
            self._work.extend(work)
        self._loop.call_soon_threadsafe(self._pump)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()

        def run() -> None:
            try:
                loop.run_forever()
            finally:
                loop.close()

        # Daemon: a callback that never returns must not keep the process from exiting.
        self._thread = threading.Thread(target=run, name="pullstream-asyncio", daemon=True)
        self._thread.start()
        return loop

    # ---- on the loop ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin what may begin; at the end of all, stop."""
        while self._work and (self._max_tasks is None or len(self._tasks) < self._max_tasks):
            try:
                callback, args = self._work.popleft()
            except IndexError:
                # A shutdown was quicker.
                break
            task = asyncio.get_running_loop().create_task(callback(*args))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        if self._closed and not self._tasks:
            self._quiet.set()
            if self._thread is not None:
                asyncio.get_running_loop().stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The SDK's coroutines do not raise; a stranger's must not go unnoticed.
            _log.error("scheduled coroutine raised", exc_info=error)
        self._pump()
