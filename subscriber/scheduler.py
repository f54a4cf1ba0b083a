"""Where callbacks run: the Scheduler protocol, and a pool of threads."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from .arguments import count
from .executor_pool import ExecutorPool
from .message import Message
from .stint import Guest
from .worker_pool import WorkerPool

DEFAULT_WORKERS = 10

# A worker that is in no callback leaves within this many seconds of being told to.
_IDLE_WORKER_EXIT = 0.1


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

    @property
    def waiting(self) -> int:
        """Callbacks that have not begun, for statistics. A scheduler that cannot tell says 0."""
        return 0

    @property
    def running(self) -> int:
        """Callbacks that have begun and not ended, for statistics."""
        return 0

    def admit(self, guest: Guest) -> bool:
        """The thread of `guest`, which schedules most of all, could run callbacks as well.

        A scheduler may let it do so inside `schedule_many`; returns whether it may. It need not.
        """
        return False

    def runs_here(self) -> bool:
        """Whether the calling thread is running a callback, which `shutdown` may have to wait for.

        A scheduler of your own that cannot tell may leave it at False; then its callbacks must not
        close the client.
        """
        return False


class ThreadScheduler(Scheduler):
    """A pool of threads that take work from one queue, so that no message waits behind a slow one.

    Any thread may schedule. Threads are started when there is work for them, up to `max_workers`,
    and end at `shutdown`.

    Args:
        executor: run the callbacks on this instead of own threads. It is used, not shut down: it
            may be shared with other work.
        max_workers: size of the own pool, 10 unless given.
    """

    def __init__(self, executor: Executor | None = None, *, max_workers: int | None = None) -> None:
        if max_workers is not None:
            count("max_workers", max_workers)
        if executor is not None and max_workers is not None:
            raise ValueError("give either an executor, which has its own size, or max_workers")
        self._pool: WorkerPool | ExecutorPool = (
            WorkerPool(max_workers or DEFAULT_WORKERS)
            if executor is None
            else ExecutorPool(executor)
        )

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        if len(args) == 1:
            self._pool.add(callback, args)
        else:
            self._pool.add(partial(_apply, callback), [args])

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        self._pool.add(callback, messages, may_wait=True)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        dropped = self._pool.close()
        self._pool.join(None if await_msg_callbacks else _IDLE_WORKER_EXIT)
        return [message for argument in dropped for message in messages_in(argument)]

    @property
    def waiting(self) -> int:
        return self._pool.waiting

    @property
    def running(self) -> int:
        return self._pool.running

    def admit(self, guest: Guest) -> bool:
        return isinstance(self._pool, WorkerPool) and self._pool.admit(guest)

    def runs_here(self) -> bool:
        return self._pool.runs_here()


def messages_in(argument: Any) -> list[Message]:
    """The messages in what a callback was to be called with: one, or several in a sequence."""
    several = argument if isinstance(argument, (list, tuple)) else (argument,)
    return [one for one in several if isinstance(one, Message)]


def _apply(callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    callback(*args)
