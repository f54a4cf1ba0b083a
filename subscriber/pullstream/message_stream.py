"""MessageStream: the messages of a subscription for an `async for` loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK

from .client import SubscriberClient
from .flow_control import FlowControl
from .futures import StreamingPullFuture
from .message import Message, lose
from .runtime.loop_queue import LoopQueue
from .scheduling.scheduler import Scheduler


class MessageStream:
    """The messages of one subscription; see `AsyncSubscriberClient.stream`.

    The subscription begins with the iteration and ends with it. One iteration at a time.
    """

    def __init__(
        self,
        client: SubscriberClient,
        subscription: str,
        flow_control: FlowControl | tuple[Any, ...],
        **options: Any,
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._flow_control = flow_control
        self._options = options
        self._future: StreamingPullFuture | None = None

    @property
    def future(self) -> StreamingPullFuture:
        """The running subscription: its state and statistics, and its shutdown from other tasks.

        Raises:
            RuntimeError: The iteration has not begun.
        """
        if self._future is None:
            raise RuntimeError("the iteration of this stream has not begun; use `async for`")
        return self._future

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        """Subscribe, and yield the messages until the subscription ends.

        Raises:
            RuntimeError: Another iteration is in progress.
            Exception: The error that ended the subscription, unless the user ended it.
        """
        if self._future is not None and not self._future.done():
            raise RuntimeError("this stream is being iterated over; call stream() for another")
        mailbox: LoopQueue[Message] = LoopQueue(asyncio.get_running_loop())
        self._future = future = self._client.subscribe(
            self._subscription,
            mailbox.put,
            self._flow_control,
            scheduler=_InPlace(),
            release_after="ack",
            **self._options,
        )
        future.add_done_callback(lambda _: mailbox.wake())
        try:
            while True:
                message = await mailbox.get(until=future.done)
                if message is None:
                    # Raises the error that ended the subscription, unless the user ended it.
                    future.result()
                    return
                if message.settled is not None:
                    continue
                if SYSTEM_CLOCK.monotonic() >= message.batch.lease_ends:
                    # The loop was busy, or the process was stopped, while the message waited.
                    lose(message)
                    continue
                yield message
        finally:
            future.cancel()
            while not future.done():
                await mailbox.wait()


class _InPlace(Scheduler):
    """Runs callbacks on the thread that schedules them, for callbacks that only queue a message.

    If a callback schedules another one, that one runs after it and not inside it. Otherwise many
    messages of one key would overflow the stack.
    """

    def __init__(self) -> None:
        self._work: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._lock = CallLock()
        self._busy = False
        self._closed = False

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        if self._closed:
            raise RuntimeError("this scheduler is shut down; each subscription needs its own")
        self._work.append((callback, args))
        with self._lock.once:
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock.once:
                if not self._work:
                    self._busy = False
                    return
                run, arguments = self._work.popleft()
            run(*arguments)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        self._closed = True
        return []
