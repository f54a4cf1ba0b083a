"""CoroutineScheduler: runs asynchronous callbacks as tasks on an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any

from pullstream.message import Message
from pullstream.runtime.repeated_errors import RepeatedErrors
from pullstream.runtime.thread_start import start_or_undo
from pullstream.runtime.validation import require_positive
from pullstream_protocol.call_lock import CallLock

from .scheduler import Scheduler, messages_in

_log = logging.getLogger("pullstream.scheduler")

Coroutines = Callable[..., Coroutine[Any, Any, None]]


class _CallbackRun:
    """One run of a callback."""


# The run of a callback that the current code belongs to, also in tasks and threads that inherit its
# context.
_current_run: ContextVar[_CallbackRun | None] = ContextVar("pullstream_callback_run", default=None)


class CoroutineScheduler(Scheduler):
    """Runs `async def` callbacks as tasks, many at a time on one event loop.

    Any thread may schedule. Everything else happens on the loop. Do not call `shutdown` with
    `await_msg_callbacks` on the loop: it would block the callbacks that it waits for.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, *, max_tasks: int | None = None
    ) -> None:
        """Create a scheduler for one subscription.

        Args:
            loop: A running event loop, which the scheduler leaves running. Default: a new loop on a
                new thread. Both end after the shutdown, when the last task has ended.
            max_tasks: Number of parallel callbacks. Default: as many as flow control allows.

        Raises:
            TypeError, ValueError: `max_tasks` is not an int, or is below 1.
        """
        if max_tasks is not None:
            require_positive("max_tasks", max_tasks)
        self._loop = loop
        self._max_tasks = max_tasks
        self._lock = CallLock()
        self._thread: threading.Thread | None = None
        self._work: deque[tuple[Coroutines, tuple[Any, ...]]] = deque()
        # The run of each task. Must be kept here, because the loop has only weak references to
        # tasks.
        self._tasks: dict[asyncio.Task[None], _CallbackRun] = {}
        self._closed = False
        self._idle = threading.Event()
        self._errors = RepeatedErrors(_log)

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run the callback as a task; the first call starts the loop if none was given."""
        self._add([(callback, args)])

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        """Run a task for each message; all of them together wake the loop once."""
        if messages:
            self._add([(callback, (message,)) for message in messages])

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        """Start no more tasks, and optionally wait for the running ones; they are not cancelled."""
        dropped = []
        with self._lock.once:
            self._closed = True
            # One by one, because the loop takes from it, too: each callback is either begun or
            # dropped.
            while self._work:
                try:
                    dropped.append(self._work.popleft())
                except IndexError:
                    break
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._pump)
            except RuntimeError:
                # The user's loop is closed, and its tasks have ended with it.
                self._idle.set()
            if await_msg_callbacks:
                self._idle.wait()
        return [message for _, args in dropped for message in messages_in(args)]

    @property
    def waiting(self) -> int:
        """Number of callbacks that have no task yet."""
        return len(self._work)

    @property
    def running(self) -> int:
        """Number of tasks; many of them may be waiting for I/O."""
        return len(self._tasks)

    def runs_here(self) -> bool:
        """Return whether the caller is on the loop, or works for a callback on another thread."""
        if _current_run.get() in self._tasks.values():
            # Also true in code that the callback waits for, even on another thread.
            return True
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _add(self, work: list[tuple[Coroutines, tuple[Any, ...]]]) -> None:
        with self._lock.once:
            if self._closed:
                raise RuntimeError("this scheduler is shut down; each subscription needs its own")
            if self._loop is None:
                self._loop = self._start_loop()
            self._work.extend(work)
        self._loop.call_soon_threadsafe(self._pump)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()

        def run() -> None:
            while True:
                try:
                    loop.run_forever()
                except BaseException:
                    # SystemExit of a task that a callback has created ends `run_forever`. The loop
                    # has the other tasks.
                    _log.exception("a task on the event loop of the callbacks raised")
                else:
                    break
            loop.close()

        # Daemon: a callback that never returns must not keep the process from exiting.
        self._thread = threading.Thread(target=run, name="pullstream-asyncio", daemon=True)
        start_or_undo(self._thread, loop.close)
        return loop

    # ---- on the loop ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin callbacks up to the limit. After the last one of a closed scheduler, stop."""
        while self._work and (self._max_tasks is None or len(self._tasks) < self._max_tasks):
            try:
                callback, args = self._work.popleft()
            except IndexError:
                # A shutdown has taken it first.
                break
            run = _CallbackRun()
            # The task gets a copy of the context that it is created in.
            before = _current_run.set(run)
            try:
                task = asyncio.get_running_loop().create_task(callback(*args))
            except Exception as error:
                # The SDK schedules coroutine functions only. Other work must not end the pump.
                text = f"scheduled callback {callback!r} is not a coroutine function"
                self._errors.report(error, text)
                continue
            finally:
                _current_run.reset(before)
            self._tasks[task] = run
            task.add_done_callback(self._ended)
        if self._closed and not self._tasks:
            self._idle.set()
            if self._thread is not None:
                asyncio.get_running_loop().stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            # The SDK's coroutines do not raise. An error of any other coroutine must be reported.
            self._errors.report(error, "scheduled coroutine raised")
        self._pump()
