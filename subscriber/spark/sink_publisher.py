"""Publishes the rows of one partition: batched, several requests under way, tried again."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import RpcError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.connection import locate, open_channel, security_of
from subscriber.request import routing_header
from subscriber.rpc import DEFAULT_TIMEOUT, Rpcs, to_error
from subscriber.streaming.verdicts import TRANSIENT_CODES

from .publish_queue import PublishQueue, Request

if TYPE_CHECKING:
    from typing_extensions import Self

# Requests under way at a time.
MAX_IN_FLIGHT = 8

# What may wait or be under way; more is not taken in before some of it has been published.
MAX_QUEUED_BYTES = 32_000_000

# How long a request that fails for passing reasons is tried again, in seconds.
RETRY_FOR = 600.0


class SinkPublisher:
    """Publishes messages to one topic, as fast as it goes, in the order of each key.

    Owns a channel and the queue of requests. One thread calls everything; gRPC's own thread only
    puts calls that have ended into `_ended`.

    Guarantees: when `publish` returns the server has confirmed every message. When it raises, the
    `published` ones are there all the same, and requests without an answer may be. Messages of a
    key arrive in the order in which they were given, or once more from an earlier one on.

    Args:
        topic: full name.
        endpoint: as of every client, and as there credentials come from the environment.
        retry_for: seconds for which a request is tried again before its error is raised.
    """

    def __init__(
        self,
        topic: str,
        *,
        endpoint: str | None = None,
        retry_for: float = RETRY_FOR,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.published: int = 0
        self._topic = topic
        self._retry_for = retry_for
        self._clock = clock
        target = locate(endpoint=endpoint)
        self._channel = open_channel(target, security_of(target))
        self._call = Rpcs(self._channel).stub("Publish").future
        self._metadata = (routing_header(pubsub.PublishRequest(topic=topic)),)
        self._queue = PublishQueue()
        # Kept until they are done: grpcio cancels a call whose future is collected.
        self._calls: dict[Any, Request] = {}
        # None makes `_await` look at the clock again.
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._clock.add_waker(self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.remove_waker(self._wake)
        self._channel.close()

    def publish(self, messages: Iterable[pubsub.PubsubMessage]) -> None:
        """Publish all of `messages`, and return when that is done.

        Raises:
            RpcError: the server refused a request, or failed for too long.
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
        """Send what may be sent now."""
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
        """Wait until a call has ended, and take note of how; or until a retry is due."""
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

    def _failed(self, request: Request, error: RpcError) -> None:
        now = self._clock.monotonic()
        began = now if request.failing_since is None else request.failing_since
        if error.grpc_status_code in TRANSIENT_CODES and now - began < self._retry_for:
            self._queue.retry(request, now)
            return
        raise type(error)(
            f"{error.message} (publishing {len(request.messages)} messages to {self._topic}; "
            f"{self.published} of the same partition had been published)"
        ) from error

    def _wake(self) -> None:
        self._ended.put(None)
