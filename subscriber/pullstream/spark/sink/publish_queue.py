"""Rules of publishing: grouping messages into requests, and the order of requests.

No threads and no gRPC: messages come in, requests go out, and answers come back.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

from pullstream.runtime.retry_clock import Backoff
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# The server allows 1000 messages and 10,000,000 bytes per request, including topic and framing.
MAX_MESSAGES = 1000
MAX_BYTES = 9_000_000

_FRAMING_BYTES = 6
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


@dataclass
class PublishRequest:
    """Messages with the same ordering key, or without a key, that are sent together.

    Attributes:
        key: The ordering key; empty if there is none.
        messages: The messages.
        size: Size of the messages with framing, in bytes.
        failing_since: Monotonic time of the first failure. None: no attempt has failed.
        backoff: Pauses between the attempts.
    """

    key: str
    messages: list[pubsub.PubsubMessage] = field(default_factory=list)
    size: int = 0
    failing_since: float | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE, _LONGEST_PAUSE))


class PublishQueue:
    """Messages that wait to be published, grouped into requests. Not thread-safe.

    The server requires all messages of a request to have the same ordering key, and keeps the order
    in which requests arrive. So a key has at most one request in flight, and a retried request
    precedes all later ones of its key. Messages without a key have no order.

    Attributes:
        size: Size of all messages that are not confirmed, in bytes.
    """

    def __init__(self) -> None:
        self.size: int = 0
        # By key: the request that accepts more messages.
        self._open: dict[str, PublishRequest] = {}
        self._ready: deque[PublishRequest] = deque()
        # By key, if it has a request in flight: the later requests of the key.
        self._behind: dict[str, deque[PublishRequest]] = {}
        self._retries: list[tuple[float, int, PublishRequest]] = []
        self._numbers = itertools.count()

    def add(self, message: pubsub.PubsubMessage) -> bool:
        """Add a message after all others of its key; return whether that completed a request."""
        key = message.ordering_key
        size = message.ByteSize() + _FRAMING_BYTES
        closed = len(self._ready)
        request = self._open.get(key)
        if request is not None and request.size + size > MAX_BYTES:
            self._close(request)
            request = None
        if request is None:
            request = self._open[key] = PublishRequest(key)
        request.messages.append(message)
        request.size += size
        self.size += size
        if len(request.messages) == MAX_MESSAGES:
            self._close(request)
        return len(self._ready) > closed

    def flush(self) -> None:
        """Make all waiting messages ready to be sent, in requests that are not full."""
        for request in list(self._open.values()):
            self._close(request)

    def next_request(self, now: float) -> PublishRequest | None:
        """Return the next request to send, or None. Call `succeeded` or `retry` afterwards."""
        if self._retries and self._retries[0][0] <= now:
            return heapq.heappop(self._retries)[2]
        while self._ready:
            request = self._ready.popleft()
            if not request.key:
                return request
            if (behind := self._behind.get(request.key)) is None:
                self._behind[request.key] = deque()
                return request
            behind.append(request)
        return None

    def next_due(self) -> float | None:
        """Return when the next retry is due, or None if there is none."""
        return self._retries[0][0] if self._retries else None

    def succeeded(self, request: PublishRequest) -> None:
        """Remove a confirmed request; the key's next request becomes ready."""
        self.size -= request.size
        if request.key and (behind := self._behind.pop(request.key)):
            # They go to the front, because they are older than requests that are completed later.
            self._ready.extendleft(reversed(behind))

    def retry(self, request: PublishRequest, now: float) -> None:
        """Send the request again after a pause. Later requests of its key wait as well."""
        if request.failing_since is None:
            request.failing_since = now
        due = now + request.backoff.next_pause()
        heapq.heappush(self._retries, (due, next(self._numbers), request))

    def _close(self, request: PublishRequest) -> None:
        del self._open[request.key]
        self._ready.append(request)
