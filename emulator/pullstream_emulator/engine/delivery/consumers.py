"""The consumers of a subscription, and the choice of the one to wake for new messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from pullstream_protocol.errors import RpcError

from .delivery_state import Consumer, ReadyKeys

# Most Pull calls that wait on one subscription at a time. A subscription can set another number.
MAX_WAITING = 512


class Consumers:
    """The consumers of a subscription, and the ones that found no messages.

    No method but those for all consumers takes time for each consumer: a subscription may have
    thousands of streams.

    Attributes:
        max_waiting: Maximum number of Pull calls that may wait at a time.
        waiting_pulls: Number of Pull calls that wait now. A call that was answered, cancelled or
            cut off does not count.
        streams: Number of open streaming pulls.
    """

    def __init__(self) -> None:
        self.max_waiting = MAX_WAITING
        self.waiting_pulls = 0
        self.streams = 0
        self._all: dict[Consumer, None] = {}
        # Consumers with room whose last take was empty. A consumer that was woken stays here until
        # it takes a message, so that it keeps its share.
        self._waiting: dict[Consumer, None] = {}
        # Those of them that sleep, the longest waiting first; others may be among them.
        self._sleeping: OrderedDict[Consumer, None] = OrderedDict()
        # Consumers without room whose last take was empty.
        self._full: dict[Consumer, None] = {}
        # Sleeping consumers that have got room or a key since the last call of `wake_next`.
        self._changed: dict[Consumer, None] = {}
        # Sleeping consumers that have got room for messages of their keys.
        self._keyed: dict[Consumer, None] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._all)

    def add_consumer(self, consumer: Consumer) -> None:
        """Record that `consumer` has joined the subscription."""
        consumer.is_here = True
        consumer.changed = self._changed
        self._all[consumer] = None
        self.streams += _is_stream(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Record that `consumer` has left. It no longer waits for messages."""
        consumer.is_here = False
        if consumer in self._all:
            del self._all[consumer]
            self.streams -= _is_stream(consumer)
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
            consumer.held.clear()
            consumer.runs.clear()
        self._changed.update(self._full)

    # ---- waiting consumers ---------------------------------------------------------------------

    def mark_waiting(self, consumer: Consumer) -> None:
        """Record that the last take of `consumer` was empty."""
        consumer.asleep = True
        if consumer not in self._waiting and consumer not in self._full:
            self.waiting_pulls += consumer.is_pull
        if not consumer.has_room:
            self._waiting.pop(consumer, None)
            self._sleeping.pop(consumer, None)
            self._full[consumer] = None
            return
        self._full.pop(consumer, None)
        was_woken = consumer in self._waiting and consumer not in self._sleeping
        self._waiting[consumer] = None
        self._sleeping[consumer] = None
        if was_woken:
            # Others were faster. It was the first one, and is again.
            self._sleeping.move_to_end(consumer, last=False)
        if consumer.ready_keys:
            self._keyed[consumer] = None

    def mark_served(self, consumer: Consumer) -> None:
        """Record that `consumer` took a message, or that it has left."""
        consumer.asleep = False
        if consumer in self._waiting or consumer in self._full:
            self.waiting_pulls -= consumer.is_pull
            self._waiting.pop(consumer, None)
            self._sleeping.pop(consumer, None)
            self._full.pop(consumer, None)
            self._keyed.pop(consumer, None)

    def share_of(self, shared: int, consumer: Consumer) -> int:
        """Return how many of `shared` messages `consumer` may take.

        All waiting consumers that have room get equal shares. A consumer that has not waited leaves
        one message for each waiting Pull call: these calls have been woken, but its take may run
        before theirs.
        """
        waits = consumer in self._waiting
        share = -(-shared // (1 + len(self._waiting) - waits))
        return share if waits else min(share, shared - self.waiting_pulls)

    def wake_next(self, shared: int) -> None:
        """Wake the longest waiting consumer with room, if there are messages for it.

        Only one consumer is woken for shared messages. After it has taken its share, its take wakes
        the next consumer if messages are left. Without shared messages, the consumers that have
        room for messages of their keys are woken.

        Args:
            shared: Number of messages that any consumer may take.
        """
        self._see_changes()
        if shared:
            while self._sleeping:
                if _wake(self._sleeping.popitem(last=False)[0]):
                    return
            return
        while self._keyed:
            consumer = self._keyed.popitem()[0]
            if consumer.ready_keys:
                _wake(consumer)

    def _see_changes(self) -> None:
        """Let consumers that have got room or keys wait for messages."""
        for consumer in self._changed:
            if not consumer.asleep or not consumer.has_room:
                continue
            if consumer in self._full:
                del self._full[consumer]
                self._waiting[consumer] = self._sleeping[consumer] = None
            if consumer.ready_keys:
                self._keyed[consumer] = None
        self._changed.clear()


def _is_stream(consumer: Consumer) -> bool:
    return not (consumer.is_pull or consumer.is_push)


def _wake(consumer: Consumer) -> bool:
    """Wake `consumer` if it sleeps. Return whether it was woken."""
    if not consumer.asleep:
        return False
    consumer.asleep = False
    consumer.wake()
    return True
