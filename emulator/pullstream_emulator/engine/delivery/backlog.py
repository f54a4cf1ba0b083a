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
        lanes: Every key with an unfinished message, including the keys that are in no queue.
        acked: Number of acknowledged messages behind an unfinished message of their key.
    """

    def __init__(self) -> None:
        self.lanes: dict[str, KeyQueue] = {}
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
                lane = self.key_queue(record.ordering_key)
                delivery = Delivery(record, lane)
                lane.waiting.append(delivery)
                self._queue(lane, self._ready)
            else:
                delivery = Delivery(record, None)
                self._ready.append(delivery)
            deliveries.append(delivery)
        return deliveries

    def key_queue(self, key: str) -> KeyQueue:
        """Return the queue of an ordering key. Create it if the key has no unfinished message."""
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = KeyQueue(key)
        return lane

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
        self, lane: KeyQueue, holder: Consumer | None, *, failed: bool, now: float
    ) -> None:
        """Move a key to the right queue after one of its leases has ended.

        Args:
            lane: The key.
            holder: The consumer that held the lease; None if the key had no holder.
            failed: Whether the lease ended without an acknowledgement.
            now: The present time, on the monotonic clock.
        """
        acked = lane.acked
        self.acked += acked - lane.counted_acked
        lane.counted_acked = acked
        if lane.queued and holder is not None and (failed or lane.holder is not holder):
            holder.lanes.remove(lane)
            lane.queued = False
        if lane.finished:
            del self.lanes[lane.key]
        elif not failed:
            self._queue(lane, self._ready)
        elif lane.deliverable:
            if lane.resume_at > now:
                lane.delayed = True
                self._delayed.schedule(lane, lane.resume_at)
            else:
                self._queue_again(lane, now)

    def _queue_again(self, lane: KeyQueue, now: float) -> None:
        """Queue a key for redelivery, to its holder or to any consumer."""
        if lane.holder is not None and not lane.is_leased:
            if lane.holder.is_here and lane.holder.has_room:
                lane.reserved_until = now + RESERVED_FOR
                self._delayed.schedule(lane, lane.reserved_until)
            else:
                lane.release()
        self._queue(lane, self._again)

    def release_reserved(self, consumer: Consumer) -> None:
        """Let other consumers take the keys that were reserved for `consumer`, which leaves."""
        for lane in consumer.lanes.unleased():
            self._release(lane)

    def _release(self, lane: KeyQueue) -> None:
        if lane.queued and lane.holder is not None and not lane.is_leased:
            lane.holder.lanes.remove(lane)
            lane.release()
            lane.queued = False
            self._queue(lane, self._again)

    def _queue(self, lane: KeyQueue, queue: deque[Item]) -> None:
        """Make sure that a key with a message to deliver is in exactly one queue."""
        if lane.queued or not lane.deliverable:
            return
        lane.queued = True
        (queue if lane.holder is None else lane.holder.lanes).append(lane)

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
        lane = delivery.lane
        if lane is None:
            return self._delayed.due_of(delivery)
        return lane.resume_at if lane.delayed else None

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

    def take_next(self, consumer: Consumer, limit: int, share: int) -> list[Delivery]:
        """Take the next messages for one consumer, as far as it has room.

        Args:
            consumer: The consumer that gets the messages.
            limit: Maximum number of messages.
            share: Maximum number of messages from the shared queues. Messages of its keys do not
                count.
        """
        limit, most_bytes = min(limit, consumer.room), consumer.room_bytes
        if not self._again and not self.lanes and not self._settled:
            return self._take_new(min(limit, share), most_bytes)
        taken: list[Delivery] = []
        size = 0
        while len(taken) < limit and size < most_bytes:
            queue = self._next_queue(consumer)
            if queue is None:
                break
            shared = queue is not consumer.lanes
            if shared and share <= 0:
                # The rest of the shared queues is for other consumers. Only the consumer's own keys
                # are left.
                if not consumer.lanes:
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
        queues = (consumer.lanes, self._again, self._ready)
        if self._ready and not self._again and not consumer.lanes:
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
            lane = delivery.lane
            if lane is None:
                self.settle(delivery)
                continue
            lane.waiting.popleft()
            if not lane.waiting:
                self._unqueue(lane)

    def _unqueue(self, lane: KeyQueue) -> None:
        """Take a key without a waiting message out of the queues."""
        self._delayed.forget(lane)
        lane.delayed = False
        if lane.queued:
            lane.queued = False
            if lane.holder is not None:
                lane.holder.lanes.remove(lane)
            else:
                self._settled += 1
                self._remove_settled()
        if lane.finished:
            del self.lanes[lane.key]

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

    def fill(self, deliveries: Sequence[Delivery]) -> None:
        """Queue messages, given in the order of publishing. The backlog must be empty."""
        for delivery in deliveries:
            if delivery.lane is None:
                self._ready.append(delivery)
            else:
                delivery.lane.waiting.append(delivery)
                self.lanes[delivery.lane.key] = delivery.lane
                self._queue(delivery.lane, self._ready)

    def take_apart(self) -> Sequence[dict[Any, Any] | deque[Any] | list[Any]]:
        """Remove all messages and keys. The caller takes the keys away from the consumers.

        Returns:
            The former containers of the messages. To free them takes time for each message.
        """
        remains = (self._ready, self._again, self.lanes, *self._delayed.take_apart())
        self.lanes = {}
        self.acked = 0
        self._ready, self._again = deque(), deque()
        self._settled = 0
        self._turn = 0
        return remains


def _is_settled(item: Item) -> bool:
    """Return whether an entry of a queue has nothing to deliver any more."""
    return not item.waiting if isinstance(item, KeyQueue) else item.acked


def _take_from(lane: KeyQueue, consumer: Consumer) -> None:
    lane.queued = False
    lane.take_first(consumer)
    # The key has more messages: from now on only this consumer may take them.
    if lane.deliverable:
        lane.queued = True
        consumer.lanes.append(lane)
