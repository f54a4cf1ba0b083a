"""AsyncSubscriberClient: messages for programs that run on asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from .client import SubscriberClient
from .connection import ClientOptions
from .coroutines import CoroutineScheduler
from .feeds.frame_stream import FrameStream
from .feeds.position import Start
from .fetch import AsyncFetchedMessages
from .flow_control import FlowControl
from .follow.coroutine_handler import CoroutineHandler
from .follow.events import Checkpoint
from .follow.follower import Follower
from .follow.following import FollowOptions
from .follow.record import Record
from .futures import ShutdownMode, StreamingPullFuture
from .hooks import Hooks
from .mailbox import Mailbox
from .message import Message
from .scheduler import Scheduler
from .streaming.callbacks import is_coroutine_function
from .streaming.manager import ReleaseAfter

if TYPE_CHECKING:
    from types import TracebackType

    from google.auth.credentials import Credentials
    from typing_extensions import Self, Unpack


class AsyncSubscriberClient:
    """Receives messages on an event loop: the same streaming pull, leases and flow control.

        async with AsyncSubscriberClient() as client:
            async for message in client.stream("projects/p/subscriptions/s"):
                await handle(message)
                message.ack()

    To learn what became of an ack: `await asyncio.wrap_future(message.ack_with_response())`.
    Arguments: see `ServiceClient`. All methods are to be called on one event loop.
    """

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        endpoint: str | None = None,
        client_options: ClientOptions | Mapping[str, Any] | None = None,
        channel: grpc.Channel | None = None,
        channel_credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._client = SubscriberClient(
            credentials=credentials,
            endpoint=endpoint,
            client_options=client_options,
            channel=channel,
            channel_credentials=channel_credentials,
        )

    @property
    def admin(self) -> SubscriberClient:
        """The client underneath, for its administrative calls, which block:
        `await asyncio.to_thread(client.admin.create_subscription, ...)`."""
        return self._client

    def stream(
        self,
        subscription: str,
        flow_control: FlowControl | tuple[Any, ...] = (),
        *,
        give_up_after: float | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> MessageStream:
        """Messages for an `async for`.

        Flow control counts a message from its receipt until it is settled, so a loop that settles
        nothing comes to a halt after `max_messages`. Leases are extended meanwhile. Of an ordering
        key the next message comes when the one before is settled. Leaving the loop shuts the
        subscription down and gives back what is not settled.

        Args:
            subscription: full name, `projects/P/subscriptions/S`.
            flow_control, give_up_after, hooks: as for `SubscriberClient.subscribe`.
        """
        return MessageStream(
            self._client, subscription, flow_control, give_up_after=give_up_after, hooks=hooks
        )

    def subscribe(
        self,
        subscription: str,
        callback: Callable[[Message], Coroutine[Any, Any, Any]],
        flow_control: FlowControl | tuple[Any, ...] = (),
        await_callbacks_on_shutdown: bool = False,
        *,
        max_tasks: int | None = None,
        release_after: ReleaseAfter = "callback",
        give_up_after: float | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> StreamingPullFuture:
        """Run `callback(message)` for each message, as a task on the running event loop.

        Args:
            max_tasks: callbacks at a time. Default: as many as flow control lets in.

        The others are those of `SubscriberClient.subscribe`.

        Returns:
            The subscription. `await asyncio.wrap_future(future)` waits for its end.
        """
        scheduler = CoroutineScheduler(asyncio.get_running_loop(), max_tasks=max_tasks)
        return self._client.subscribe(
            subscription,
            callback,
            flow_control,
            scheduler,
            await_callbacks_on_shutdown=await_callbacks_on_shutdown,
            release_after=release_after,
            give_up_after=give_up_after,
            hooks=hooks,
        )

    async def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
    ) -> AsyncFetchedMessages:
        """1 to `max_messages` messages, when asked for; see `SubscriberClient.fetch`.

        Any number of tasks may fetch at a time. That of a cancelled one is withdrawn at once.
        """
        return await self._client.fetch_async(
            subscription, max_messages, timeout, min_messages, no_wait
        )

    def watch(
        self,
        topics: Mapping[str, Start],
        *,
        exclude_node: str = "",
        include_data: bool = True,
        max_messages: int = 256,
        max_bytes: int = 256 * 1024,
        heartbeat: float = 15.0,
        resume_token: str = "",
    ) -> FrameStream:
        """Frames of feeds for an `async for`. The arguments are those of `SubscriberClient.watch`.

        The next frame is read when the loop asks for it, so a slow loop slows the server. Leaving
        the loop ends the watch.
        """
        return FrameStream(
            self._client,
            topics,
            exclude_node=exclude_node,
            include_data=include_data,
            max_messages=max_messages,
            max_bytes=max_bytes,
            heartbeat=heartbeat,
            resume_token=resume_token,
        )

    def follow(
        self,
        topic: str,
        handler: Callable[[Record], Coroutine[Any, Any, Any]],
        after: Start | Checkpoint = 0,
        **options: Unpack[FollowOptions],
    ) -> Follower:
        """Run `handler(record)`, an `async def`, on the running event loop for every record of a
        topic, one after the other; see `SubscriberClient.follow`.

        `on_event` is called on a thread of its own, not on the loop. To wait for the end:
        `await asyncio.wrap_future(follower)`.
        """
        if not is_coroutine_function(handler):
            raise TypeError(f"handler is {handler!r}; it must be an async def of one record")
        on_loop = CoroutineHandler(handler, asyncio.get_running_loop())
        return self._client.follow(topic, on_loop, after, **options)

    async def close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """As `SubscriberClient.close`, without blocking the event loop."""
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def close() -> None:
            try:
                self._client.close(timeout, mode)
            finally:
                loop.call_soon_threadsafe(closed.set)

        # A thread of its own: the loop's pool may be full of threads that wait for messages.
        threading.Thread(target=close, name="pullstream-close", daemon=True).start()
        await closed.wait()

    async def __aenter__(self) -> Self:
        self._client.__enter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


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
        """The running subscription, for its state, its statistics, and to end it from elsewhere.

        Raises:
            RuntimeError: the iteration has not begun.
        """
        if self._future is None:
            raise RuntimeError("the stream has not begun; iterate over it")
        return self._future

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        if self._future is not None and not self._future.done():
            raise RuntimeError("this stream is being iterated over; ask the client for another")
        mailbox: Mailbox[Message] = Mailbox(asyncio.get_running_loop())
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
                    # Raises what ended the subscription, if it was not the user.
                    future.result()
                    return
                if message.settled is None:
                    yield message
        finally:
            future.cancel()
            while not future.done():
                await mailbox.wait()


class _InPlace(Scheduler):
    """Runs a callback where it is scheduled, for one that only passes its message on.

    A callback that schedules another does not run it inside itself but after itself, or a long row
    of messages of one key would end in a stack overflow.
    """

    def __init__(self) -> None:
        self._work: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._lock = threading.Lock()
        self._busy = False
        self._closed = False

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        if self._closed:
            raise RuntimeError("this scheduler is shut down; each subscription needs its own")
        self._work.append((callback, args))
        with self._lock:
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                if not self._work:
                    self._busy = False
                    return
                run, arguments = self._work.popleft()
            run(*arguments)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        self._closed = True
        return []
