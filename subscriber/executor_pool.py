"""Work for a foreign executor, in the form of a WorkerPool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

from .worker_pool import closed_pool


class ExecutorPool:
    """Work for a foreign executor: one turn there for each piece, which takes whatever is first."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._work: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self._quiet = threading.Condition()
        self._closed = False
        # Threads that are in a callback.
        self._running: set[int] = set()

    @property
    def waiting(self) -> int:
        return len(self._work)

    @property
    def running(self) -> int:
        return len(self._running)

    def add(
        self,
        callback: Callable[[Any], Any],
        arguments: Iterable[Any],
        *,
        may_wait: bool = False,
    ) -> None:
        """Queue `callback(argument)` for each; raises RuntimeError after `close`. Never waits."""
        if self._closed:
            raise closed_pool()
        for argument in arguments:
            self._work.append((callback, argument))
            self._executor.submit(self._turn)

    def close(self) -> list[Any]:
        """Begin nothing any more; returns the arguments of what has not begun."""
        with self._quiet:
            self._closed = True
            dropped = [argument for _, argument in self._work]
            self._work.clear()
            return dropped

    def join(self, timeout: float | None) -> None:
        """With no timeout: wait for the callbacks that run. With one: do not."""
        if timeout is None:
            with self._quiet:
                self._quiet.wait_for(lambda: not self._running)

    def runs_here(self) -> bool:
        return threading.get_ident() in self._running

    def _turn(self) -> None:
        thread = threading.get_ident()
        with self._quiet:
            if self._closed or not self._work:
                return
            callback, argument = self._work.popleft()
            self._running.add(thread)
        try:
            callback(argument)
        finally:
            with self._quiet:
                self._running.discard(thread)
                self._quiet.notify_all()
