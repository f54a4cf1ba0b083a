"""AsyncSubscriberClient: the subscriber for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import grpc

from .client import SubscriberClient
from .columns import MessageColumns
from .fetch.client import fetch_async
from .fetch.columns import AsyncFetchedColumns
from .fetch.messages import AsyncFetchedMessages
from .fetch.protocol import Wanted
from .flow_control import FlowControl
from .futures import ShutdownMode, StreamingPullFuture
from .hooks import Hooks
from .logs.feeds.client import AsyncFeedsClient
from .logs.feeds.frame_stream import FrameStream
from .logs.feeds.position import Start
from .logs.feeds.routers import AsyncCursorsClient, AsyncRoutersClient
from .logs.follow.client import FollowOptions
from .logs.follow.events import Checkpoint
from .logs.follow.future import Follower
from .logs.follow.records import Record
from .logs.follow.runner import CoroutineHandler
from .message import Message, MessageBatch
from .message_stream import MessageStream
from .rpc.connecting_client import ConnectingClient
from .rpc.endpoint import ConnectionArguments
from .rpc.unary_client import rpcs_of
from .runtime.callback_kinds import is_coroutine_function
from .runtime.thread_start import run_on_new_thread
from .runtime.validation import require_bool
from .scheduling.coroutines import CoroutineScheduler
from .streaming.settings import ReleaseAfter

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack


class AsyncSubscriberClient(ConnectingClient):
    """Receives messages on an event loop, with the same streaming pull, leases and flow control.

        async with AsyncSubscriberClient() as client:
            async for message in client.stream("projects/p/subscriptions/s"):
                await handle(message)
                message.ack()

    To wait for the result of an ack: `await asyncio.wrap_future(message.ack_with_response())`. Call
    all methods on the same event loop.
    """

    def _connect(self, channel: grpc.Channel | None, arguments: ConnectionArguments) -> None:
        self._client = SubscriberClient(channel=channel, **arguments)

    @property
    def admin(self) -> SubscriberClient:
        """The SubscriberClient that this client uses, for administrative calls.

        Its calls block. Run them in a thread: `await
        asyncio.to_thread(client.admin.create_subscription, ...)`.
        """
        return self._client

    @property
    def feeds(self) -> AsyncFeedsClient:
        """The calls for feeds: `await client.feeds.append(topic, records)`."""
        return AsyncFeedsClient(rpcs_of(self._client))

    @property
    def routers(self) -> AsyncRoutersClient:
        """The calls for routers, which copy between feeds: `await client.routers.put(router)`."""
        return AsyncRoutersClient(rpcs_of(self._client))

    @property
    def cursors(self) -> AsyncCursorsClient:
        """The calls for cursors, named positions: `await client.cursors.get(name)`."""
        return AsyncCursorsClient(rpcs_of(self._client))

    def stream(
        self,
        subscription: str,
        flow_control: FlowControl | tuple[Any, ...] = (),
        *,
        give_up_after: float | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> MessageStream:
        """Return the messages of a subscription for an `async for` loop.

        Flow control counts a message from its receipt until it is settled, so a loop that settles
        nothing stops after `max_messages`. Leases are extended in the meantime. The next message of
        an ordering key comes when the previous one is settled. Leaving the loop shuts the
        subscription down and returns the unsettled messages to the server.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            flow_control: Limits on outstanding messages, as for `SubscriberClient.subscribe`.
            give_up_after: Seconds without a working stream until the end, as for
                `SubscriberClient.subscribe`.
            hooks: One Hooks object or several, as for `SubscriberClient.subscribe`.
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
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> StreamingPullFuture:
        """Run `callback(message)` for each message, as a task on the running event loop.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            callback: An `async def` function of one Message.
            flow_control: Limits on outstanding messages, as for `SubscriberClient.subscribe`.
            await_callbacks_on_shutdown: Whether `cancel()` lets running callbacks finish, as for
                `SubscriberClient.subscribe`. Default: False.
            max_tasks: Number of parallel callbacks. Default: as many as flow control allows.
            release_after: "callback" or "ack", as for `SubscriberClient.subscribe`.
            give_up_after: Seconds without a working stream until the end, as for
                `SubscriberClient.subscribe`.
            streams: Number of streams, as for `SubscriberClient.subscribe`.
            hooks: One Hooks object or several, as for `SubscriberClient.subscribe`.

        Returns:
            The future of the subscription. `await future` waits for its end.

        Raises:
            TypeError, ValueError: An argument has the wrong type or is out of range.
            SubscriberClosed: The client is closed.
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
            streams=streams,
            hooks=hooks,
        )

    @overload
    def subscribe_batch(
        self,
        subscription: str,
        callback: Callable[[MessageBatch], Coroutine[Any, Any, Any]],
        flow_control: FlowControl | tuple[Any, ...] = (),
        await_callbacks_on_shutdown: bool = False,
        *,
        max_messages: int = 100,
        max_latency: float = 0.1,
        max_tasks: int | None = None,
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
        columns: Literal[False] = False,
    ) -> StreamingPullFuture: ...

    @overload
    def subscribe_batch(
        self,
        subscription: str,
        callback: Callable[[MessageColumns], Coroutine[Any, Any, Any]],
        flow_control: FlowControl | tuple[Any, ...] = (),
        await_callbacks_on_shutdown: bool = False,
        *,
        max_messages: int = 100,
        max_latency: float = 0.1,
        max_tasks: int | None = None,
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
        columns: Literal[True],
    ) -> StreamingPullFuture: ...

    def subscribe_batch(
        self,
        subscription: str,
        callback: Callable[[Any], Coroutine[Any, Any, Any]],
        flow_control: FlowControl | tuple[Any, ...] = (),
        await_callbacks_on_shutdown: bool = False,
        *,
        max_messages: int = 100,
        max_latency: float = 0.1,
        max_tasks: int | None = None,
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
        columns: bool = False,
    ) -> StreamingPullFuture:
        """Run `callback(messages)` for lists of messages, as tasks on the running event loop.

        See `SubscriberClient.subscribe_batch`.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            callback: An `async def` function of one MessageBatch, or of one MessageColumns.
            flow_control: Limits on outstanding messages, as for `SubscriberClient.subscribe`.
            await_callbacks_on_shutdown: Whether `cancel()` lets running callbacks finish, as for
                `SubscriberClient.subscribe`. Default: False.
            max_messages: Maximum length of a list, from 1 to `flow_control.max_messages`. Default:
                100.
            max_latency: Maximum time in seconds that a message waits for others to join its list.
                Default: 0.1.
            max_tasks: Number of parallel callbacks. Default: as many as flow control allows.
            give_up_after: Seconds without a working stream until the end, as for
                `SubscriberClient.subscribe`.
            streams: Number of streams, as for `SubscriberClient.subscribe`.
            hooks: One Hooks object or several, as for `SubscriberClient.subscribe`.
            columns: Whether the callback takes MessageColumns, as for
                `SubscriberClient.subscribe_batch`. Default: False.

        Returns:
            The future of the subscription. `await future` waits for its end.

        Raises:
            TypeError, ValueError: An argument has the wrong type or is out of range.
            SubscriberClosed: The client is closed.
        """
        scheduler = CoroutineScheduler(asyncio.get_running_loop(), max_tasks=max_tasks)
        # The type checker must know which overload it is.
        subscribe: Callable[..., StreamingPullFuture] = self._client.subscribe_batch
        return subscribe(
            subscription,
            callback,
            flow_control,
            scheduler,
            await_callbacks_on_shutdown=await_callbacks_on_shutdown,
            max_messages=max_messages,
            max_latency=max_latency,
            give_up_after=give_up_after,
            streams=streams,
            hooks=hooks,
            columns=columns,
        )

    @overload
    async def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
        *,
        missing_ok: bool = False,
        columns: Literal[False] = False,
    ) -> AsyncFetchedMessages: ...

    @overload
    async def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
        *,
        missing_ok: bool = False,
        columns: Literal[True],
    ) -> AsyncFetchedColumns: ...

    async def fetch(
        self,
        subscription: str,
        max_messages: int = 1,
        timeout: float | None = 5.0,
        min_messages: int = 1,
        no_wait: bool = False,
        *,
        missing_ok: bool = False,
        columns: bool = False,
    ) -> AsyncFetchedMessages | AsyncFetchedColumns:
        """Return 1 to `max_messages` messages on request; see `SubscriberClient.fetch`.

        Any number of tasks may fetch at the same time. If a task is cancelled, its fetch is
        withdrawn at once.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            max_messages: Maximum number of messages, at least 1. Default: 1.
            timeout: Seconds for the whole call, above 0. None: no limit. Default: 5.
            min_messages: Wait for this number of messages. When the time is over, fewer are
                returned. Default: 1.
            no_wait: Return the available messages at once, possibly none. `timeout` then only
                limits how long the server may take to answer. Default: False.
            missing_ok: Return an empty list if no message has arrived in time, instead of raising
                PullTimeout. Default: False.
            columns: Return AsyncFetchedColumns, which have no object for each message. Default:
                False.

        Raises:
            PullTimeout: No message arrived in time and `missing_ok` is False, or the server did not
                answer.
        """
        wanted = Wanted(subscription, max_messages, timeout, min_messages, no_wait, missing_ok)
        require_bool("columns", columns)
        if columns:
            return await fetch_async(self._client, wanted, AsyncFetchedColumns)
        return await fetch_async(self._client, wanted, AsyncFetchedMessages)

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
        """Return the frames of feeds for an `async for` loop; see `SubscriberClient.watch`.

        The next frame is read when the loop asks for it, so a slow loop slows the server down.
        Leaving the loop ends the watch.

        Args:
            topics: Full names of feeds, each with its start position. At most 256.
            exclude_node: Leave out the records of this node. Default: none.
            include_data: Whether to include data and all attributes. Default: True.
            max_messages: Maximum number of messages in a frame, up to 1000. Default: 256.
            max_bytes: Maximum number of message bytes in a frame, up to 8 MiB. Default: 256 KiB.
            heartbeat: Seconds of silence after which the server sends a heartbeat, 1 to 60.
                Default: 15.
            resume_token: The `resume_token` of an earlier watch. It replaces the start positions of
                the feeds that it contains.
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
        """Run `handler(record)` on the running event loop for every record of a topic, in order.

        See `SubscriberClient.follow`. `on_event` is called on a separate thread and not on the
        loop. `await follower` waits for the end; `follower.cancel()` requests it. On the loop,
        `follower.close()` does not wait.

        Args:
            topic: Full name, `projects/P/topics/T`.
            handler: An `async def` function of one record. The next record waits until it returns.
            after: The position after which to begin, as for `SubscriberClient.follow`. Default: 0,
                the beginning.
            **options: The options of `SubscriberClient.follow`.

        Raises:
            TypeError: `handler` is not an `async def` function.
        """
        if not is_coroutine_function(handler):
            raise TypeError(f"handler is {handler!r}; it must be an async def with one argument")
        on_loop = CoroutineHandler(handler, asyncio.get_running_loop())
        return self._client.follow(topic, on_loop, after, **options)

    async def close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Close the client without blocking the event loop; see `SubscriberClient.close`.

        Inside a callback, or the handler of a follower, this method does not wait either.

        Args:
            timeout: Seconds for the whole shutdown. None (default): no limit.
            mode: "drain" or "nack". None (default): each activity is stopped as by its `cancel()`.
        """
        # In the caller's context, which shows whether the caller is a handler: nothing may wait for
        # a handler.
        await run_on_new_thread(lambda: self._client.close(timeout, mode), "pullstream-close")

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
