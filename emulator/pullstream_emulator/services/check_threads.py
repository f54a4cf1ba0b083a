"""Threads for checks that would block the event loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pullstream_protocol.errors import RpcError

R = TypeVar("R")

MAX_THREADS = 4


class CheckThreads:
    """A pool of four threads. Every method runs on the event loop of the broker.

    A function that runs cannot be ended: if its caller is cancelled, or if the pool is closed, it
    keeps its thread until it returns.
    """

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Accept functions, also after `close`."""
        self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="pullstream-check")
        self._jobs: set[asyncio.Future[Any]] = set()
        self._closed: RpcError | None = None

    async def run(self, function: Callable[..., R], *args: object) -> R:
        """Call `function` on a thread, after the earlier ones; return its result.

        Args:
            function: The function.
            *args: Its arguments.

        Raises:
            RpcError: The pool is closed.
            Exception: The function has raised it.
        """
        if self._closed is not None:
            raise self._closed
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._executor, function, *args)
        self._jobs.add(job)
        try:
            return await job
        except asyncio.CancelledError:
            if self._closed is not None:
                raise self._closed from None
            raise
        finally:
            self._jobs.discard(job)

    def close(self, reason: RpcError) -> None:
        """End all waiting calls and later ones with `reason`."""
        self._closed = reason
        for job in self._jobs:
            job.cancel()
        self._executor.shutdown(wait=False)
