"""The consumers of a subscription, and the choice of the one to wake for new messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pullstream_protocol.errors import RpcError

from .delivery_state import Consumer, ReadyKeys

# Most Pull calls that wait on one subscription at a time. A subscription can set another number.
MAX_WAITING = 512


class Consumers:
    """The consumers of a subscription, and the ones that found no messages.

    Attributes:
        max_waiting: Maximum number of Pull calls that may wait at a time.
        waiting_pulls: Number of Pull calls that wait now. A call that was answered, cancelled or
            cut off does not count.
    """

    def __init__(self) -> None:
        self.max_waiting = MAX_WAITING
        self.waiting_pulls = 0
        # Dicts, because they keep the order and any of thousands of consumers can leave quickly.
        self._all: dict[Consumer, None] = {}
        # Consumers whose last take was empty, the longest waiting first. A consumer that was woken
        # stays here until it takes a message, so that it keeps its position and its share.
        self._waiting: dict[Consumer, None] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._all)

    def add_consumer(self, consumer: Consumer) -> None:
        """Record that `consumer` has joined the subscription."""
        consumer.is_here = True
        self._all[consumer] = None

    def remove_consumer(self, consumer: Consumer) -> None:
        """Record that `consumer` has left. It no longer waits for messages."""
        consumer.is_here = False
        self._all.pop(consumer, None)
        self.mark_served(consumer)

    def close_all(self, reason: RpcError) -> None:
        """Close every consumer with the error `reason`."""
        for consumer in self._all:
            consumer.closed = reason
            consumer.wake()

    def forget_leases(self) -> None:
        """Take away the messages and keys that consumers hold, because all leases have ended."""
        for consumer in self._all:
            consumer.ready_keys = ReadyKeys()
            consumer.outstanding_messages = consumer.outstanding_bytes = 0

    # ---- waiting consumers ---------------------------------------------------------------------

    def mark_waiting(self, consumer: Consumer) -> None:
        """Record that the last take of `consumer` was empty."""
        consumer.asleep = True
        if consumer not in self._waiting:
            self._waiting[consumer] = None
            self.waiting_pulls += consumer.is_pull

    def mark_served(self, consumer: Consumer) -> None:
        """Record that `consumer` took a message, or that it has left."""
        consumer.asleep = False
        if consumer in self._waiting:
            del self._waiting[consumer]
            self.waiting_pulls -= consumer.is_pull

    def share_of(self, shared: int, consumer: Consumer) -> int:
        """Return how many of `shared` messages `consumer` may take.

        All waiting consumers that have room get equal shares. A consumer that has not waited leaves
        one message for each waiting Pull call: these calls have been woken, but its take may run
        before theirs.
        """
        with_room = (other for other in self._waiting if other is not consumer and other.has_room)
        # More than `shared` others make no difference: then the share is one message.
        others = sum(1 for _ in islice(with_room, shared))
        share = -(-shared // (1 + others))
        return share if consumer in self._waiting else min(share, shared - self.waiting_pulls)

    @property
    def streams(self) -> int:
        """Number of open streaming pulls."""
        return sum(not (consumer.is_pull or consumer.is_push) for consumer in self._all)

    def wake_next(self, shared: int, *, keyed: bool) -> None:
        """Wake the longest waiting consumer with room, if there are messages for it.

        Only one consumer is woken for shared messages. After it has taken its share, its take wakes
        the next consumer if messages are left.

        Args:
            shared: Number of messages that any consumer may take.
            keyed: Whether there may be messages that only one consumer may take.
        """
        if shared:
            for consumer in self._waiting:
                if _wake(consumer):
                    return
        elif keyed:
            # Consumers may have room again for their own keys.
            for consumer in self._waiting:
                if consumer.ready_keys:
                    _wake(consumer)


def _wake(consumer: Consumer) -> bool:
    """Wake `consumer` if it sleeps and has room. Return whether it was woken."""
    if not consumer.asleep or not consumer.has_room:
        return False
    consumer.asleep = False
    consumer.wake()
    return True
