"""ChannelPublisher: keyed channels for any gRPC server."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Container, Hashable
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import FailedPrecondition, RpcError, Unavailable
from protocol.messages import channels_pb2 as channels
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import pubsub_pb2 as pubsub

from .answerer import Answerer
from .checks import check_names
from .handlers import aio_handlers
from .hub import Hub
from .limits import ChannelLimits
from .session import Poll
from .statistics import ChannelStatistics
from .sweeper import Sweeper
from .thread_handlers import thread_handlers

if TYPE_CHECKING:
    from typing_extensions import Self


class ChannelPublisher:
    """Publishes messages on keyed channels, straight to its subscribers, without a broker.

        publisher = ChannelPublisher()
        publisher.add_to(server)
        publisher.publish("jobs", "job-7", b"done")

    Subscribers are `SubscriberClient(endpoint=...).listen()`. What is published while nobody is
    subscribed to it is lost. Each subscriber has a mailbox here, from which a message goes when it
    has said that it has it, and costs one long poll, however many keys it is subscribed to.

    Any thread may call any method. All state is the Hub's, under one lock, which is held for no
    longer than an operation on it takes; nothing that waits runs under it, and of the user's code
    only the `in` of `channels`.

    Args:
        channels: the names that there are; anything with an `in`. None: any name will do.
        limits: see ChannelLimits.
        clock: what the failure detector goes by.
    """

    def __init__(
        self,
        channels: Container[str] | None = None,
        limits: ChannelLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._hub = Hub(
            limits or ChannelLimits(), new_incarnation=_new_incarnation, channels=channels
        )
        # Seconds after which a poll is answered, whatever happens.
        self.longest_poll = self._hub.longest_poll
        # Of any thread, without the lock.
        self.is_wanted = self._hub.is_wanted
        self._sweeper: Sweeper | None = None
        self._answerer: Answerer | None = None
        self._closed = False

    def add_to(self, server: grpc.Server | grpc.aio.Server) -> None:
        """Offer the service Channels on a server that has not been started yet.

        On either kind of server a subscriber that waits is a call and no thread, and ten thousand
        of them are nothing unusual; on a `grpc.server` they take less memory than on a `grpc.aio`
        one. There an interceptor that calls the handler of Poll itself, rather than passing it on,
        lets each of them take one of the server's threads.

        Until `close` a thread, "pullstream-sweeper", looks after subscribers that are gone; another
        one, "pullstream-answers", answers those that wait on a `grpc.server`.
        """
        with self._lock:
            self._check_open()
            if isinstance(server, grpc.aio.Server):
                handlers = aio_handlers(self)
            else:
                self._answerer = self._answerer or Answerer(self.finish_poll, self.withdraw_poll)
                handlers = thread_handlers(self, self._answerer)
            server.add_generic_rpc_handlers([handlers])
            if self._sweeper is None:
                self._sweeper = Sweeper(self._clock, self.next_due, self.advance)
                self._hub.on_due = self._sweeper.expect

    def publish(
        self,
        channel: str,
        key: str | None,
        data: bytes | str | pubsub.PubsubMessage,
        **attributes: str,
    ) -> int:
        """Send a message to those who are subscribed to `key`, or to the whole channel.

        Args:
            key: None or "": the message has none.
            data: text goes as UTF-8. Or a whole message, which is completed by id, publish time and
                ordering key, as far as it has none.

        Returns:
            To how many subscribers it goes. It never waits for them.

        Raises:
            InvalidArgument: there is no such channel, or a name or the message is too long.
            FailedPrecondition: the publisher is closed.
        """
        if isinstance(data, pubsub.PubsubMessage):
            if attributes:
                raise TypeError("a whole message has its own attributes; give none beside it")
            message = pubsub.PubsubMessage()
            message.CopyFrom(data)
        else:
            data = data.encode() if isinstance(data, str) else data
            message = pubsub.PubsubMessage(data=data, attributes=attributes)
        message.ordering_key = key or message.ordering_key
        check_names(channel, message.ordering_key)

        def encode(seq: int) -> bytes:
            message.message_id = message.message_id or str(seq)
            if not message.HasField("publish_time"):
                message.publish_time.FromMilliseconds(int(self._clock.now() * 1000))
            return message.SerializeToString()

        return self.publish_encoded(channel, message.ordering_key, encode)

    def publish_encoded(self, channel: str, key: str, encode: Callable[[int], bytes]) -> int:
        """As `publish`; `encode` makes a serialized PubsubMessage, given the message's number.

        It is called only if somebody is subscribed, and under the lock.
        """
        with self._lock:
            self._check_open()
            return self._hub.publish(channel, key, encode)

    def pass_over(self, count: int) -> None:
        """So many messages were published that nobody is subscribed to."""
        with self._lock:
            self._hub.pass_over(count)

    def publish_failure(self, channel: str, key: str | None, reason: str) -> int:
        """Tell those who are subscribed to this very key that nothing more will come of it.

        That ends their subscription to it. With None the whole channel fails, with all its keys.

        Returns:
            How many subscribers are told. Raises as `publish`.
        """
        check_names(channel, key)
        with self._lock:
            self._check_open()
            return self._hub.publish_failure(channel, key, reason)

    def statistics(self) -> ChannelStatistics:
        """What it holds now."""
        with self._lock:
            return self._hub.statistics()

    def close(self) -> None:
        """Send the subscribers away (UNAVAILABLE), and publish nothing more. Idempotent.

        To be called before the server is stopped, which would else wait for them.
        """
        with self._lock:
            self._closed = True
            self._hub.clear(Unavailable("The publisher is closed."))
            sweeper, self._sweeper = self._sweeper, None
            answerer, self._answerer = self._answerer, None
        for thread in (sweeper, answerer):
            if thread is not None:
                thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for the shells that serve it ----------------------------------------------------------

    def commands(
        self, request: channels.CommandsRequest, owner: Hashable = None
    ) -> channels.CommandsResponse:
        with self._lock:
            self._check_serving()
            return self._hub.commands(request, self._clock.monotonic(), owner)

    def begin_poll(
        self, request: channels.PollRequest, wake: Callable[[Poll], None], owner: Hashable = None
    ) -> Poll:
        """See Hub. `wake` is called by whatever thread publishes, under the lock."""
        with self._lock:
            self._check_serving()
            return self._hub.begin_poll(request, self._clock.monotonic(), wake, owner)

    def finish_poll(self, poll: Poll) -> encoded.EncodedPollResponse:
        with self._lock:
            return self._hub.finish_poll(poll, self._clock.monotonic())

    def withdraw_poll(self, poll: Poll) -> None:
        with self._lock:
            self._hub.withdraw_poll(poll, self._clock.monotonic())

    def unregister(self, request: channels.UnregisterRequest, owner: Hashable = None) -> None:
        with self._lock:
            self._check_serving()
            self._hub.unregister(request.subscriber_id, owner)

    def channel_gone(self, channel: str, reason: str) -> None:
        """See Hub."""
        with self._lock:
            self._hub.channel_gone(channel, reason)

    def forget_all(self, error: RpcError | None = None) -> None:
        """Forget all subscribers; their polls end with nothing, or with `error`."""
        with self._lock:
            self._hub.clear(error)

    @property
    def on_due(self) -> Callable[[float], None]:
        """See Hub. For whoever calls `advance` himself, instead of `add_to`."""
        return self._hub.on_due

    @on_due.setter
    def on_due(self, on_due: Callable[[float], None]) -> None:
        self._hub.on_due = on_due

    def next_due(self) -> float | None:
        return self._hub.next_due()

    def advance(self) -> None:
        with self._lock:
            self._hub.advance(self._clock.monotonic())

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPrecondition("This ChannelPublisher is closed.")

    def _check_serving(self) -> None:
        if self._closed:
            raise Unavailable("The publisher is closed.")


def _new_incarnation() -> int:
    return secrets.randbelow(2**64 - 1) + 1
