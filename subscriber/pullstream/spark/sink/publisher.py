"""Publisher of one partition's rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from pullstream.hooks import PublisherHooks
from pullstream.publisher.outcome import PublishManyFuture
from pullstream.publisher.sender import PublishSender
from pullstream.publisher.settings import BatchSettings, PublisherOptions, PublishPolicy
from pullstream.rpc.channel_pool import ChannelPool
from pullstream.rpc.endpoint import ServerAccess, security_of
from pullstream.rpc.rpcs import Rpcs
from pullstream.runtime.process import CHECK_EVERY
from pullstream_protocol.errors import RpcError, restated

if TYPE_CHECKING:
    from typing_extensions import Self

# The most bytes without confirmation. When it is exceeded, no rows are read until some are
# confirmed.
MAX_UNCONFIRMED_BYTES = 32_000_000

# Time for which a request with transient errors is retried, in seconds.
RETRY_FOR = 600.0


class SinkPublisher:
    """Publishes encoded messages to one topic at full speed, in the order of each key.

    Owns a connection and a PublishSender. A single thread calls all methods.

    Guarantees: when `publish` returns, the server has confirmed every message. When it raises, the
    `published` messages are confirmed, and unanswered requests may have been published too.
    Messages of a key arrive in the given order; after a retry, messages may repeat from an earlier
    one on.

    Args:
        topic: Full name of the topic.
        access: Endpoint and credentials.
        retry_for: Seconds for which a request is retried before its error is raised.
    """

    def __init__(self, topic: str, access: ServerAccess, *, retry_for: float = RETRY_FOR) -> None:
        self._topic = topic
        self._policy = PublishPolicy(longest_pause=10.0, factor=2.0, give_up_after=retry_for)
        self._connections = ChannelPool(access, security_of(access))
        self._failure = _FirstFailure()
        self._sender = PublishSender(
            Rpcs(self._connections.open(), replace=self._connections.replace),
            BatchSettings(),
            PublisherOptions(enable_message_ordering=True),
            (self._failure,),
        )
        # Requests without confirmation, oldest first, with their bytes.
        self._unconfirmed: deque[tuple[PublishManyFuture, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        # After an error the task fails, and unanswered requests do not matter.
        self._sender.close(None if error_type is None else 0.0)
        self._connections.close_all()

    @property
    def published(self) -> int:
        """Number of messages that the server has confirmed."""
        return self._sender.statistics().published

    def publish(self, batches: Iterable[Mapping[str, Sequence[bytes]]]) -> None:
        """Publish all messages; return when the server has confirmed them.

        Args:
            batches: For each batch of rows the encoded messages by ordering key, "" for none.

        Raises:
            RpcError: The server refused a request, or failed for too long.
        """
        unconfirmed_bytes = 0
        for batch in batches:
            size = sum(len(entry) for entries in batch.values() for entry in entries)
            self._unconfirmed.append((self._begin(batch), size))
            unconfirmed_bytes += size
            while unconfirmed_bytes > MAX_UNCONFIRMED_BYTES:
                unconfirmed_bytes -= self._confirm_oldest()
        while self._unconfirmed:
            self._confirm_oldest()

    def _begin(self, batch: Mapping[str, Sequence[bytes]]) -> PublishManyFuture:
        groups: dict[str, tuple[Sequence[bytes], range]] = {}
        total = 0
        for key, entries in batch.items():
            groups[key] = entries, range(total, total + len(entries))
            total += len(entries)
        return self._sender.publish_many(self._topic, groups, total, self._policy)

    def _confirm_oldest(self) -> int:
        """Wait until the oldest request is confirmed, and return its bytes."""
        future, size = self._unconfirmed.popleft()
        while not future.done():
            self._failure.raise_if_any(self._topic, self.published)
            try:
                # Another request may fail meanwhile.
                future.exception(CHECK_EVERY)
            except FutureTimeoutError:
                continue
        # The hooks are called before the future is resolved.
        self._failure.raise_if_any(self._topic, self.published)
        return size


class _FirstFailure(PublisherHooks):
    """Remembers the first error, which fails the task without waiting for other requests."""

    def __init__(self) -> None:
        self._first: tuple[int, BaseException] | None = None

    def failed(self, topic: str, messages: int, error: BaseException) -> None:
        self._first = self._first or (messages, error)

    def raise_if_any(self, topic: str, published: int) -> None:
        if self._first is None:
            return
        messages, error = self._first
        if not isinstance(error, RpcError):
            raise error
        raise restated(
            error,
            f"{error.message} (publishing {messages} messages to {topic}; {published} messages of "
            "the same partition were published before)",
        ) from error
