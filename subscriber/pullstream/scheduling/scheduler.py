"""Scheduler, the interface that runs callbacks, and ThreadScheduler, a pool of threads."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from pullstream.columns.portions import Portion, messages_of
from pullstream.message import Message
from pullstream.runtime.validation import require_positive

from .executor_pool import ExecutorPool
from .inline_run import InlineCaller
from .worker_pool import WorkerPool

DEFAULT_WORKERS = 10

# Seconds within which a worker without a callback leaves after the shutdown.
_IDLE_WORKER_EXIT = 0.1


class Scheduler(abc.ABC):
    """Runs callbacks. Pass your own to `subscribe(scheduler=...)`, one for each subscription."""

    @abc.abstractmethod
    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run `callback(*args)` soon, on another thread. Must not wait.

        Args:
            callback: The function to run.
            *args: Its arguments.
        """

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        """Run `callback(message)` for each message, in any order.

        Args:
            callback: The function to run.
            messages: The messages, one for each call.
        """
        for message in messages:
            self.schedule(callback, message)

    @abc.abstractmethod
    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        """Start no more callbacks.

        It is called first without `await_msg_callbacks`, so that the remaining messages are
        returned to the server at once. If running callbacks may finish, it is called again with
        `await_msg_callbacks=True`, on another thread.

        Args:
            await_msg_callbacks: Wait until the running callbacks have ended. Default: False.

        Returns:
            The messages whose callback has not begun.
        """

    @property
    def waiting(self) -> int:
        """Number of callbacks that have not begun, for statistics. 0 if it is unknown."""
        return 0

    @property
    def running(self) -> int:
        """Number of callbacks that have begun and not ended, for statistics."""
        return 0

    def admit(self, caller: InlineCaller) -> bool:
        """Return whether the thread of `caller`, which schedules most callbacks, may also run them.

        If it may, it runs callbacks inside `schedule_many`. Default: False.
        """
        return False

    def runs_here(self) -> bool:
        """Return whether the calling thread is running a callback, for which `shutdown` may wait.

        A scheduler that cannot detect this may keep the default, False. Then its callbacks must not
        close the client.
        """
        return False


class ThreadScheduler(Scheduler):
    """A pool of threads with one queue, so that no message waits behind a slow one.

    Any thread may schedule. Threads are started when there is work for them, up to `max_workers`,
    and end at the shutdown.
    """

    def __init__(self, executor: Executor | None = None, *, max_workers: int | None = None) -> None:
        """Create a scheduler for one subscription.

        Args:
            executor: Runs the callbacks instead of the scheduler's threads. It is not shut down, so
                it may be shared with other work.
            max_workers: Number of threads. Default: 10.

        Raises:
            TypeError, ValueError: `max_workers` is not an int or is below 1, or both arguments were
                given.
        """
        if max_workers is not None:
            require_positive("max_workers", max_workers)
        if executor is not None and max_workers is not None:
            raise ValueError("pass either executor or max_workers: an executor has its own size")
        self._pool: WorkerPool | ExecutorPool = (
            WorkerPool(max_workers or DEFAULT_WORKERS)
            if executor is None
            else ExecutorPool(executor)
        )

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        """Queue the call for the next free thread; raise RuntimeError after the shutdown."""
        if len(args) == 1:
            self._pool.add(callback, args)
        else:
            self._pool.add(partial(_apply, callback), [args])

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        """Queue a call for each message; an admitted calling thread may run some of them itself."""
        self._pool.add(callback, messages, may_wait=True)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        """Discard the queue, and wait for running callbacks: without a limit, or for 0.1 s."""
        dropped = self._pool.close()
        self._pool.join(None if await_msg_callbacks else _IDLE_WORKER_EXIT)
        return [message for argument in dropped for message in messages_in(argument)]

    @property
    def waiting(self) -> int:
        """Number of queued callbacks."""
        return self._pool.waiting

    @property
    def running(self) -> int:
        """Number of threads that are running callbacks."""
        return self._pool.running

    def admit(self, caller: InlineCaller) -> bool:
        """Return whether the pool admits it; a single thread or a user's executor does not."""
        return isinstance(self._pool, WorkerPool) and self._pool.admit(caller)

    def runs_here(self) -> bool:
        """Return whether the calling thread belongs to the pool or is in one of its callbacks."""
        return self._pool.runs_here()


def messages_in(argument: Any) -> list[Message]:
    """Return the messages in a callback's argument, which is one message or a sequence of them."""
    several = argument if isinstance(argument, (list, tuple)) else (argument,)
    return messages_of(one for one in several if isinstance(one, (Message, Portion)))


def _apply(callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    callback(*args)
