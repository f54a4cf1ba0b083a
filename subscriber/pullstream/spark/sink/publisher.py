"""Publisher of one partition's rows, with batching, concurrent requests and retries."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pullstream.rpc.endpoint import ServerAccess, open_channel, security_of
from pullstream.rpc.request import routing_header
from pullstream.rpc.rpcs import DEFAULT_TIMEOUT, Rpcs, to_error
from pullstream.streaming.ack_requests import TRANSIENT_CODES
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .publish_queue import PublishQueue, PublishRequest

if TYPE_CHECKING:
    from typing_extensions import Self

# Maximum number of concurrent requests.
MAX_IN_FLIGHT = 8

# Maximum size of the waiting and running requests. When it is exceeded, no messages are read until
# some are published.
MAX_QUEUED_BYTES = 32_000_000

# Time for which a request with transient errors is retried, in seconds.
RETRY_FOR = 600.0


class SinkPublisher:
    """Publishes messages to one topic at full speed, in the order of each key.

    Owns a channel and the queue of requests. A single thread calls all methods; gRPC's thread only
    adds finished calls to `_ended`.

    Guarantees: when `publish` returns, the server has confirmed every message. When it raises, the
    `published` messages are confirmed, and unanswered requests may have been published too.
    Messages of a key arrive in the given order; after a retry, messages may repeat from an earlier
    one on.

    Args:
        topic: Full name of the topic.
        access: Endpoint and credentials.
        retry_for: Seconds for which a request is retried before its error is raised.
        clock: Source of time.

    Attributes:
        published: Number of messages that the server has confirmed.
    """

    def __init__(
        self,
        topic: str,
        access: ServerAccess,
        *,
        retry_for: float = RETRY_FOR,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.published: int = 0
        self._topic = topic
        self._retry_for = retry_for
        self._clock = clock
        self._channel = open_channel(access, security_of(access))
        self._call = Rpcs(self._channel).stub("Publish").future
        self._metadata = (routing_header(pubsub.PublishRequest(topic=topic)),)
        self._queue = PublishQueue()
        # Kept until they are done, because grpcio cancels a call whose future is garbage-collected.
        self._calls: dict[Any, PublishRequest] = {}
        # None makes `_await` check the clock again.
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._clock.add_waker(self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.remove_waker(self._wake)
        self._channel.close()

    def publish(self, messages: Iterable[pubsub.PubsubMessage]) -> None:
        """Publish all messages; return when the server has confirmed them.

        Raises:
            RpcError: The server refused a request, or failed for too long.
        """
        add = self._queue.add
        for message in messages:
            if add(message):
                self._send()
            while self._queue.size > MAX_QUEUED_BYTES:
                self._queue.flush()
                self._send()
                self._await()
        self._queue.flush()
        while self._queue.size:
            self._send()
            self._await()

    def _send(self) -> None:
        """Send the requests that may be sent now."""
        while len(self._calls) < MAX_IN_FLIGHT:
            request = self._queue.next_request(self._clock.monotonic())
            if request is None:
                return
            call = self._call(
                pubsub.PublishRequest(topic=self._topic, messages=request.messages),
                timeout=DEFAULT_TIMEOUT,
                metadata=self._metadata,
            )
            self._calls[call] = request
            call.add_done_callback(self._ended.put)

    def _await(self) -> None:
        """Wait until a call has ended and record its result, or until a retry is due."""
        timeout = self._clock.timeout(self._queue.next_due())
        try:
            call = self._ended.get(block=timeout != 0.0, timeout=timeout)
        except queue.Empty:
            return
        if call is None:
            return
        request = self._calls.pop(call)
        error = call.exception()
        if error is None:
            self.published += len(request.messages)
            self._queue.succeeded(request)
        else:
            self._failed(request, to_error(error))

    def _failed(self, request: PublishRequest, error: RpcError) -> None:
        now = self._clock.monotonic()
        began = now if request.failing_since is None else request.failing_since
        if error.grpc_status_code in TRANSIENT_CODES and now - began < self._retry_for:
            self._queue.retry(request, now)
            return
        raise type(error)(
            f"{error.message} (publishing {len(request.messages)} messages to {self._topic}; "
            f"{self.published} messages of the same partition were published before)"
        ) from error

    def _wake(self) -> None:
        self._ended.put(None)
