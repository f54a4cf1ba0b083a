"""Queues of the undelivered messages of one subscription, and the choice of the next ones.

Three kinds of queues are served in turn: new messages, messages to redeliver, and the keys that
only one consumer may take. So a poison message cannot starve other messages, and new messages
cannot starve a redelivery.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from pullstream_emulator.engine.due_queue import DueQueue
from pullstream_emulator.engine.record import Record

from .delivery_state import Consumer, Delivery, KeyQueue, ReadyKeys, seq_of

# Most bytes of messages in one response. Official clients keep gRPC's default limit of 4 MiB when
# they talk to an emulator. Ack IDs and framing need the rest.
MAX_RESPONSE_BYTES = 3_500_000

# For this many seconds, only the consumer that nacked a message of a key may take the key again.
# Such a consumer may hold later messages of the key until it sees the failed one again. If the key
# moved to another consumer, the first one could not know the outcome of the failed message.
RESERVED_FOR = 1.0

Item: TypeAlias = Delivery | KeyQueue
Queue: TypeAlias = deque[Item] | ReadyKeys


class Backlog:
    """The queues of one subscription: single messages, and keys with a message to deliver.

    Attributes:
        lanes: Every key with an unfinished message, including the keys that are in no queue.
    """

    def __init__(self) -> None:
        self.lanes: dict[str, KeyQueue] = {}
        self._ready: deque[Item] = deque()
        self._again: deque[Item] = deque()
        # Messages and keys that wait for a time. An entry stays until its time, even if its message
        # is settled meanwhile.
        self._delayed: DueQueue[Item] = DueQueue()
        self._turn = 0

    # ---- in ------------------------------------------------------------------------------------

    def add_new(self, records: Iterable[Record], *, ordered: bool) -> None:
        """Add new messages, in the order of publishing."""
        if not ordered:
            self._ready.extend([Delivery(record, None) for record in records])
            return
        for record in records:
            if record.ordering_key:
                lane = self.key_queue(record.ordering_key)
                lane.waiting.append(Delivery(record, lane))
                self._queue(lane, self._ready)
            else:
                self._ready.append(Delivery(record, None))

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
        return len(self._ready) + len(self._again)

    def take_next(self, consumer: Consumer, limit: int, share: int) -> list[Delivery]:
        """Take the next messages for one consumer, as far as it has room.

        Args:
            consumer: The consumer that gets the messages.
            limit: Maximum number of messages.
            share: Maximum number of messages from the shared queues. Messages of its keys do not
                count.
        """
        limit, most_bytes = min(limit, consumer.room), consumer.room_bytes
        if not self._again and not self.lanes:
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
            if isinstance(head, KeyQueue):
                delivery = head.waiting[0]
            elif head.acked:
                # Acknowledged late, while it waited for its redelivery.
                queue.popleft()
                continue
            else:
                delivery = head
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

    # ---- the whole backlog ---------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of waiting messages without a key, plus all messages of keys, leased or not."""
        if not self.lanes:
            # New messages cannot be acknowledged yet: only redeliveries need a check.
            return len(self._ready) + len(self._waiting_again())
        single = sum(1 for _ in self.waiting())
        return single + sum(lane.size for lane in self.lanes.values())

    def waiting(self) -> Iterator[Delivery]:
        """Yield every waiting message without a key."""
        return (i for i in self._items() if isinstance(i, Delivery) and not i.acked)

    def waiting_by_age(self) -> Iterator[Delivery]:
        """Yield every waiting message without a key, in the order of publishing.

        Only redeliveries are sorted: the queue of new messages has this order already.
        """
        new = (i for i in self._ready if isinstance(i, Delivery))
        again = sorted(self._waiting_again(), key=seq_of)
        return heapq.merge(new, again, key=seq_of)

    def _items(self) -> Iterator[Item]:
        return chain(self._ready, self._again, self._delayed.items())

    def _unqueue(self, gone: set[Item]) -> None:
        if not gone:
            return
        for item in gone:
            if isinstance(item, KeyQueue):
                if item.queued and item.holder is not None:
                    item.holder.lanes.remove(item)
                item.queued = item.delayed = False
        self._ready = deque(i for i in self._ready if i not in gone)
        self._again = deque(i for i in self._again if i not in gone)
        for item in gone:
            self._delayed.forget(item)

    def clear(self) -> None:
        """Remove all messages and keys. The caller takes the keys away from the consumers."""
        self.lanes.clear()
        self._ready.clear()
        self._again.clear()
        self._delayed.clear()
        self._turn = 0

    def fill(self, deliveries: Iterable[Delivery]) -> None:
        """Queue messages in the order of publishing. The backlog must be empty, without lanes."""
        for delivery in sorted(deliveries, key=lambda delivery: delivery.record.seq):
            if delivery.lane is None:
                self._ready.append(delivery)
            else:
                delivery.lane.waiting.append(delivery)
                self.lanes[delivery.lane.key] = delivery.lane
                self._queue(delivery.lane, self._ready)

    def drop_older(self, than_ms: float) -> list[Delivery]:
        """Remove and return all waiting messages that were published at `than_ms` or before."""
        gone: set[Item] = set()
        dropped: list[Delivery] = []
        if not self.lanes:
            # The queue has the order of publishing: old messages are at its head, or in the other
            # queues.
            while (first := self._first_ready()) and first.record.publish_ms <= than_ms:
                self._ready.popleft()
                dropped.append(first)
        for delivery in list(self.waiting()) if self.lanes else self._waiting_again():
            if delivery.record.publish_ms <= than_ms:
                gone.add(delivery)
                dropped.append(delivery)
        for lane in self.lanes.values():
            while lane.waiting and lane.waiting[0].record.publish_ms <= than_ms:
                dropped.append(lane.waiting.popleft())
            if not lane.waiting:
                gone.add(lane)
        self._unqueue(gone)
        self.lanes = {key: lane for key, lane in self.lanes.items() if not lane.finished}
        return dropped

    def _first_ready(self) -> Delivery | None:
        return next((i for i in self._ready if isinstance(i, Delivery)), None)

    def _waiting_again(self) -> list[Delivery]:
        again = (*self._again, *self._delayed.items())
        return [i for i in again if isinstance(i, Delivery) and not i.acked]

    def oldest_ms(self) -> float:
        """Return the publish time in ms of the oldest waiting message, infinity if there is none.

        A message that is unfinished in a key counts as waiting, even if it is leased.
        """
        return min((delivery.record.publish_ms for delivery in self._oldest()), default=math.inf)

    def oldest_seqs(self) -> Iterator[int]:
        """Yield sequence numbers. The lowest belongs to the oldest message; see `oldest_ms`."""
        return (delivery.record.seq for delivery in self._oldest())

    def _oldest(self) -> Iterator[Delivery]:
        """Yield messages. One of them is the oldest that waits or is unfinished in a key."""
        first = self._first_ready()
        keyed = ((lane.delivered or lane.waiting)[0] for lane in self.lanes.values())
        return chain([first] if first else [], self._waiting_again(), keyed)


def _take_from(lane: KeyQueue, consumer: Consumer) -> None:
    lane.queued = False
    lane.take_first(consumer)
    # The key has more messages: from now on only this consumer may take them.
    if lane.deliverable:
        lane.queued = True
        consumer.lanes.append(lane)
