"""SubscriberClient: the face of the SDK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from protocol.messages import pubsub_pb2 as pubsub

from .admin import SubscriberAdmin
from .arguments import number, patience, whole
from .connections import Connections, GivenChannel
from .coroutines import CoroutineScheduler
from .fetch.fetching import FetchingClient
from .flow_control import FlowControl, limits_of
from .follow.following import FollowingClient
from .futures import StreamingPullFuture
from .hooks import Hooks
from .listen.listening import ListeningClient
from .message import Message, MessageBatch
from .refused_threads import begin_or_wait
from .request import routing_header
from .rpc import DEFAULT_TIMEOUT, Rpcs
from .scheduler import Scheduler, ThreadScheduler
from .streaming.callbacks import is_coroutine_function
from .streaming.dispatcher import Call
from .streaming.manager import StreamingPullManager
from .streaming.settings import Batching, ReleaseAfter, Settings
from .streaming.stream import StreamEnded
from .streaming.stream_call import StreamCall, begin


class SubscriberClient(SubscriberAdmin, FetchingClient, FollowingClient, ListeningClient):
    """Receives messages from Pub/Sub subscriptions, and manages them.

    The methods have the names of the official client's. Arguments: see `ServiceClient`.

        with SubscriberClient() as client:
            future = client.subscribe("projects/p/subscriptions/s", callback)
            future.result()
    """

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
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> StreamingPullFuture:
        """Receive messages in the background: `callback(message)` runs for each, on a pool of
        threads, or, if it is an `async def`, on an event loop.

        The callback settles its message by `message.ack()` or `message.nack()`. If it raises, the
        message is nacked, the error logged, and the subscription goes on. Messages with an ordering
        key (on a subscription that keeps order) run one at a time and in order within their key.

        Args:
            subscription: full name, `projects/P/subscriptions/S`.
            flow_control: how many unfinished messages to take on; see FlowControl.
            scheduler: where callbacks run, one for each subscription. Default: own threads, or an
                event loop on a thread of its own.
            use_legacy_flow_control: limit only on this side; the server is not told the limits.
            await_callbacks_on_shutdown: `cancel()` lets running callbacks finish. Otherwise their
                messages are given back at once, and what they decide later has no effect.
            max_workers: callbacks at a time, on the default scheduler. Default: 10 threads; with an
                `async def`, as many as flow control lets in. Unless it is 1 the thread that reads
                the stream may be one of them, while callbacks take some microseconds.
            release_after: when the next message of an ordering key may run: when the "callback" of
                the one before has ended, or when that one is settled, too ("ack").
            give_up_after: seconds without a working stream after which the subscription ends with
                the last error. A stream works when it has brought messages, or stood for ten
                seconds. Default: it goes on trying.
            hooks: told of what happens; see Hooks.

        Returns:
            A future that ends when the subscription does; `cancel()` or `close()` shuts it down.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or out of its range.
            SubscriberClosed: this client is closed.
            ForkedProcess: this client was made before a fork, in the parent.
            RuntimeError: the process may have no more threads; nothing has begun.
        """
        if release_after not in ("callback", "ack"):
            raise ValueError(f'release_after is {release_after!r}; it must be "callback" or "ack"')
        settings = Settings(
            limits=limits_of(flow_control),
            limit_server=not use_legacy_flow_control,
            await_callbacks=await_callbacks_on_shutdown,
            release_after=release_after,
            give_up_after=patience("give_up_after", give_up_after),
            hooks=_listeners(hooks),
        )
        return self.subscribe_with(subscription, callback, settings, scheduler, max_workers)

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
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> StreamingPullFuture:
        """As `subscribe`, but `callback(messages)` gets a list, in which order within a key holds.

        It settles the messages one by one or all at once, by `messages.ack()` or `messages.nack()`.
        If it raises, those that are not settled are nacked. Lists of the same key are handled one
        after the other, others beside each other.

        Args:
            max_messages: length of a list at most. To be of use it must not be more than what flow
                control lets in.
            max_latency: seconds that a message may wait for others to join it.

        The other arguments, and what is returned and raised, are as for `subscribe`.
        """
        limits = limits_of(flow_control)
        if not 1 <= whole("max_messages", max_messages) <= limits.max_messages:
            raise ValueError(
                f"max_messages is {max_messages}; it must be between 1 and the flow control's "
                f"{limits.max_messages}"
            )
        if number("max_latency", max_latency) < 0:
            raise ValueError(f"max_latency is {max_latency}; it must not be negative")
        settings = Settings(
            limits=limits,
            await_callbacks=await_callbacks_on_shutdown,
            give_up_after=patience("give_up_after", give_up_after),
            hooks=_listeners(hooks),
            batching=Batching(max_messages, max_latency),
        )
        return self.subscribe_with(subscription, callback, settings, scheduler, max_workers)

    def subscribe_with(
        self,
        subscription: str,
        callback: Callable[..., Any],
        settings: Settings,
        scheduler: Scheduler | None = None,
        max_workers: int | None = None,
    ) -> StreamingPullFuture:
        """As `subscribe` or `subscribe_batch`, with checked settings; for the SDK itself."""
        if not isinstance(subscription, str):
            raise TypeError(f"subscription is {subscription!r}; it must be the full name, a str")
        if not callable(callback):
            raise TypeError(f"callback is {callback!r}; it must be callable with one message")
        scheduler = _scheduler_for(callback, scheduler, max_workers)
        calls = _SubscriptionCalls(self._rpcs, self._connections, subscription)

        def start() -> StreamingPullFuture:
            manager = StreamingPullManager(
                calls, subscription, callback, settings, scheduler=scheduler
            )
            manager.start()
            return manager.future

        return self._keep(start)


def _scheduler_for(
    callback: object, scheduler: Scheduler | None, max_workers: int | None
) -> Scheduler:
    if scheduler is not None and not isinstance(scheduler, Scheduler):
        raise TypeError(f"scheduler is {scheduler!r}; it must derive from Scheduler")
    if scheduler is not None and max_workers is not None:
        raise ValueError("give either a scheduler, which has its own size, or max_workers")
    if not is_coroutine_function(callback):
        return scheduler or ThreadScheduler(max_workers=max_workers)
    if isinstance(scheduler, ThreadScheduler):
        raise TypeError(
            "callback is an async def, which a ThreadScheduler cannot run; "
            "leave scheduler out, or give a CoroutineScheduler"
        )
    return scheduler or CoroutineScheduler(max_tasks=max_workers)


def _listeners(hooks: Hooks | Sequence[Hooks]) -> tuple[Hooks, ...]:
    if isinstance(hooks, Hooks):
        return (hooks,)
    if not isinstance(hooks, Sequence) or not all(isinstance(one, Hooks) for one in hooks):
        raise TypeError(f"hooks is {hooks!r}; it must be an instance of Hooks, or several")
    return tuple(hooks)


# How long the server may take to answer, in seconds: an ack or nack; a deadline change at least.
_VERDICT_TIMEOUT = 20.0
_LEAST_TIMEOUT = 5.0


class _SubscriptionCalls:
    """The RPCs of one subscription, as its manager wants them: started, not waited for.

    The manager's threads start them, one of them the streams; its end closes.
    """

    def __init__(
        self, rpcs: Rpcs, connections: Connections | GivenChannel, subscription: str
    ) -> None:
        self._rpcs = rpcs
        self._connections = connections
        self._lock = threading.Lock()
        # That of the stream, from when there is one.
        self._channel: grpc.Channel | None = None
        self._closed = False
        self._metadata = (routing_header(pubsub.AcknowledgeRequest(subscription=subscription)),)

    def streaming_pull(self, first: pubsub.StreamingPullRequest) -> StreamCall:
        with self._lock:
            if self._closed:
                # The reader was held up, and the shutdown has not waited for it.
                raise StreamEnded
            if self._channel is None:
                self._channel = self._connections.open()
        return begin(self._channel, first, self._metadata)

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Call:
        return begin_or_wait(self._rpcs, "Acknowledge", request, _VERDICT_TIMEOUT, self._metadata)

    def modify_ack_deadline(self, request: pubsub.ModifyAckDeadlineRequest) -> Call:
        timeout = _VERDICT_TIMEOUT
        if seconds := request.ack_deadline_seconds:
            # One that hangs is made again while the lease that it was to extend lasts.
            timeout = min(max(seconds / 2, _LEAST_TIMEOUT), DEFAULT_TIMEOUT)
        return begin_or_wait(self._rpcs, "ModifyAckDeadline", request, timeout, self._metadata)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channel = self._channel
        if channel is not None:
            self._connections.close(channel)
