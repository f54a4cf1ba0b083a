"""SubscriberClient: the main class of the SDK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

import grpc

from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .admin import SubscriberAdmin
from .columns import MessageColumns
from .fetch.client import FetchingClient
from .flow_control import FlowControl, limits_of
from .futures import StreamingPullFuture
from .hooks import Hooks, hooks_of
from .listen.client import ListeningClient
from .logs.feeds.client import FeedsClient
from .logs.feeds.routers import CursorsClient, RoutersClient
from .logs.feeds.watch_client import WatchingClient
from .logs.follow.client import FollowingClient
from .message import Message, MessageBatch
from .rpc.calls import PendingCall, StreamCall, begin
from .rpc.channel_pool import ChannelPool, SharedChannel, StreamChannel
from .rpc.request import routing_header
from .rpc.rpcs import DEFAULT_TIMEOUT, Rpcs
from .runtime.callback_kinds import is_coroutine_function
from .runtime.validation import (
    require_bool,
    require_int,
    require_number,
    require_text,
    require_timeout,
)
from .scheduling.coroutines import CoroutineScheduler
from .scheduling.scheduler import Scheduler, ThreadScheduler
from .streaming.ack_requests import AckRequest
from .streaming.manager import StreamingPullManager
from .streaming.settings import Batching, ReleaseAfter, StreamingSettings
from .streaming.stream import StreamEnded


class SubscriberClient(
    SubscriberAdmin, FetchingClient, WatchingClient, FollowingClient, ListeningClient
):
    """Receives messages from Pub/Sub subscriptions, and manages subscriptions.

    The methods have the names of the official client's methods. Thread-safe.

        with SubscriberClient() as client:
            future = client.subscribe("projects/p/subscriptions/s", callback)
            future.result()
    """

    @property
    def feeds(self) -> FeedsClient:
        """The calls for feeds: `client.feeds.append(topic, records)`."""
        return FeedsClient(self._rpcs)

    @property
    def routers(self) -> RoutersClient:
        """The calls for routers, which copy between feeds: `client.routers.put(router)`."""
        return RoutersClient(self._rpcs)

    @property
    def cursors(self) -> CursorsClient:
        """The calls for cursors, which are named positions: `client.cursors.get(name)`."""
        return CursorsClient(self._rpcs)

    def subscribe(
        self,
        subscription: str,
        callback: Callable[[Message], Any],
        flow_control: FlowControl | tuple[Any, ...] = (),
        scheduler: Scheduler | None = None,
        use_legacy_flow_control: bool = False,
        await_callbacks_on_shutdown: bool = False,
        *,
        max_workers: int | None = None,
        release_after: ReleaseAfter = "callback",
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> StreamingPullFuture:
        """Receive messages in the background, and call `callback(message)` for each.

        Callbacks run on a pool of threads or, if they are `async def` functions, on an event loop.
        The callback settles its message with `message.ack()` or `message.nack()`. If it raises, the
        message is nacked, the error is logged, and the subscription continues. If the subscription
        has message ordering, messages with the same ordering key run one at a time and in order.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            callback: Function or `async def` of one Message.
            flow_control: Limits on outstanding messages; see FlowControl for its defaults.
            scheduler: Runs the callbacks. Each subscription needs its own. Default: a
                ThreadScheduler or, for an `async def`, a CoroutineScheduler with a new event loop.
            use_legacy_flow_control: Apply the limits only in the client, and do not send them to
                the server. Default: False.
            await_callbacks_on_shutdown: Whether `cancel()` lets running callbacks finish. If False
                (default), their messages are returned at once, and their later acks and nacks have
                no effect.
            max_workers: Number of parallel callbacks on the default scheduler. Default: 10 threads
                or, for an `async def`, as many as flow control allows. Unless it is 1, the thread
                that reads the stream may run callbacks, too, while they take only microseconds.
            release_after: When the next message of an ordering key may run. "callback" (default):
                when the callback of the previous message has ended. "ack": when that message is
                also settled.
            give_up_after: Seconds without a working stream after which the subscription ends with
                the last error. A stream works if it has delivered messages, or has been open for
                ten seconds. None (default): no limit.
            streams: Number of streams, each with its own connection and threads, from 1 (default)
                to `flow_control.max_messages`. Google Cloud limits a stream to 10 MB/s.
                The messages of all streams share the limits of flow control and the callbacks'
                threads, and keep the order of their keys.
            hooks: One Hooks object or several, which are called on events; see Hooks.

        Returns:
            A future that ends with the subscription. Its `cancel()` and `close()` shut it down.

        Raises:
            TypeError, ValueError: An argument has the wrong type or is out of range.
            SubscriberClosed: The client is closed.
            ForkedProcess: Another process, the parent of this fork, created the client.
            RuntimeError: The system refuses a new thread. Nothing was started.
        """
        if release_after not in ("callback", "ack"):
            raise ValueError(f'release_after is {release_after!r}; it must be "callback" or "ack"')
        limits = limits_of(flow_control)
        settings = StreamingSettings(
            limits=limits,
            limit_server=not use_legacy_flow_control,
            await_callbacks=await_callbacks_on_shutdown,
            release_after=release_after,
            give_up_after=require_timeout("give_up_after", give_up_after),
            streams=_stream_count(streams, limits),
            hooks=hooks_of(hooks, Hooks),
        )
        return subscribe_with(self, subscription, callback, settings, scheduler, max_workers)

    @overload
    def subscribe_batch(
        self,
        subscription: str,
        callback: Callable[[MessageBatch], Any],
        flow_control: FlowControl | tuple[Any, ...] = (),
        scheduler: Scheduler | None = None,
        await_callbacks_on_shutdown: bool = False,
        *,
        max_messages: int = 100,
        max_latency: float = 0.1,
        max_workers: int | None = None,
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
        columns: Literal[False] = False,
    ) -> StreamingPullFuture: ...

    @overload
    def subscribe_batch(
        self,
        subscription: str,
        callback: Callable[[MessageColumns], Any],
        flow_control: FlowControl | tuple[Any, ...] = (),
        scheduler: Scheduler | None = None,
        await_callbacks_on_shutdown: bool = False,
        *,
        max_messages: int = 100,
        max_latency: float = 0.1,
        max_workers: int | None = None,
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
        columns: Literal[True],
    ) -> StreamingPullFuture: ...

    def subscribe_batch(
        self,
        subscription: str,
        callback: Callable[[Any], Any],
        flow_control: FlowControl | tuple[Any, ...] = (),
        scheduler: Scheduler | None = None,
        await_callbacks_on_shutdown: bool = False,
        *,
        max_messages: int = 100,
        max_latency: float = 0.1,
        max_workers: int | None = None,
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Hooks | Sequence[Hooks] = (),
        columns: bool = False,
    ) -> StreamingPullFuture:
        """Receive messages in the background, and call `callback(messages)` for lists of them.

        The callback settles the messages one by one, or all at once with `messages.ack()` or
        `messages.nack()`. If it raises, the unsettled messages are nacked. A list keeps the order
        within an ordering key. Lists with messages of the same key are handled one after the other;
        other lists run in parallel.

        Args:
            subscription: Full name, `projects/P/subscriptions/S`.
            callback: Function or `async def` of one MessageBatch, or of one MessageColumns.
            flow_control: Limits on outstanding messages, as for `subscribe`.
            scheduler: Runs the callbacks, as for `subscribe`.
            await_callbacks_on_shutdown: Whether `cancel()` lets running callbacks finish, as for
                `subscribe`. Default: False.
            max_messages: Maximum length of a list, from 1 to `flow_control.max_messages`. Default:
                100.
            max_latency: Maximum time in seconds that a message waits for others to join its list.
                Default: 0.1.
            max_workers: Number of parallel callbacks, as for `subscribe`.
            give_up_after: Seconds without a working stream until the end, as for `subscribe`.
            streams: Number of streams, as for `subscribe`.
            hooks: One Hooks object or several, as for `subscribe`.
            columns: Whether the callback takes MessageColumns, which have no object for each
                message. Then a list may end before `max_messages` at the end of a response.
                Default: False.

        Returns:
            A future that ends with the subscription, as from `subscribe`.

        Raises:
            TypeError, ValueError: An argument has the wrong type or is out of range.
            SubscriberClosed: The client is closed.
            ForkedProcess: Another process, the parent of this fork, created the client.
            RuntimeError: The system refuses a new thread. Nothing was started.
        """
        limits = limits_of(flow_control)
        if not 1 <= require_int("max_messages", max_messages) <= limits.max_messages:
            raise ValueError(
                f"max_messages is {max_messages}; it must be between 1 and the flow control's "
                f"{limits.max_messages}"
            )
        require_bool("columns", columns)
        if require_number("max_latency", max_latency) < 0:
            raise ValueError(f"max_latency is {max_latency}; it must not be negative")
        settings = StreamingSettings(
            limits=limits,
            await_callbacks=await_callbacks_on_shutdown,
            give_up_after=require_timeout("give_up_after", give_up_after),
            streams=_stream_count(streams, limits),
            hooks=hooks_of(hooks, Hooks),
            batching=Batching(max_messages, max_latency, columns),
        )
        return subscribe_with(self, subscription, callback, settings, scheduler, max_workers)


def _stream_count(streams: int, limits: FlowControl) -> int:
    if not 1 <= require_int("streams", streams) <= limits.max_messages:
        raise ValueError(
            f"streams is {streams}; it must be between 1 and the flow control's max_messages, "
            f"{limits.max_messages}"
        )
    return streams


def subscribe_with(
    client: SubscriberClient,
    subscription: str,
    callback: Callable[..., Any],
    settings: StreamingSettings,
    scheduler: Scheduler | None = None,
    max_workers: int | None = None,
) -> StreamingPullFuture:
    """Subscribe with checked settings; see `SubscriberClient.subscribe`.

    Args:
        client: The client whose connection is used, and whose `close` ends the subscription.
        subscription: Full name, `projects/P/subscriptions/S`.
        callback: Takes a Message, or a MessageBatch if the settings say so.
        settings: The checked settings.
        scheduler: Runs the callbacks, as for `subscribe`.
        max_workers: Number of parallel callbacks, as for `subscribe`.
    """
    require_text("subscription", subscription, "the full name, a str")
    if not callable(callback):
        raise TypeError(f"callback is {callback!r}; it must be callable with one argument")
    scheduler = _scheduler_for(callback, scheduler, max_workers)
    calls = _SubscriptionCalls(client._rpcs, client._connections, subscription)
    settings = replace(settings, reject=partial(client._dead_letters.publish, subscription))

    def start() -> StreamingPullFuture:
        manager = StreamingPullManager(calls, subscription, callback, settings, scheduler=scheduler)
        manager.start()
        return manager.future

    return client._keep(start)


def _scheduler_for(
    callback: object, scheduler: Scheduler | None, max_workers: int | None
) -> Scheduler:
    if scheduler is not None and not isinstance(scheduler, Scheduler):
        raise TypeError(f"scheduler is {scheduler!r}; it must derive from Scheduler")
    if scheduler is not None and max_workers is not None:
        raise ValueError("pass either scheduler or max_workers: a scheduler has its own size")
    if is_coroutine_function(callback):
        if scheduler is not None and not isinstance(scheduler, CoroutineScheduler):
            raise TypeError(
                f"callback is {callback!r}, an async def, which {scheduler!r} cannot run; leave "
                "scheduler out, or pass a CoroutineScheduler"
            )
        return scheduler or CoroutineScheduler(max_tasks=max_workers)
    if isinstance(scheduler, CoroutineScheduler):
        raise TypeError(
            f"callback is {callback!r}, a plain function, which would block the event loop of a "
            "CoroutineScheduler; pass an async def (the function itself, not one that calls it), "
            "or use SubscriberClient without a CoroutineScheduler"
        )
    return scheduler or ThreadScheduler(max_workers=max_workers)


# Seconds that the server may take to answer an ack or a nack, and the shortest such limit for a
# change of the ack deadline.
_DISPOSITION_TIMEOUT = 20.0
_LEAST_TIMEOUT = 5.0


class _SubscriptionCalls:
    """The RPCs of one subscription, for its manager. They are started and not waited for.

    The manager's threads start the calls.
    """

    def __init__(
        self, rpcs: Rpcs, connections: ChannelPool | SharedChannel, subscription: str
    ) -> None:
        self._rpcs = rpcs
        self._connections = connections
        self._subscription = subscription

    def new_stream(self) -> _StreamCalls:
        return _StreamCalls(self._rpcs, self._connections)

    def name_resource(self, error: RpcError) -> None:
        self._rpcs.name_resource(error, "StreamingPull", [self._subscription])

    def send(self, request: AckRequest) -> PendingCall:
        timeout = _DISPOSITION_TIMEOUT
        if request.seconds:
            # A request that hangs is repeated while the lease that it should extend still lasts.
            timeout = min(max(request.seconds / 2, _LEAST_TIMEOUT), DEFAULT_TIMEOUT)
        return request.begin(self._subscription, timeout, self._rpcs)


class _StreamCalls:
    """The RPCs of one stream of a subscription, on its own connection.

    The stream's reader starts the calls. The end of the manager calls `close`.
    """

    def __init__(self, rpcs: Rpcs, connections: ChannelPool | SharedChannel) -> None:
        self._rpcs = rpcs
        self._lock = threading.Lock()
        self._stream_channel = StreamChannel(connections)
        # The channel of the present stream.
        self._channel: grpc.Channel | None = None
        self._closed = False

    def streaming_pull(self, first: pubsub.StreamingPullRequest) -> StreamCall:
        with self._lock:
            if self._closed:
                # The reader thread was delayed, and the shutdown did not wait for it.
                raise StreamEnded
            self._channel = channel = self._stream_channel.get()
        return begin(channel, first, (routing_header(first),))

    def reconnect(self) -> None:
        with self._lock:
            channel = self._channel
        if channel is not None:
            self._stream_channel.replace(channel)
        # The server may be just as silent on the other connection.
        self._rpcs.check()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._stream_channel.close()
