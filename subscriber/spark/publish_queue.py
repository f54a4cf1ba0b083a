"""The rules of publishing many messages: which go into one request, and what may be sent when.

No thread, no gRPC: messages come in, requests come out, answers come back.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

from protocol.messages import pubsub_pb2 as pubsub
from subscriber.streaming.backoff import Backoff

# The server's limits are 1000 messages and 10,000,000 bytes a request; topic and framing need room.
MAX_MESSAGES = 1000
MAX_BYTES = 9_000_000

_FRAMING_BYTES = 6
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


@dataclass
class Request:
    """Messages of one ordering key, or without one, that go out together.

    failing_since: when an attempt first failed; None: none has.
    """

    key: str
    messages: list[pubsub.PubsubMessage] = field(default_factory=list)
    size: int = 0
    failing_since: float | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE, _LONGEST_PAUSE))


class PublishQueue:
    """What waits to be published, in which requests, and which of them may be sent now.

    Not thread-safe. The server wants all messages of a request to have the same ordering key, and
    keeps the order in which requests arrive. So a key has at most one request under way, and one
    that is tried again goes before all that came after it. Messages without a key are bound by
    nothing.
    """

    def __init__(self) -> None:
        self.size: int = 0
        # By key: the request that takes more messages.
        self._open: dict[str, Request] = {}
        self._ready: deque[Request] = deque()
        # By key, when that has a request under way: those that come after it.
        self._behind: dict[str, deque[Request]] = {}
        self._retries: list[tuple[float, int, Request]] = []
        self._numbers = itertools.count()

    def add(self, message: pubsub.PubsubMessage) -> bool:
        """Put a message behind all others of its key; returns whether that filled a request."""
        key = message.ordering_key
        size = message.ByteSize() + _FRAMING_BYTES
        closed = len(self._ready)
        request = self._open.get(key)
        if request is not None and request.size + size > MAX_BYTES:
            self._close(request)
            request = None
        if request is None:
            request = self._open[key] = Request(key)
        request.messages.append(message)
        request.size += size
        self.size += size
        if len(request.messages) == MAX_MESSAGES:
            self._close(request)
        return len(self._ready) > closed

    def flush(self) -> None:
        """Let all that waits be sent, in requests that are not full."""
        for request in list(self._open.values()):
            self._close(request)

    def next_request(self, now: float) -> Request | None:
        """The next request to send; None if there is none now. `succeeded` or `retry` follows."""
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
        """When the next retry is due; None if nothing is to be tried again."""
        return self._retries[0][0] if self._retries else None

    def succeeded(self, request: Request) -> None:
        """The server has the messages: the key's next request may go."""
        self.size -= request.size
        if request.key and (behind := self._behind.pop(request.key)):
            # First in the queue: they are older than whatever is closed from now on.
            self._ready.extendleft(reversed(behind))

    def retry(self, request: Request, now: float) -> None:
        """Send the request again after a pause. What is behind it waits as well."""
        if request.failing_since is None:
            request.failing_since = now
        due = now + request.backoff.next_pause()
        heapq.heappush(self._retries, (due, next(self._numbers), request))

    def _close(self, request: Request) -> None:
        del self._open[request.key]
        self._ready.append(request)
