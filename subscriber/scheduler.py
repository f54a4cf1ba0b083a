"""Where callbacks run: the Scheduler protocol, and a pool of threads."""

from __future__ import annotations

import abc
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from protocol.clock import SYSTEM_CLOCK

from .message import Message

_log = logging.getLogger(__name__)

DEFAULT_WORKERS = 10

# A worker that is in no callback leaves within this many seconds of being told to.
_IDLE_WORKER_EXIT = 0.1

Work = tuple[Callable[..., Any], tuple[Any, ...]]


class Scheduler(abc.ABC):
    """Runs callbacks. Give your own to `subscribe(scheduler=...)`; one for each subscription."""

    @abc.abstractmethod
    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run `callback(*args)` soon, on another thread. Must not wait."""

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        """Run `callback(message)` for each message, in no particular order."""
        for message in messages:
            self.schedule(callback, message)

    @abc.abstractmethod
    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        """Begin nothing any more; returns the messages whose callback has not begun.

        With `await_msg_callbacks` it returns when the running callbacks have ended. It is called
        without first, so that what has not begun is given back at once, and then again with it.
        """

    def runs_here(self) -> bool:
        """Whether the calling thread is running a callback, which `shutdown` may have to wait for.

        A scheduler of your own that cannot tell may leave it at False; then its callbacks must not
        close the client.
        """
        return False


class ThreadScheduler(Scheduler):
    """A pool of threads that take work from one queue, so that no message waits behind a slow one.

    Owns the queue; any thread may schedule, the workers consume. Threads are started when there is
    work for them, up to `max_workers`, and end at `shutdown`.

    Args:
        executor: run the callbacks on this instead of own threads. It is used, not shut down: it
            may be shared with other work.
        max_workers: size of the own pool, 10 unless given.
    """

    def __init__(self, executor: Executor | None = None, *, max_workers: int | None = None) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}; it must be at least 1")
        if executor is not None and max_workers is not None:
            raise ValueError("give either an executor, which has its own size, or max_workers")
        self._executor = executor
        self._max_workers = max_workers or DEFAULT_WORKERS
        # None tells a worker to leave.
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False
        # Threads of a foreign executor that are in a callback.
        self._running: set[int] = set()
        self._quiet = threading.Condition(self._lock)

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        self._check_open()
        self._queue.put((callback, args))
        self._provide_workers(1)

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        self._check_open()
        put = self._queue.put
        for message in messages:
            put((callback, (message,)))
        self._provide_workers(len(messages))

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        dropped = self._drain()
        for _ in threads:
            self._queue.put(None)
        # Those that are in a callback end with it, waited for or not.
        clock = SYSTEM_CLOCK
        deadline = clock.monotonic() + _IDLE_WORKER_EXIT
        for thread in threads:
            if thread is not threading.current_thread():
                left = max(deadline - clock.monotonic(), 0.0)
                thread.join(None if await_msg_callbacks else left)
        if await_msg_callbacks:
            with self._quiet:
                self._quiet.wait_for(lambda: not self._running)
        return dropped

    def runs_here(self) -> bool:
        return threading.current_thread() in self._threads or threading.get_ident() in self._running

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this scheduler is shut down; each subscription needs its own")

    def _provide_workers(self, wanted: int) -> None:
        if self._executor is not None:
            for _ in range(wanted):
                self._executor.submit(self._run_one)
            return
        # Read without the lock: once the pool is full this is all that is left of the question.
        if len(self._threads) >= self._max_workers:
            return
        with self._lock:
            if self._closed:
                return
            for _ in range(min(wanted, self._max_workers - len(self._threads))):
                # Daemon: a callback that never returns must not keep the process from exiting.
                thread = threading.Thread(
                    target=self._work,
                    name=f"pullstream-worker-{len(self._threads)}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        get = self._queue.get
        while (work := get()) is not None:
            callback, args = work
            try:
                callback(*args)
            except BaseException:
                # The SDK's callbacks do not raise; a stranger's must not take a worker with it.
                _log.exception("scheduled callback %r raised", callback)

    def _run_one(self) -> None:
        """One turn on a foreign executor: whatever is first in the queue, if it is still there."""
        thread = threading.get_ident()
        with self._lock:
            try:
                work = None if self._closed else self._queue.get_nowait()
            except queue.Empty:
                work = None
            if work is None:
                return
            self._running.add(thread)
        try:
            work[0](*work[1])
        finally:
            with self._quiet:
                self._running.discard(thread)
                self._quiet.notify_all()

    def _drain(self) -> list[Message]:
        dropped: list[Message] = []
        while True:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                return dropped
            if work is not None:
                dropped.extend(arg for arg in work[1] if isinstance(arg, Message))
