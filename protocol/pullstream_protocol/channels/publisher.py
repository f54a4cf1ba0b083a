"""ChannelPublisher: publishes messages on keyed channels from any gRPC server."""

from __future__ import annotations

import weakref
from collections.abc import Container
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.due_thread import DueThread
from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .handlers import aio_handlers
from .limits import ChannelLimits, check_names
from .poll_responder import PollResponder
from .shared_core import SharedChannelCore
from .statistics import ChannelStatistics
from .thread_handlers import thread_handlers

if TYPE_CHECKING:
    from typing_extensions import Self


class ChannelPublisher:
    """Publishes messages on keyed channels directly to its subscribers, without a broker.

        publisher = ChannelPublisher()
        publisher.add_to(server)
        publisher.publish("jobs", "job-7", b"done")

    Subscribers use `SubscriberClient(endpoint=...).listen()`. A message that is published while it
    has no subscriber is lost. Each subscriber has a mailbox in the publisher. A message leaves the
    mailbox when the subscriber has acknowledged it. All keys of a subscriber together cost one long
    poll.

    Any thread may call any method. The only user code that runs under the lock of the publisher is
    the `in` operator of `channels`.

    Args:
        channels: The allowed channel names: any object that supports `in`. None allows all names.
        limits: See ChannelLimits.
        clock: The clock of the failure detector.
    """

    def __init__(
        self,
        channels: Container[str] | None = None,
        limits: ChannelLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._core = SharedChannelCore(channels, limits, clock=clock)
        core = weakref.ref(self._core)

        def next_due() -> float | None:
            present = core()
            return None if present is None else present.next_due()

        def advance() -> None:
            present = core()
            if present is not None:
                present.advance()

        self._next_due, self._advance = next_due, advance
        # Guards the two threads below.
        self._lock = CallLock()
        self._expiry_thread: DueThread | None = None
        self._answerer: PollResponder | None = None
        self._closed = False

    def add_to(self, server: grpc.Server | grpc.aio.Server) -> None:
        """Add the Channels service to a server that has not been started yet.

        On both kinds of server, a waiting subscriber takes a call but no thread; ten thousand of
        them are common. On a `grpc.server` they take less memory than on a `grpc.aio` one. But if
        an interceptor of a `grpc.server` calls the handler of Poll instead of passing it on, each
        waiting subscriber takes one of the server's threads.

        Two threads run until `close`: "pullstream-channel-expiry" drops subscribers that are gone,
        and "pullstream-answers" answers the polls on a `grpc.server`.
        """
        with self._lock.once:
            if self._closed:
                raise FailedPrecondition("This ChannelPublisher is closed.")
            if isinstance(server, grpc.aio.Server):
                handlers = aio_handlers(self._core)
            else:
                self._answerer = self._answerer or self._start_answerer()
                handlers = thread_handlers(self._core, self._answerer)
            server.add_generic_rpc_handlers([handlers])
            if self._expiry_thread is None:
                self._expiry_thread = self._start_expiry_thread()

    def publish(
        self,
        channel: str,
        key: str | None,
        data: bytes | str | pubsub.PubsubMessage,
        **attributes: str,
    ) -> int:
        """Send a message to the subscribers of `key` and of the whole channel. Never waits.

        Args:
            channel: The name of the channel.
            key: The ordering key. None or "": the message has no key.
            data: The data (text is encoded as UTF-8), or a PubsubMessage. The message's ID, publish
                time and ordering key are set if they are missing.
            **attributes: The attributes of the message. Not allowed with a PubsubMessage.

        Returns:
            The number of subscribers that get the message.

        Raises:
            InvalidArgument: The channel does not exist, or a name or the message is too long.
            FailedPrecondition: The publisher is closed.
        """
        if isinstance(data, pubsub.PubsubMessage):
            if attributes:
                raise TypeError(
                    "attributes cannot be given together with a PubsubMessage; "
                    "set them in the message"
                )
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

        return self._core.publish_encoded(channel, message.ordering_key, encode)

    def publish_failure(self, channel: str, key: str | None, reason: str) -> int:
        """End the subscriptions to a key or a channel, and report the reason to the subscribers.

        Subscriptions to the whole channel continue when one of its keys fails.

        Args:
            channel: The name of the channel.
            key: The ordering key. None: the whole channel fails, with all its keys.
            reason: The text for the subscribers.

        Returns:
            The number of subscribers that receive the failure.

        Raises:
            InvalidArgument: The channel does not exist, or a name is too long.
            FailedPrecondition: The publisher is closed.
        """
        check_names(channel, key)
        return self._core.publish_failure(channel, key, reason)

    def statistics(self) -> ChannelStatistics:
        """Return the current statistics."""
        return self._core.statistics()

    def close(self) -> None:
        """End all polls with UNAVAILABLE, and publish nothing more. Idempotent.

        Call it before the server is stopped. Otherwise the server waits for the polls.
        """
        with self._lock.once:
            self._closed = True
            self._core.close()
            expiry_thread, self._expiry_thread = self._expiry_thread, None
            answerer, self._answerer = self._answerer, None
        self._clock.remove_waker(self._advance)
        for thread in (expiry_thread, answerer):
            if thread is not None:
                thread.stop()

    # The threads do not hold the core: they end when the publisher and the server are collected.
    # The garbage collector may run anywhere, so it only sends them an event.

    def _start_answerer(self) -> PollResponder:
        core: SharedChannelCore = weakref.proxy(self._core)
        answerer = PollResponder(
            lambda poll: core.finish_poll(poll), lambda poll: core.withdraw_poll(poll)
        )
        weakref.finalize(self._core, answerer.end).atexit = False
        return answerer

    def _start_expiry_thread(self) -> DueThread:
        expiry_thread = DueThread(
            self._clock, self._next_due, self._advance, name="pullstream-channel-expiry"
        )
        expiry_thread.start()
        # When a test advances a ManualClock, the due work is done before `advance` returns.
        self._clock.add_waker(self._advance)
        self._core.on_due = lambda due: expiry_thread.wake()
        weakref.finalize(self._core, expiry_thread.post, expiry_thread.stop).atexit = False
        return expiry_thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
