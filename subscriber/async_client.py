"""AsyncSubscriberClient: messages for programs that run on asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
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
from .message import Message
from .message_stream import MessageStream
from .streaming.callbacks import is_coroutine_function
from .streaming.settings import ReleaseAfter

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
            The subscription. `await future` waits for its end.
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
        `follower.cancel()`, if it is to end, and `await follower`. On the loop `close()` does not
        wait.
        """
        if not is_coroutine_function(handler):
            raise TypeError(f"handler is {handler!r}; it must be an async def of one record")
        on_loop = CoroutineHandler(handler, asyncio.get_running_loop())
        return self._client.follow(topic, on_loop, after, **options)

    async def close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """As `SubscriberClient.close`, without blocking the event loop.

        Inside a callback, or the handler of a follower, it does not wait either.
        """
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def close() -> None:
            try:
                self._client.close(timeout, mode)
            finally:
                loop.call_soon_threadsafe(closed.set)

        # In the caller's context, which tells whether it is a handler, for which nobody may wait. A
        # thread of its own: the loop's pool may be full of threads that wait for messages.
        context = copy_context()
        threading.Thread(
            target=context.run, args=(close,), name="pullstream-close", daemon=True
        ).start()
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
