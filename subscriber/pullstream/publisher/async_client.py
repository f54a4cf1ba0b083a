"""AsyncPublisherClient: the publisher for asyncio programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from pullstream.hooks import PublisherHooks
from pullstream.rpc.connecting_client import ConnectingClient
from pullstream.rpc.endpoint import ClientArguments, ConnectionArguments
from pullstream.runtime.thread_start import run_on_new_thread
from pullstream.statistics import PublisherStatistics
from pullstream_protocol import names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .client import OneMessage, PublisherClient
from .outcome import PublishFuture, PublishManyFuture
from .settings import DEFAULT, BatchSettings, PublishDefault, PublisherOptions

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack


class _NonBlockingClient(PublisherClient):
    """A client whose `publish` never waits for room: the message is sent when there is room."""

    _may_block = False


class AsyncPublisherClient(ConnectingClient):
    """Publishes messages from an event loop, with the same batches, keys and retries.

        async with AsyncPublisherClient() as publisher:
            message_id = await publisher.publish("projects/p/topics/t", b"data")

    Futures may be awaited on any event loop, by any number of tasks. If such a task is cancelled,
    the message is published all the same.
    """

    def __init__(
        self,
        batch_settings: BatchSettings | tuple[Any, ...] = (),
        publisher_options: PublisherOptions | tuple[Any, ...] = (),
        *,
        hooks: PublisherHooks | Sequence[PublisherHooks] = (),
        **connection: Unpack[ClientArguments],
    ) -> None:
        """Create a client; see `PublisherClient` for the arguments and errors.

        Args:
            batch_settings: When a batch of messages is sent.
            publisher_options: Ordering, flow control, retries, hedging and compression.
            hooks: One PublisherHooks object or several.
            **connection: The arguments of `SubscriberClient`. `channel` is a `grpc.Channel`, not
                one of grpc.aio.
        """
        self._settings = batch_settings
        self._options = publisher_options
        self._hooks = hooks
        super().__init__(**connection)

    def _connect(self, channel: grpc.Channel | None, arguments: ConnectionArguments) -> None:
        self._client = _NonBlockingClient(
            self._settings, self._options, hooks=self._hooks, channel=channel, **arguments
        )

    @property
    def admin(self) -> PublisherClient:
        """The PublisherClient that this client uses, for calls that manage topics.

        Its calls block. Run them in a thread: `await asyncio.to_thread(client.admin.create_topic,
        name=topic)`.
        """
        return self._client

    @staticmethod
    def topic_path(project: str, topic: str) -> str:
        """Return `projects/PROJECT/topics/TOPIC`."""
        return names.topic_path(project, topic)

    def publish(
        self,
        topic: str,
        data: bytes | pubsub.PubsubMessage | Any,
        ordering_key: str = "",
        retry: Any = DEFAULT,
        timeout: float | PublishDefault | Any = DEFAULT,
        **attributes: str | bytes,
    ) -> PublishFuture:
        """Publish a message; await the result for the message ID.

        See `PublisherClient.publish`. This method never blocks: with `LimitExceededBehavior.BLOCK`,
        the message is sent when there is room, and the await takes as long.

        Args:
            topic: Full name, `projects/P/topics/T`.
            data: The data, or a PubsubMessage.
            ordering_key: Messages with the same key are delivered in the order of these calls.
            retry: A `google.api_core.retry.Retry`, or None for a single attempt.
            timeout: Seconds for each attempt; None: no limit.
            **attributes: The attributes.
        """
        return self._client.publish(topic, data, ordering_key, retry, timeout, **attributes)

    def publish_many(
        self,
        topic: str,
        messages: Iterable[OneMessage],
        *,
        retry: Any = DEFAULT,
        timeout: float | PublishDefault | Any = DEFAULT,
    ) -> PublishManyFuture:
        """Publish many messages; await the result for the list of IDs.

        See `PublisherClient.publish_many`.

        Args:
            topic: Full name, `projects/P/topics/T`.
            messages: For each message its data, or a PubsubMessage.
            retry: See `publish`.
            timeout: See `publish`.
        """
        return self._client.publish_many(topic, messages, retry=retry, timeout=timeout)

    def resume_publish(self, topic: str, ordering_key: str) -> None:
        """Accept messages of a paused ordering key again; see `PublisherClient.resume_publish`.

        Args:
            topic: Full name, `projects/P/topics/T`.
            ordering_key: The key.
        """
        self._client.resume_publish(topic, ordering_key)

    def statistics(self) -> PublisherStatistics:
        """Return the counters and the present load. Works at any time."""
        return self._client.statistics()

    async def close(self, timeout: float | None = None) -> None:
        """Send all messages and close the connection; see `PublisherClient.close`.

        Args:
            timeout: Seconds to wait for the results. None (default): until the retries give up.
        """
        await run_on_new_thread(lambda: self._client.close(timeout), "pullstream-close")

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
