"""Memory of recent Publish requests, so that a repeated request publishes nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import ref

from pullstream_emulator.engine.resources.topic import Topic
from pullstream_protocol.clock import Clock

# Seconds for which a request is remembered: as long as clients repeat requests by default.
REMEMBERED_FOR = 600.0

# The most requests to remember. 100,000 need about 25 MB.
MAX_REQUESTS = 100_000


class _Published(NamedTuple):
    """A request that was published.

    Attributes:
        topic: The topic. A topic that is created again with the same name is another one.
        at: The monotonic time of the publish.
        first: The first message ID.
        number: Number of message IDs.
    """

    topic: ref[Topic]
    at: float
    first: int
    number: int


class PublishedRequests:
    """The message IDs of recent requests, by topic and idempotency key.

    It is kept in memory: a request that is repeated after a restart of the broker is published
    again. The requests of a deleted topic do not count for a topic that is created again with the
    same name. Used on the broker's event loop only.

    Args:
        clock: The broker's source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the topic's name and the key, oldest first.
        self._requests: dict[tuple[str, str], _Published] = {}

    def ids_of(self, topic: Topic, key: str) -> list[str] | None:
        """Return the message IDs of an earlier request, or None if there is none.

        Args:
            topic: The topic.
            key: The idempotency key.
        """
        self._forget_old()
        found = self._requests.get((topic.config.name, key))
        if found is None or found.topic() is not topic:
            return None
        return [str(number) for number in range(found.first, found.first + found.number)]

    def remember(self, topic: Topic, key: str, message_ids: Sequence[str]) -> None:
        """Remember the IDs of a request, which the engine numbers without gaps.

        Args:
            topic: The topic.
            key: The idempotency key.
            message_ids: The IDs; at least one.
        """
        name = topic.config.name, key
        # A request of an earlier topic with this name must not stay at its older position.
        self._requests.pop(name, None)
        first, number = int(message_ids[0]), len(message_ids)
        self._requests[name] = _Published(ref(topic), self._clock.monotonic(), first, number)
        if len(self._requests) > MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - REMEMBERED_FOR
        while self._requests:
            name = next(iter(self._requests))
            if self._requests[name].at > oldest:
                return
            del self._requests[name]
