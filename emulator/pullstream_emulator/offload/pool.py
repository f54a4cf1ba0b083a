"""Worker processes for work that would block the broker's event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections.abc import Callable
from typing import TypeVar, cast

from pullstream_protocol.errors import FailedPrecondition, ResourceExhausted, RpcError, Unavailable

from .child import dumps
from .child_process import ChildProcess

R = TypeVar("R")

_log = logging.getLogger("pullstream.emulator")

# Most bytes of arguments of all running and waiting jobs.
MAX_BYTES = 256 * 1024 * 1024

# Longest run of one job, in seconds. The most expensive legal request takes a fifth of it.
MAX_SECONDS = 60.0

# Time after which a process without work is ended, in seconds.
IDLE_SECONDS = 30.0

# Most attempts for a job whose process ends before it answers.
_ATTEMPTS = 2


def most_processes() -> int:
    """Return the pool size: leave one core to the event loop, but allow two jobs at a time."""
    return max(2, min(4, (os.cpu_count() or 1) - 1))


class ProcessPool:
    """Runs functions in other processes, a few at a time; further jobs wait for their turn.

    Every method runs on the event loop of the broker. A process is started when a job needs one,
    and ended after some time without work. Cancelling a job ends its process.

    Args:
        processes: Maximum number of simultaneous processes; None chooses a number for this machine.
        max_bytes: Maximum size of all running and waiting jobs, in bytes.
        max_seconds: Longest run of one job, in seconds.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._processes = processes or most_processes()
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._bytes = 0
        # Each with the timer that ends the process.
        self._idle: dict[ChildProcess, asyncio.TimerHandle] = {}
        self._children: set[ChildProcess] = set()
        self._closed: RpcError | None = None
        self.open()

    def open(self) -> None:
        """Accept jobs, also after `close`, which may have been on another event loop."""
        self._closed = None
        self._slots = asyncio.Semaphore(self._processes)

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [child.pid for child in self._children if child.pid and not child.ended.is_set()]

    async def run(self, size: int, function: Callable[..., R], *args: object) -> R:
        """Call `function` in a process of the pool; return its result or raise its exception.

        Function, arguments and result are pickled, so the function must be importable by name.

        Args:
            size: Size of the arguments in bytes, for the limit.
            function: The function.
            *args: Its arguments.

        Raises:
            ResourceExhausted: Too many bytes are waiting.
            FailedPrecondition: The job takes too long.
            Unavailable: The pool is closed, or two processes ended before they answered.
        """
        if self._bytes and self._bytes + size > self._max_bytes:
            raise ResourceExhausted(
                f"Requests of {self._bytes} bytes wait for a process that checks or converts large "
                f"requests; all together may have {self._max_bytes} bytes. Try again later."
            )
        self._bytes += size
        try:
            async with self._slots:
                has_returned, outcome = await self._attempt(dumps((function, args)))
        finally:
            self._bytes -= size
        if has_returned:
            return cast(R, outcome)
        raise cast(Exception, outcome)

    async def close(self, reason: RpcError) -> None:
        """End every process. Running, waiting and later jobs end with `reason`."""
        self._closed = reason
        for idle in list(self._idle):
            self._end_idle(idle)
        children = list(self._children)
        for child in children:
            child.kill()
        for child in children:
            await child.ended.wait()
        self._children.difference_update(children)

    async def _attempt(self, job: bytes) -> tuple[bool, object]:
        loop = asyncio.get_running_loop()
        for _ in range(_ATTEMPTS):
            child = await self._take()
            too_late = loop.time() + self._max_seconds
            timer = loop.call_at(too_late, child.kill)
            try:
                answer = await child.answer(job)
            finally:
                timer.cancel()
                self._put_back(child)
            if answer is not None:
                return cast(tuple[bool, object], pickle.loads(answer))
            if self._closed is not None:
                raise self._closed
            if loop.time() >= too_late:
                raise FailedPrecondition(
                    f"The request takes more than {self._max_seconds:g} s to check or convert. "
                    "Send less at a time."
                )
            await child.ended.wait()
            _log.warning("a worker process ended (exit code %s) before it answered", child.code)
        raise Unavailable(
            f"A process that checks or converts large requests ended {_ATTEMPTS} times before it "
            "answered. The broker's log has the exit codes.",
            reason="PROCESS_ENDED",
        )

    async def _take(self) -> ChildProcess:
        """Return a free process; start a new one if there is none."""
        while self._idle and self._closed is None:
            child, timer = self._idle.popitem()
            timer.cancel()
            if child.is_free:
                return child
            child.kill()
        if self._closed is not None:
            raise self._closed
        # Drop processes that have ended in the meantime.
        self._children = {each for each in self._children if not each.ended.is_set()}
        child = ChildProcess()
        self._children.add(child)
        try:
            await child.start()
        except OSError as error:
            raise Unavailable(
                "The request is large, and no process can be started to check or convert it: "
                f"{error.strerror}.",
                reason="NO_PROCESS",
            ) from error
        return child

    def _put_back(self, child: ChildProcess) -> None:
        """Keep a process that has answered; end one that has not."""
        if child.is_free and self._closed is None:
            loop = asyncio.get_running_loop()
            self._idle[child] = loop.call_later(IDLE_SECONDS, self._end_idle, child)
        else:
            child.kill()

    def _end_idle(self, child: ChildProcess) -> None:
        self._idle.pop(child).cancel()
        child.kill()
