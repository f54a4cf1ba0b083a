"""SubscriberClient: the face of the SDK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from protocol.messages import pubsub_pb2 as pubsub

from .admin import SubscriberAdmin
from .connection import ClientOptions
from .exceptions import SubscriberClosed
from .flow_control import FlowControl
from .futures import StreamingPullFuture
from .message import Message
from .request import routing_header
from .rpc import DEFAULT_TIMEOUT, Rpcs
from .scheduler import Scheduler, ThreadScheduler
from .streaming.dispatcher import Call
from .streaming.manager import StreamingPullManager
from .streaming.stream import Requests, StreamingCall

if TYPE_CHECKING:
    from google.auth.credentials import Credentials


class SubscriberClient(SubscriberAdmin):
    """Receives messages from Pub/Sub subscriptions, and manages them.

    The methods have the names of the official client's. Arguments: see `ServiceClient`.

        with SubscriberClient() as client:
            future = client.subscribe("projects/p/subscriptions/s", callback)
            future.result()
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
        super().__init__(
            credentials=credentials,
            endpoint=endpoint,
            client_options=client_options,
            channel=channel,
            channel_credentials=channel_credentials,
        )
        self._lock = threading.Lock()
        self._running: dict[StreamingPullFuture, StreamingPullManager] = {}

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
    ) -> StreamingPullFuture:
        """Receive messages in the background: `callback(message)` runs for each, on a pool of
        threads.

        The callback settles its message by `message.ack()` or `message.nack()`. If it raises, the
        message is nacked, the error logged, and the subscription goes on. Messages with an ordering
        key (on a subscription that keeps order) run one at a time and in order within their key.

        Args:
            subscription: full name, `projects/P/subscriptions/S`.
            flow_control: how many unfinished messages to take on; see FlowControl.
            scheduler: where callbacks run, one for each subscription. Default: own threads.
            use_legacy_flow_control: limit only on this side; the server is not told the limits.
            await_callbacks_on_shutdown: let running callbacks finish at shutdown. Otherwise their
                messages are given back at once, and what they decide later has no effect.
            max_workers: size of the default pool, 10 unless given.

        Returns:
            A future that ends when the subscription does; `cancel()` shuts it down.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or out of its range.
            SubscriberClosed: this client is closed.
        """
        if not isinstance(subscription, str):
            raise TypeError(f"subscription is {subscription!r}; it must be the full name, a str")
        if not callable(callback):
            raise TypeError(f"callback is {callback!r}; it must be callable with one message")
        if scheduler is not None and max_workers is not None:
            raise ValueError("give either a scheduler, which has its own size, or max_workers")
        limits = FlowControl(*flow_control).checked()
        calls = _SubscriptionCalls(self._rpcs, subscription)
        with self._lock:
            if self.closed:
                raise SubscriberClosed("this client is closed; make a new one to subscribe")
            manager = StreamingPullManager(
                calls,
                subscription,
                callback,
                limits=limits,
                scheduler=ThreadScheduler(max_workers=max_workers)
                if scheduler is None
                else scheduler,
                await_callbacks=await_callbacks_on_shutdown,
                limit_server=not use_legacy_flow_control,
            )
            self._running[manager.future] = manager
            # Before anybody can stop it, and `close` is the first who can.
            manager.start()
        manager.future.add_done_callback(self._forget)
        return manager.future

    def close(self) -> None:
        """Shut down every subscription of this client, wait for them, and end the connection.

        Inside a callback it does not wait, as the shutdown waits for the callback: the connection
        ends with the last subscription. A second call does nothing.
        """
        with self._lock:
            self._closed = True
            running = dict(self._running)
        for future in running:
            future.cancel()
        if any(manager.runs_here() for manager in running.values()):
            return
        for future in running:
            # Its error, if it ended with one, belongs to whoever holds the future.
            future.exception()
        super().close()

    def _forget(self, future: Any) -> None:
        with self._lock:
            del self._running[future]
            was_last = self._closed and not self._running
        if was_last:
            super().close()


class _SubscriptionCalls:
    """The RPCs of one subscription, as its manager wants them: started, not waited for."""

    def __init__(self, rpcs: Rpcs, subscription: str) -> None:
        self._streaming_pull = rpcs.stub("StreamingPull")
        self._acknowledge = rpcs.stub("Acknowledge")
        self._modify_ack_deadline = rpcs.stub("ModifyAckDeadline")
        self._metadata = (routing_header(pubsub.AcknowledgeRequest(subscription=subscription)),)

    def streaming_pull(self, requests: Requests) -> StreamingCall:
        call: StreamingCall = self._streaming_pull(requests, metadata=self._metadata)
        return call

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Call:
        call: Call = self._acknowledge.future(
            request, timeout=DEFAULT_TIMEOUT, metadata=self._metadata
        )
        return call

    def modify_ack_deadline(self, request: pubsub.ModifyAckDeadlineRequest) -> Call:
        call: Call = self._modify_ack_deadline.future(
            request, timeout=DEFAULT_TIMEOUT, metadata=self._metadata
        )
        return call
