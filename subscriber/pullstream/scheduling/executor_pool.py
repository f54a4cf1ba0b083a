"""Pool that runs callbacks on a user's executor, with the interface of WorkerPool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

from .worker_pool import closed_pool


class ExecutorPool:
    """Runs callbacks on a user's executor.

    For each callback, one task is submitted to the executor. A task runs the callback that is first
    in the queue at that time.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._work: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # IDs of the threads that are in a callback.
        self._running: set[int] = set()

    @property
    def waiting(self) -> int:
        """Number of callbacks that have not begun."""
        return len(self._work)

    @property
    def running(self) -> int:
        """Number of callbacks that have begun and not ended."""
        return len(self._running)

    def add(
        self,
        callback: Callable[[Any], Any],
        arguments: Iterable[Any],
        *,
        may_wait: bool = False,
    ) -> None:
        """Queue `callback(argument)` for each argument. Never waits.

        Args:
            callback: Function of one argument.
            arguments: The arguments, one for each call.
            may_wait: Ignored.

        Raises:
            RuntimeError: The pool is closed.
        """
        if self._closed:
            raise closed_pool()
        for argument in arguments:
            self._work.append((callback, argument))
            self._executor.submit(self._run_first)

    def close(self) -> list[Any]:
        """Start no more callbacks; return the arguments of the calls that have not begun."""
        with self._changed:
            self._closed = True
            dropped = [argument for _, argument in self._work]
            self._work.clear()
            return dropped

    def join(self, timeout: float | None) -> None:
        """Wait for the running callbacks if `timeout` is None; otherwise return at once."""
        if timeout is None:
            with self._changed:
                self._changed.wait_for(lambda: not self._running)

    def runs_here(self) -> bool:
        """Return whether the calling thread is running a callback."""
        return threading.get_ident() in self._running

    def _run_first(self) -> None:
        thread = threading.get_ident()
        with self._changed:
            if self._closed or not self._work:
                return
            callback, argument = self._work.popleft()
            self._running.add(thread)
        try:
            callback(argument)
        finally:
            with self._changed:
                self._running.discard(thread)
                self._changed.notify_all()
