"""Where asynchronous callbacks run: as tasks on an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any

from .arguments import count
from .message import Message
from .refused_threads import start_or_undo
from .scheduler import Scheduler, messages_in

_log = logging.getLogger("pullstream.scheduler")

Coroutines = Callable[..., Coroutine[Any, Any, None]]


class _Turn:
    """One callback, from its beginning to its end."""


# Whose turn it is, for all that a callback does and begins.
_turn: ContextVar[_Turn | None] = ContextVar("pullstream_turn", default=None)


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
        # Each with its turn. The loop keeps only weak references to tasks.
        self._tasks: dict[asyncio.Task[None], _Turn] = {}
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
        dropped = []
        with self._lock:
            self._closed = True
            # One by one, as the loop takes from it, too: each is begun or dropped, not both.
            while self._work:
                try:
                    dropped.append(self._work.popleft())
                except IndexError:
                    break
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
        if _turn.get() in self._tasks.values():
            # Or in what the callback waits for, be it on another thread.
            return True
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
        start_or_undo(self._thread, loop.close)
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
            turn = _Turn()
            # The task gets a copy of the context that it is created in.
            before = _turn.set(turn)
            task = asyncio.get_running_loop().create_task(callback(*args))
            _turn.reset(before)
            self._tasks[task] = turn
            task.add_done_callback(self._ended)
        if self._closed and not self._tasks:
            self._quiet.set()
            if self._thread is not None:
                asyncio.get_running_loop().stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            # The SDK's coroutines do not raise; a stranger's must not go unnoticed.
            _log.error("scheduled coroutine raised", exc_info=error)
        self._pump()
