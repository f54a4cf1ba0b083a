"""Memory of recent Publish requests, so that a repeated request publishes nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

from pullstream_protocol.clock import Clock

# Seconds for which a request is remembered: as long as clients repeat requests by default.
REMEMBERED_FOR = 600.0

# The most requests to remember. 100,000 need about 25 MB.
MAX_REQUESTS = 100_000


class PublishedRequests:
    """The message IDs of recent requests, by topic and idempotency key.

    It is kept in memory: a request that is repeated after a restart of the broker is published
    again. Used on the broker's event loop only.

    Args:
        clock: The broker's source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By topic and key: the time, the first message ID and the number of IDs. Oldest first.
        self._requests: dict[tuple[str, str], tuple[float, int, int]] = {}

    def ids_of(self, topic: str, key: str) -> list[str] | None:
        """Return the message IDs of an earlier request, or None if there is none.

        Args:
            topic: Full name of the topic.
            key: The idempotency key.
        """
        self._forget_old()
        found = self._requests.get((topic, key))
        if found is None:
            return None
        _, first, count = found
        return [str(number) for number in range(first, first + count)]

    def remember(self, topic: str, key: str, message_ids: Sequence[str]) -> None:
        """Remember the IDs of a request, which the engine numbers without gaps.

        Args:
            topic: Full name of the topic.
            key: The idempotency key.
            message_ids: The IDs; at least one.
        """
        self._requests[topic, key] = self._clock.monotonic(), int(message_ids[0]), len(message_ids)
        if len(self._requests) > MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - REMEMBERED_FOR
        while self._requests:
            name = next(iter(self._requests))
            if self._requests[name][0] > oldest:
                return
            del self._requests[name]
