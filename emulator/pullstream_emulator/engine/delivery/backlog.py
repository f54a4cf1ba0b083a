"""Queues of the undelivered messages of one subscription, and the choice of the next ones.

Three kinds of queues are served in turn: new messages, messages to redeliver, and the keys that
only one consumer may take. So a poison message cannot starve other messages, and new messages
cannot starve a redelivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pullstream_emulator.engine.record import Record
from pullstream_protocol.due_queue import DueQueue

from .delivery_state import Consumer, Delivery, KeyQueue, ReadyKeys

# Most bytes of messages in one response. Official clients keep gRPC's default limit of 4 MiB when
# they talk to an emulator. Ack IDs and framing need the rest.
MAX_RESPONSE_BYTES = 3_500_000

# For this many seconds, only the consumer that nacked a message of a key may take the key again.
# Such a consumer may hold later messages of the key until it sees the failed one again. If the key
# moved to another consumer, the first one could not know the outcome of the failed message.
RESERVED_FOR = 1.0

# Up to this many settled entries are left in the queues.
_FEW = 64

Item: TypeAlias = Delivery | KeyQueue
Queue: TypeAlias = deque[Item] | ReadyKeys


class Backlog:
    """The queues of one subscription: single messages, and keys with a message to deliver.

    Attributes:
        key_queues: Every key with an unfinished message, including the keys that are in no queue.
        acked: Number of acknowledged messages behind an unfinished message of their key.
    """

    def __init__(self) -> None:
        self.key_queues: dict[str, KeyQueue] = {}
        self.acked = 0
        self._ready: deque[Item] = deque()
        self._again: deque[Item] = deque()
        # Number of entries of these two queues that are settled and are skipped.
        self._settled = 0
        # Messages and keys that wait for a time.
        self._delayed: DueQueue[Item] = DueQueue()
        self._turn = 0

    # ---- in ------------------------------------------------------------------------------------

    def add_new(self, records: Iterable[Record], *, ordered: bool) -> list[Delivery]:
        """Add new messages, in the order of publishing. Return their deliveries."""
        if not ordered:
            deliveries = [Delivery(record, None) for record in records]
            self._ready.extend(deliveries)
            return deliveries
        deliveries = []
        for record in records:
            if record.ordering_key:
                key_queue = self.key_queue(record.ordering_key)
                delivery = Delivery(record, key_queue)
                key_queue.waiting.append(delivery)
                self._queue(key_queue, self._ready)
            else:
                delivery = Delivery(record, None)
                self._ready.append(delivery)
            deliveries.append(delivery)
        return deliveries

    def key_queue(self, key: str) -> KeyQueue:
        """Return the queue of an ordering key. Create it if the key has no unfinished message."""
        key_queue = self.key_queues.get(key)
        if key_queue is None:
            key_queue = self.key_queues[key] = KeyQueue(key)
        return key_queue

    def requeue(self, delivery: Delivery, due: float, now: float) -> None:
        """Queue a message without a key for redelivery.

        Args:
            delivery: The message.
            due: The earliest time of the redelivery, on the monotonic clock.
            now: The present time, on the same clock.
        """
        if due > now:
            self._delayed.schedule(delivery, due)
        else:
            self._again.append(delivery)

    def requeue_key(
        self, key_queue: KeyQueue, holder: Consumer | None, *, failed: bool, now: float
    ) -> None:
        """Move a key to the right queue after one of its leases has ended.

        Args:
            key_queue: The queue of the key.
            holder: The consumer that held the lease; None if the key had no holder.
            failed: Whether the lease ended without an acknowledgement.
            now: The present time, on the monotonic clock.
        """
        acked = key_queue.acked
        self.acked += acked - key_queue.counted_acked
        key_queue.counted_acked = acked
        if key_queue.queued and holder is not None and (failed or key_queue.holder is not holder):
            holder.ready_keys.remove(key_queue)
            key_queue.queued = False
        if key_queue.finished:
            del self.key_queues[key_queue.key]
        elif not failed:
            self._queue(key_queue, self._ready)
        elif key_queue.deliverable:
            if key_queue.resume_at > now:
                key_queue.delayed = True
                self._delayed.schedule(key_queue, key_queue.resume_at)
            else:
                self._queue_again(key_queue, now)

    def _queue_again(self, key_queue: KeyQueue, now: float) -> None:
        """Queue a key for redelivery, to its holder or to any consumer."""
        if key_queue.holder is not None and not key_queue.is_leased:
            if key_queue.holder.is_here and key_queue.holder.has_room:
                key_queue.reserved_until = now + RESERVED_FOR
                self._delayed.schedule(key_queue, key_queue.reserved_until)
            else:
                key_queue.release()
        self._queue(key_queue, self._again)

    def release_reserved(self, consumer: Consumer) -> None:
        """Let other consumers take the keys that were reserved for `consumer`, which leaves."""
        for key_queue in consumer.ready_keys.unleased():
            self._release(key_queue)

    def _release(self, key_queue: KeyQueue) -> None:
        if key_queue.queued and key_queue.holder is not None and not key_queue.is_leased:
            key_queue.holder.ready_keys.remove(key_queue)
            key_queue.release()
            key_queue.queued = False
            self._queue(key_queue, self._again)

    def _queue(self, key_queue: KeyQueue, queue: deque[Item]) -> None:
        """Make sure that a key with a message to deliver is in exactly one queue."""
        if key_queue.queued or not key_queue.deliverable:
            return
        key_queue.queued = True
        if key_queue.holder is None:
            queue.append(key_queue)
        else:
            key_queue.holder.add_key(key_queue)

    def advance(self, now: float) -> None:
        """Queue the messages and keys whose wait is over."""
        for item in self._delayed.pop_due(now):
            if not isinstance(item, KeyQueue):
                self._again.append(item)
            elif not item.delayed:
                if item.reserved_until <= now:
                    self._release(item)
            elif item.resume_at > now:
                # An earlier message of the key failed while the key waited.
                self._delayed.schedule(item, item.resume_at)
            else:
                item.delayed = False
                self._queue_again(item, now)

    def resumes_at(self, delivery: Delivery) -> float | None:
        """Return the monotonic time before which a waiting message is not redelivered, if any."""
        key_queue = delivery.key_queue
        if key_queue is None:
            return self._delayed.due_of(delivery)
        return key_queue.resume_at if key_queue.delayed else None

    @property
    def delayed(self) -> int:
        """Number of messages and keys that wait for a retry delay or a reservation."""
        return len(self._delayed)

    def next_due(self) -> float | None:
        """Return the earliest monotonic time at which a backoff or a reservation may end."""
        return self._delayed.next_due()

    # ---- out -----------------------------------------------------------------------------------

    @property
    def shared(self) -> int:
        """Messages and keys that any consumer may take."""
        return len(self._ready) + len(self._again) - self._settled

    @property
    def is_idle(self) -> bool:
        """Whether no message can be taken, and no ordering key has an unfinished message."""
        return not (self._ready or self._again or self.key_queues)

    @property
    def fresh(self) -> int:
        """Messages and keys that any consumer may take, without those for redelivery."""
        return len(self._ready)

    def take_next(self, consumer: Consumer, limit: int, share: int) -> list[Delivery]:
        """Take the next messages for one consumer, as far as it has room.

        Args:
            consumer: The consumer that gets the messages.
            limit: Maximum number of messages.
            share: Maximum number of messages from the shared queues. Messages of its keys do not
                count.
        """
        limit, most_bytes = min(limit, consumer.room), consumer.room_bytes
        if not self._again and not self.key_queues and not self._settled:
            return self._take_new(min(limit, share), most_bytes)
        taken: list[Delivery] = []
        size = 0
        while len(taken) < limit and size < most_bytes:
            queue = self._next_queue(consumer)
            if queue is None:
                break
            shared = queue is not consumer.ready_keys
            if shared and share <= 0:
                # The rest of the shared queues is for other consumers. Only the consumer's own keys
                # are left.
                if not consumer.ready_keys:
                    break
                continue
            head = queue[0]
            if _is_settled(head):
                queue.popleft()
                self._settled -= 1
                continue
            delivery = head.waiting[0] if isinstance(head, KeyQueue) else head
            if taken and size + delivery.record.size > MAX_RESPONSE_BYTES:
                break
            queue.popleft()
            if isinstance(head, KeyQueue):
                _take_from(head, consumer)
            size += delivery.record.size
            share -= shared
            taken.append(delivery)
        return taken

    def _take_new(self, limit: int, most_bytes: float) -> list[Delivery]:
        """Do the work of `take_next` in the common case: no redelivery and no key. This is fast."""
        taken: list[Delivery] = []
        size, ready = 0, self._ready
        for _ in range(min(limit, len(ready))):
            delivery = ready[0]
            assert isinstance(delivery, Delivery)
            grown = size + delivery.record.size
            if size >= most_bytes or (taken and grown > MAX_RESPONSE_BYTES):
                break
            size = grown
            taken.append(delivery)
            ready.popleft()
        return taken

    def _next_queue(self, consumer: Consumer) -> Queue | None:
        """Return the next queue that is not empty; None if there is nothing for `consumer`.

        The queues are served in turn. The turn continues from one take to the next, because many
        takes are for one message only.
        """
        queues = (consumer.ready_keys, self._again, self._ready)
        if self._ready and not self._again and not consumer.ready_keys:
            # Only the queue of new messages has entries for this consumer.
            self._turn = len(queues) - 1
            return self._ready
        for _ in queues:
            self._turn = (self._turn + 1) % len(queues)
            if queues[self._turn]:
                return queues[self._turn]
        return None

    # ---- messages that are settled while they wait ----------------------------------------------

    def settle(self, delivery: Delivery) -> None:
        """Let a waiting message without a key not be delivered again."""
        delivery.acked = True
        if self._delayed.due_of(delivery) is not None:
            self._delayed.forget(delivery)
        else:
            self._settled += 1
            self._remove_settled()

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """Remove the oldest waiting messages, in the order of publishing."""
        for delivery in deliveries:
            key_queue = delivery.key_queue
            if key_queue is None:
                self.settle(delivery)
                continue
            key_queue.waiting.popleft()
            if not key_queue.waiting:
                self._unqueue(key_queue)

    def _unqueue(self, key_queue: KeyQueue) -> None:
        """Take a key without a waiting message out of the queues."""
        self._delayed.forget(key_queue)
        key_queue.delayed = False
        if key_queue.queued:
            key_queue.queued = False
            if key_queue.holder is not None:
                key_queue.holder.ready_keys.remove(key_queue)
            else:
                self._settled += 1
                self._remove_settled()
        if key_queue.finished:
            del self.key_queues[key_queue.key]

    def _remove_settled(self) -> None:
        """Remove settled entries from the queues: the first ones, or all if they are many."""
        for queue in (self._ready, self._again):
            while queue and _is_settled(queue[0]):
                queue.popleft()
                self._settled -= 1
        if self._settled > _FEW and 2 * self._settled > len(self._ready) + len(self._again):
            self._ready = deque(item for item in self._ready if not _is_settled(item))
            self._again = deque(item for item in self._again if not _is_settled(item))
            self._settled = 0

    # ---- the whole backlog ---------------------------------------------------------------------

    def take_apart(self) -> Sequence[dict[Any, Any] | deque[Any] | list[Any]]:
        """Remove all messages and keys. The caller takes the keys away from the consumers.

        Returns:
            The former containers of the messages. To free them takes time for each message.
        """
        remains = (self._ready, self._again, self.key_queues, *self._delayed.take_apart())
        self.key_queues = {}
        self.acked = 0
        self._ready, self._again = deque(), deque()
        self._settled = 0
        self._turn = 0
        return remains


def fitting_in(sizes: Sequence[int], most_bytes: float) -> int:
    """Return how many messages of these sizes go into one response.

    Args:
        sizes: The sizes, in bytes.
        most_bytes: The room of the consumer. The last message may cross this limit.
    """
    size = 0
    for taken, each in enumerate(sizes):
        if size >= most_bytes or (taken and size + each > MAX_RESPONSE_BYTES):
            return taken
        size += each
    return len(sizes)


def _is_settled(item: Item) -> bool:
    """Return whether an entry of a queue has nothing to deliver any more."""
    return not item.waiting if isinstance(item, KeyQueue) else item.acked


def _take_from(key_queue: KeyQueue, consumer: Consumer) -> None:
    key_queue.queued = False
    key_queue.take_first(consumer)
    # The key has more messages: from now on only this consumer may take them.
    if key_queue.deliverable:
        key_queue.queued = True
        consumer.ready_keys.append(key_queue)
